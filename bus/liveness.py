"""Who is there, who is suspect, who is dead. Decides only; it sends no beacon and no ping.

Each peer's beacons are awaited at its own pace. One that stays silent is pinged directly,
past the hubs; only one that is silent and answers no ping is dead. If most peers fall silent
at once, the likelier cause is the hubs or this process: then nobody is condemned.

Time is counted by a clock of our own that stands still while we do not listen (a process that
was stopped, suspended or busy has missed the beacons, not the peers their turn).

What always holds:
  L1  From silence alone nobody dies: it takes `suspect_after` periods of the peer without a
      beacon, then `dead_after` more with a ping ordered at their start and half-way, and no
      answer. (A peer without an endpoint cannot be pinged; only there silence decides.)
  L2  A silent peer that answers pings is not suspect. It is pinged again each period.
  L3  While more than half are missing (`blind`) nobody dies from silence; when enough are
      heard again, everyone still missing gets its whole time anew.
  L4  Time in which we did not listen is nobody's silence: of the time since the last
      `advance`, no more than `_listen_s` counts.
  L5  A peer's incarnation never goes back, and within one life only the newest beacon counts
      (`age_s` tells). A vouched exit and a goodbye are final for that life.
  L6  A vouched exit is a death at once, blind or not.
  L7  Of two processes with our id, the one with the lesser incarnation is told to resign; of two
      with the same, the younger, as the elder is whom the others hear.
  L8  Bounded: at most `PEERS_MAX` entries (the longest gone make room, else newcomers are
      refused), `PINGS_MAX` pings an `advance`; who is gone, or missing while we are blind, is
      forgotten after `FORGET_S`.
  L9  Who is silent and answers no ping is dead within `suspect_after + dead_after` periods of
      its last beacon, and a quarter of ours, unless we are blind or out of pings.
  L10 A beacon with a number that cannot be (a NaN, an infinity, a period of 0, an incarnation of
      the far future) or an endpoint of no known transport changes nothing: it would break whoever
      sums, sorts or connects, or outlive all lives to come.

Small groups. Everyone counts, hubs and agents too, but for programs that merely link `roles`
(those come and go in crowds). With one or two peers there is no majority to tell by; there we
go by our own beacons, which come back to us through the hubs: who hears itself trusts the hubs.

Goodbye. A process that closes in order sends a last beacon with state "offline".
"""

import math
from collections.abc import Iterable

from bus.messages import Beacon
from bus.peers import (
    Appeared,
    Died,
    Forgotten,
    HubsSuspected,
    HubsTrusted,
    Left,
    Output,
    Peer,
    PingPeer,
    Replaced,
    ResignTo,
    Returned,
    StateChanged,
    Suspected,
)
from bus.standing import TRUSTED, Answering, Dead, Entry, Gone, Suspect, Trusted, is_sound

PEERS_MAX = 10_000
PINGS_MAX = 64
FORGET_S = 600.0
SMALL_GROUP = 2
GOODBYE = "offline"
TWIN_S = 1.0  # Lives that began closer together than that are of the same age.
LISTEN_S_MAX = 0.5  # However slow our own beacons, look at the table this often.
STEPS = 4  # How often to look, within `_listen_s`, while someone is missing.


class Liveness:
    """The table. `heard`, `answered` and `exited` are told it; `advance` judges who was not."""

    def __init__(  # noqa: PLR0913 (all but two are keywords)
        self,
        me: str,
        incarnation: int,
        *,
        period_s: float,
        suspect_after: float = 3,
        dead_after: float = 1,
        place: tuple[str, int] | None = None,
        now: float,
    ) -> None:
        """`place`: our node and pid, to tell our own beacons from those of another process with
        our id and incarnation."""
        assert suspect_after >= 2, "fewer than two periods: one lost beacon would be missed"
        assert dead_after > 0
        assert period_s > 0
        self._me = me
        self._incarnation = incarnation
        self._place = place
        self._began_at = now
        self._suspect_after = suspect_after
        self._dead_after = dead_after
        self._missing_after = suspect_after - 0.5
        """Half a period early: if all fall silent at once, most are missing before one dies."""
        self._listen_s = min(period_s / 2, LISTEN_S_MAX)
        self._echo_missing_s = self._missing_after * period_s
        self._present: dict[str, Entry] = {}
        self._gone: dict[str, Entry] = {}  # Longest gone first.
        self._listened_s = 0.0
        self._advanced_at = now
        self._wake_at = now + self._listen_s
        self._echo_from = -math.inf
        self._resigned_to = incarnation
        self._resigned_to_twin = False
        self.blind = False
        """More than half of the peers are missing: we suspect the hubs, or ourselves."""
        self.version = 0
        """Grows with each change of who is there and how it is (and now and then without)."""
        self.outdated = 0
        """Beacons dropped: of a replaced or ended life, or older than one already heard."""
        self.refused = 0
        """Newcomers dropped because the table was full."""
        self.unsound = 0
        """Beacons dropped for a number, an incarnation or an endpoint that cannot be."""

    # What happened.

    def heard(self, sender: str, incarnation: int, beacon: Beacon, now: float) -> list[Output]:
        """A beacon came. Our own count too: they show that the hubs work."""
        if not is_sound(beacon, incarnation):
            self.unsound += 1  # L10
            return []
        entry = self._present.get(sender)
        if (
            entry is None
            or entry.incarnation != incarnation
            or entry.standing is not TRUSTED
            or beacon.state != entry.beacon.state
            or beacon.period_s != entry.beacon.period_s
            or beacon.age_s < entry.beacon.age_s
        ):
            return self._heard_news(sender, incarnation, beacon, now)
        entry.beacon = beacon
        entry.heard_at = now
        entry.silent_from = self._clock(now)
        return []

    def answered(self, peer_id: str, incarnation: int, now: float) -> list[Output]:
        """A `Pong` to our ping came from this life of this peer."""
        entry = self._present.get(peer_id) or self._gone.get(peer_id)
        if entry is None or entry.incarnation != incarnation:
            return []  # Someone else answers at that endpoint now.
        match entry.standing:
            case Answering():
                entry.standing = Answering(self._clock(now))
                return []
            case Suspect() | Dead(vouched=False):
                self._gone.pop(peer_id, None)
                self._present[peer_id] = entry
                entry.standing = Answering(self._clock(now))  # L2
                return self._told([Returned(peer_id, incarnation, "ping")])
            case _:
                return []

    def exited(self, peer_id: str, incarnation: int, reason: str, now: float) -> list[Output]:
        """A node agent reaped this process: it is dead for certain."""
        entry = self._present.get(peer_id) or self._gone.get(peer_id)
        if entry is None or entry.incarnation != incarnation or entry.ended:
            return []
        self._bury(entry, Dead(now, vouched=True))  # L6
        return self._told([Died(peer_id, incarnation, reason, vouched=True)])

    def advance(self, now: float) -> list[Output]:
        """Judge who is silent."""
        if now < self._wake_at:
            return []
        clock = self._listened_s = self._clock(now)
        self._advanced_at = now
        missing = []
        next_missing = math.inf
        for entry in self._present.values():
            missing_at = entry.silent_from + entry.missing_s
            if missing_at <= clock:
                missing.append(entry)
            elif missing_at < next_missing:
                next_missing = missing_at
        outputs = self._judge_hubs(missing, clock)
        outputs += self._judge_missing(missing, clock, now)
        outputs += self._forget(missing, clock, now)
        wait_s = 0.0 if missing else next_missing - clock
        self._wake_at = now + min(max(wait_s, self._listen_s / STEPS), self._listen_s)
        return self._told(outputs)

    @property
    def wake_at(self) -> float:
        """Two to eight times a period of ours, never for each beacon."""
        return self._wake_at

    # What is known.

    def peers(self) -> list[Peer]:
        """Everyone remembered, the dead too, by id."""
        entries = [*self._present.values(), *self._gone.values()]
        return sorted((entry.peer() for entry in entries), key=lambda peer: peer.id)

    def peer(self, peer_id: str) -> Peer | None:
        entry = self._present.get(peer_id) or self._gone.get(peer_id)
        return None if entry is None else entry.peer()

    def live(self, role: str = "") -> list[Peer]:
        """Those to rely on: live by their own word, and not suspect unless we are blind.

        While the hubs are gone, work must go on with those who were live when last heard.
        """
        return [
            entry.peer()
            for entry in self._present.values()
            if entry.beacon.state == "live"
            and (not role or entry.beacon.role == role)
            and (self.blind or not isinstance(entry.standing, Suspect))
        ]

    # Beacons.

    def _heard_news(
        self, sender: str, incarnation: int, beacon: Beacon, now: float
    ) -> list[Output]:
        """A beacon that changes something, or must not."""
        if sender == self._me:
            return self._heard_own_id(incarnation, beacon, now)
        entry = self._present.get(sender) or self._gone.get(sender)
        outputs: list[Output] = []
        if entry is None:
            if beacon.state == GOODBYE or not self._make_room(outputs):
                return outputs
            entry = Entry(sender, incarnation, beacon)
            outputs.append(Appeared(sender, incarnation))
        elif incarnation > entry.incarnation:
            outputs.append(Replaced(sender, incarnation, entry.incarnation))
            entry.incarnation = incarnation
        elif self._is_old(entry, incarnation, beacon):
            self.outdated += 1
            return []
        else:
            outputs += _news(entry, beacon)
        entry.beacon = beacon
        entry.heard_at = now
        entry.silent_from = self._clock(now)
        entry.expect(self._suspect_after, self._missing_after)
        if beacon.state == GOODBYE:
            self._bury(entry, Gone(now))
            outputs.append(Left(sender, incarnation))
        else:
            self._gone.pop(sender, None)
            self._present[sender] = entry
            entry.standing = TRUSTED
        return self._told(outputs)

    def _is_old(self, entry: Entry, incarnation: int, beacon: Beacon) -> bool:
        if incarnation < entry.incarnation:
            return True  # L5
        return entry.ended or beacon.age_s < entry.beacon.age_s  # L5

    def _heard_own_id(self, incarnation: int, beacon: Beacon, now: float) -> list[Output]:
        if incarnation == self._incarnation:
            if self._place in (None, (beacon.node, beacon.pid)):
                self._echo_from = self._clock(now)
                return []
            return self._heard_twin(beacon, now)
        if incarnation <= self._resigned_to or beacon.state == GOODBYE:
            return []  # The lesser hears us as well; one that is leaving replaces nobody.
        self._resigned_to = incarnation
        return [ResignTo(incarnation)]  # L7

    def _heard_twin(self, beacon: Beacon, now: float) -> list[Output]:
        """Another process has our id and our incarnation: two agents gave it, each by what it
        knew. Ages tell; if they do not, anything will do on which both agree."""
        assert self._place is not None
        older_s = beacon.age_s - (now - self._began_at)
        can_tell = abs(older_s) > TWIN_S
        yields = older_s > 0 if can_tell else (beacon.node, beacon.pid) > self._place
        if not yields or beacon.state == GOODBYE or self._resigned_to_twin:
            return []
        self._resigned_to_twin = True
        return [ResignTo(self._incarnation)]  # L7

    def _make_room(self, outputs: list[Output]) -> bool:
        if len(self._present) + len(self._gone) < PEERS_MAX:
            return True
        if not self._gone:
            self.refused += 1  # L8
            return False
        longest = self._gone.pop(next(iter(self._gone)))
        outputs.append(Forgotten(longest.id, longest.incarnation))
        return True

    # Judgement.

    def _judge_hubs(self, missing: list[Entry], clock: float) -> list[Output]:
        known = _counted(self._present.values())
        lost = _counted(missing)
        blind = self._is_blind(known, lost, clock)
        if blind and not self.blind:
            self.blind = True
            return [HubsSuspected(lost, known)]
        if self.blind and not blind:
            self.blind = False
            for entry in missing:
                entry.begin_anew(clock)  # L3
            missing.clear()
            return [HubsTrusted()]
        return []

    def _is_blind(self, known: int, lost: int, clock: float) -> bool:
        echoed = clock - self._echo_from < self._echo_missing_s
        if known == 0:
            return self.blind and not echoed  # Nobody left to hear is no reason to trust again.
        if known <= SMALL_GROUP and echoed:
            return False
        return lost * 2 > known

    def _judge_missing(self, missing: list[Entry], clock: float, now: float) -> list[Output]:
        if len(missing) > PINGS_MAX:
            missing.sort(key=lambda entry: entry.pinged_at)  # So that everyone gets a turn.
        outputs: list[Output] = []
        pings = 0
        for entry in missing:
            if self._is_dead(entry, clock):
                self._bury(entry, Dead(now, vouched=False))
                reason = f"silent for {clock - entry.silent_from:.1f} s, ping unanswered"
                outputs.append(Died(entry.id, entry.incarnation, reason, vouched=False))
                continue
            if self._is_suspect(entry, clock):
                entry.standing = Suspect()
                entry.pinged_at = -math.inf
                outputs.append(Suspected(entry.id, entry.incarnation))
            if pings < PINGS_MAX and self._is_ping_due(entry, clock):  # L8
                self._pinged(entry, clock)
                if entry.beacon.endpoint:
                    pings += 1
                    outputs.append(PingPeer(entry.id, entry.beacon.endpoint))
        return outputs

    def _is_dead(self, entry: Entry, clock: float) -> bool:
        if self.blind or not isinstance(entry.standing, Suspect):
            return False  # L3
        return clock >= entry.standing.judged_at  # L1

    def _is_suspect(self, entry: Entry, clock: float) -> bool:
        match entry.standing:
            case Trusted():
                return clock >= entry.silent_from + entry.suspect_s  # L1
            case Answering(answered_at):
                unanswered = entry.pinged_at > answered_at
                return unanswered and clock >= entry.pinged_at + self._grace_s(entry)
            case _:
                return False

    def _is_ping_due(self, entry: Entry, clock: float) -> bool:
        match entry.standing:
            case Suspect():
                silent_for_s = clock - entry.silent_from  # Little, if it has its time anew (L3).
                due_at = entry.pinged_at + self._grace_s(entry) / 2  # L1
                return silent_for_s >= entry.suspect_s and clock >= due_at
            case Answering(answered_at):
                return entry.pinged_at <= answered_at and clock >= answered_at + entry.period_s
            case _:
                return False

    def _pinged(self, entry: Entry, clock: float) -> None:
        entry.pinged_at = clock
        if isinstance(entry.standing, Suspect) and entry.standing.judged_at == math.inf:
            # L1: the verdict waits for the ping, which may have had to wait its turn.
            entry.standing = Suspect(judged_at=clock + self._grace_s(entry))

    def _grace_s(self, entry: Entry) -> float:
        return self._dead_after * entry.period_s

    # Housekeeping.

    def _bury(self, entry: Entry, standing: Dead | Gone) -> None:
        entry.standing = standing
        self._present.pop(entry.id, None)
        self._gone.pop(entry.id, None)  # So that it goes to the end, as the latest gone.
        self._gone[entry.id] = entry

    def _forget(self, missing: list[Entry], clock: float, now: float) -> list[Output]:
        outputs: list[Output] = []
        while self._gone:  # L8: in order of going, so the first that stays ends it.
            entry = next(iter(self._gone.values()))
            if isinstance(entry.standing, Dead | Gone) and now < entry.standing.at + FORGET_S:
                break
            del self._gone[entry.id]
            outputs.append(Forgotten(entry.id, entry.incarnation))
        if self.blind:
            for entry in missing:
                if isinstance(entry.standing, Suspect) and clock > entry.silent_from + FORGET_S:
                    del self._present[entry.id]
                    outputs.append(Forgotten(entry.id, entry.incarnation))
        return outputs

    def _clock(self, now: float) -> float:
        """Seconds we have listened so far."""
        return self._listened_s + min(now - self._advanced_at, self._listen_s)  # L4

    def _told(self, outputs: list[Output]) -> list[Output]:
        self.version += len(outputs)
        return outputs


def _news(entry: Entry, beacon: Beacon) -> list[Output]:
    """What a beacon of the same life changes."""
    if beacon.state == GOODBYE:
        return []
    outputs: list[Output] = []
    if isinstance(entry.standing, Suspect | Dead):
        outputs.append(Returned(entry.id, entry.incarnation, "beacon"))
    if beacon.state != entry.beacon.state:
        before = entry.beacon.state
        outputs.append(StateChanged(entry.id, entry.incarnation, before, beacon.state))
    return outputs


def _counted(entries: Iterable[Entry]) -> int:
    return sum(not entry.beacon.linked for entry in entries)
