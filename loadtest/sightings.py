"""Notes when a member of the cluster first sees each life of the others in each state. Listens."""

from bus.clock import now
from bus.member import Member
from bus.messages import State
from bus.peers import Appeared, Change, Died, Left, Replaced, StateChanged
from loadtest.heal_requests import Sighting


class Sightings:
    def __init__(self, member: Member, observer: str) -> None:
        self._member = member
        self._observer = observer
        self._noted: set[tuple[str, str, int, State]] = set()
        self._untold: list[Sighting] = []
        member.on_change(self._heard)

    def taken(self) -> list[Sighting]:
        """All that were noted since the last time."""
        untold, self._untold = self._untold, []
        return untold

    def note(self, observer: str, component_id: str, incarnation: int, state: State) -> None:
        """Here, or by somebody else who told us: the first time counts."""
        key = observer, component_id, incarnation, state
        if key not in self._noted:
            self._noted.add(key)
            self._untold.append(Sighting(now(), *key))

    def _heard(self, change: Change) -> None:
        match change:
            case Died():
                self.note(self._observer, change.id, change.incarnation, "dead")
            case Left():
                self.note(self._observer, change.id, change.incarnation, "offline")
            case Appeared() | Replaced() | StateChanged():
                peer = self._member.liveness.peer(change.id)
                if peer is not None and peer.incarnation == change.incarnation:
                    self.note(self._observer, peer.id, peer.incarnation, peer.state)
            case _:
                pass
