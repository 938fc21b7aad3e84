"""What node agents say they hold back, as long as they keep saying so. Decides only.

What always holds:
  H1  What an agent no longer says, in its newest word or for `good_s`, is not held by it. But the
      last word of an agent that can say nothing any more stands.
  H2  At most `AGENTS_MAX` agents are remembered, and those that said nothing lately not at all,
      unless they cannot.
"""

from collections.abc import Collection

from bus.process_orders import Held, ProcessesHeld

PERIODS = 5  # An agent says it once a period; later than that it is known to be silent.
GOOD_S_MIN = 2.0  # However short the period.
AGENTS_MAX = 1000


class HeldTable:
    def __init__(self, period_s: float) -> None:
        self.good_s = max(PERIODS * period_s, GOOD_S_MIN)
        """For so long each word of an agent counts."""
        self._said: dict[str, tuple[float, dict[str, Held]]] = {}

    def heard(self, agent_id: str, message: ProcessesHeld, now: float) -> None:
        """All that this agent holds."""
        self._said.pop(agent_id, None)
        if message.held and len(self._said) < AGENTS_MAX:  # H2
            self._said[agent_id] = (now, {each.id: each for each in message.held})

    def runs(self, component_id: str) -> None:
        """It is there: nobody holds it, unless he says so again."""
        for _, held in self._said.values():
            held.pop(component_id, None)

    def held(self, now: float, silent: Collection[str] = ()) -> dict[str, Held]:
        """Everything held anywhere, by id. `silent`: agents that can say nothing now."""
        self._said = {
            agent: said
            for agent, said in self._said.items()
            if now < said[0] + self.good_s or agent in silent
        }  # H1
        return {each.id: each for _, held in self._said.values() for each in held.values()}
