"""Make a tick of what a member knows and has heard. Decides nothing, waits for nothing.

Whoever is let in may tell anything. What cannot be is left out here, before anybody looks at it and
before it is recorded, so that those who judge now and those who replay see the same.

What always holds:
  G1  A tick is written down and read again unchanged: every number is finite, every name short.
  G2  Of one asker at most `TOLD_MAX` rows are in a tick, of each life one a telling; at most
      `ASKERS_MAX` askers. What is left out is counted. Who tells too much silences only himself.
  G3  Of three or more askers none counts for more than `WEIGHT_MAX` times the one in the middle.
"""

from collections.abc import Iterable, Iterator
from math import isfinite

from bus.config_shape import BRICK, SessionsConfig
from bus.messages import PeerSeen, PeersSeen
from bus.peers import Peer
from pinpoint.deviation import median_of
from pinpoint.outside import (
    ASKERS_MAX,
    NAME_MAX,
    TOLD_MAX,
    is_sound_row,
    is_sound_telling,
)
from pinpoint.samples import Demand, Sample, StubSaw, Tick

ENDED = frozenset({"dead", "offline"})
ASKED_PER_S_MAX = 1e6  # No process asks more.
WEIGHT_MAX = 10.0
MIDDLE_MIN = 3


class Hearsay:
    """What askers told since the last tick, as far as it can be."""

    def __init__(self) -> None:
        self._saw: list[StubSaw] = []
        self._told: dict[str, int] = {}
        self.dropped = 0
        """Rows."""

    def heard(self, asker: str, told: PeersSeen) -> None:
        rows = self._rows(asker, told)
        self.dropped += len(told.seen) - len(rows)
        if rows:
            self._saw.append(StubSaw(asker, told.role, told.period_s, rows))

    def take(self) -> list[StubSaw]:
        taken, self._saw, self._told = self._saw, [], {}
        return taken

    def _rows(self, asker: str, told: PeersSeen) -> list[PeerSeen]:
        before = self._told.get(asker, 0)
        if len(asker) > NAME_MAX or not (before or len(self._told) < ASKERS_MAX):  # G2
            return []
        self._told[asker] = before + len(told.seen)
        if not is_sound_telling(told.role, told.period_s):
            return []
        sound: dict[tuple[str, int], PeerSeen] = {}
        for seen in told.seen[: max(TOLD_MAX - before, 0)]:  # G2
            if is_sound_row(seen):  # G1
                sound.setdefault((seen.id, seen.incarnation), seen)
        return list(sound.values())


def gather(peers: Iterable[Peer], saw: list[StubSaw], at: float, *, blind: bool) -> Tick:
    """Samples of all that are ours, in the order of `peers`; demand of all, linked ones too."""
    peers = list(peers)
    samples = [_sample(peer, at) for peer in peers if not peer.linked]
    return Tick(at, samples, saw, _demand(_askers(peers)), blind)


def _sample(peer: Peer, at: float) -> Sample:
    silent_s = at - peer.heard_at
    return Sample(
        peer.id,
        peer.role,
        peer.node,
        peer.incarnation,
        peer.state,
        silent_s + (peer.age_s if isfinite(peer.age_s) else 0.0),
        silent_s,
        _finite(peer.statistics),
    )


def _finite(statistics: dict[str, float]) -> dict[str, float]:
    """G1: nearly always all of them, and then their sum is."""
    if isfinite(sum(statistics.values())):
        return statistics
    return {name: value for name, value in statistics.items() if isfinite(value)}


def _askers(peers: Iterable[Peer]) -> Iterator[Demand]:
    for peer in peers:
        told = peer.statistics
        if "session_refusals_per_s" not in told or peer.state in ENDED:
            continue
        refused = told["session_refusals_per_s"]
        reads, writes = told.get("session_reads_per_s", 0.0), told.get("session_writes_per_s", 0.0)
        if all(0 <= each <= ASKED_PER_S_MAX for each in (refused, reads, writes)):  # G1
            yield Demand(refused + reads + writes, refused)


def _demand(askers: Iterable[Demand]) -> Demand:
    asking = [each for each in askers if each.asked_per_s > 0]
    limit = 3 * ASKED_PER_S_MAX
    if len(asking) >= MIDDLE_MIN:
        limit = WEIGHT_MAX * median_of(sorted(each.asked_per_s for each in asking))  # G3
    asked = refused = 0.0
    for each in asking:
        weight = min(limit / each.asked_per_s, 1.0)
        asked += weight * each.asked_per_s
        refused += weight * each.refused_per_s
    return Demand(asked, refused)


def needed_of(sessions: SessionsConfig) -> dict[str, int]:
    """Of each role, how many must stay live whatever is wrong with them: one more brick than a
    write must reach."""
    reached = sessions.WQ
    if sessions.WQ_local:
        reached = sessions.WQ_local + min(sessions.W_remote, 1)
    return {BRICK: reached + 1}
