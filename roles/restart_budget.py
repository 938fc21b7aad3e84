"""When to stop restarting a process that fails again after each restart. Decides only.

One budget a process. A restart has helped if the life that it began lasted: long after it was live
for one that then crashed or was killed by somebody, longer for one that was found hung or sick,
which takes a while to find out. A life that never got as far as being live has to last as long as
that. `roles.restarts` spaces the starts; this says when there should be none for a while.

What always holds:
  B1  Only a life that began as a restart counts against the budget: not one that the plan or a
      person began, and not one whose end was asked for.
  B2  A life that lasted clears the row, and so does a person (`forgive`).
  B3  It is given up only after `offline_after` restarts in a row that did not help; and from then
      on after each one that does not.
"""

from dataclasses import dataclass

from bus.config_shape import RestartsConfig


@dataclass(frozen=True, slots=True)
class _Life:
    began_at: float
    is_restart: bool
    live_at: float | None = None


class RestartBudget:
    def __init__(self, config: RestartsConfig) -> None:
        self._config = config
        self._life: _Life | None = None
        self.failed = 0
        """Restarts in a row that did not help."""

    def began(self, now: float, *, restart: bool) -> None:
        """A life begins; `restart`: nobody but whoever heals has asked for it."""
        self._life = _Life(now, restart)

    def live(self, now: float) -> None:
        """That life was heard to be live, perhaps not for the first time."""
        if self._life is not None and self._life.live_at is None:
            self._life = _Life(self._life.began_at, self._life.is_restart, now)

    def ended(self, now: float, *, sick: bool) -> bool:
        """That life ended unasked, or (`sick`) had to be ended. True: it is given up."""
        life, self._life = self._life, None
        if life is None:
            return False  # B1
        if self._has_lasted(life, now, sick=sick):
            self.failed = 0  # B2
        elif life.is_restart:
            self.failed += 1  # B1
        return self.failed >= self._config.offline_after  # B3

    def ended_as_asked(self) -> None:
        self._life = None  # B1

    def forgive(self) -> None:
        """A person asks for it: what was before no longer counts."""
        self.failed = 0  # B2

    def _has_lasted(self, life: _Life, now: float, *, sick: bool) -> bool:
        if sick or life.live_at is None:
            return now - life.began_at >= self._config.sick_s
        return now - life.live_at >= self._config.crash_s
