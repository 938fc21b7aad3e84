"""Make a tick of what a member knows and has heard. Decides nothing, waits for nothing."""

from collections.abc import Iterable

from bus.config_shape import BRICK, SessionsConfig
from bus.messages import PeersSeen
from bus.peers import Peer
from pinpoint.samples import Demand, Sample, StubSaw, Tick

ENDED = frozenset({"dead", "offline"})
SAW_MAX = 2000  # Tellings between two ticks; each has at most `PEERS_SEEN_MAX` peers.


class Hearsay:
    """What askers told since the last tick; at most `SAW_MAX` tellings of it."""

    def __init__(self) -> None:
        self._saw: list[StubSaw] = []
        self.dropped = 0

    def heard(self, asker: str, told: PeersSeen) -> None:
        if len(self._saw) < SAW_MAX:
            self._saw.append(StubSaw(asker, told.role, told.period_s, told.seen))
        else:
            self.dropped += 1

    def take(self) -> list[StubSaw]:
        taken, self._saw = self._saw, []
        return taken


def gather(peers: Iterable[Peer], saw: list[StubSaw], at: float, *, blind: bool) -> Tick:
    """Samples of all that are ours, in the order of `peers`; demand of all, linked ones too."""
    samples: list[Sample] = []
    asked = refused = 0.0
    for peer in peers:
        statistics = peer.statistics
        if "session_refusals_per_s" in statistics and peer.state not in ENDED:
            refusals = statistics["session_refusals_per_s"]
            reads = statistics.get("session_reads_per_s", 0.0)
            refused += max(refusals, 0.0)
            asked += max(refusals + reads + statistics.get("session_writes_per_s", 0.0), 0.0)
        if peer.linked:
            continue
        silent_s = at - peer.heard_at
        samples.append(
            Sample(
                peer.id,
                peer.role,
                peer.node,
                peer.incarnation,
                peer.state,
                peer.age_s + silent_s,
                silent_s,
                statistics,
            )
        )
    return Tick(at, samples, saw, Demand(asked, refused), blind)


def needed_of(sessions: SessionsConfig) -> dict[str, int]:
    """Of each role, how many must stay live whatever is wrong with them: one more brick than a
    write must reach."""
    reached = sessions.WQ
    if sessions.WQ_local:
        reached = sessions.WQ_local + min(sessions.W_remote, 1)
    return {BRICK: reached + 1}
