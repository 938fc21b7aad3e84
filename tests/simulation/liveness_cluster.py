"""Processes that beacon and watch each other, for `tests.world`: the production liveness table
and delivery windows behind as little as will connect them.

Each checks as it goes what must hold after every event, whatever the trouble (L5).
"""

from itertools import count
from typing import TypeVar

import msgspec

from bus.liveness import Liveness
from bus.messages import Beacon, Happening, Ping, Pong, State
from bus.peers import Died, Output, PingPeer, Returned
from bus.window import DeliveryWindows
from tests.world import CALM, Actor, Effect, Note, Publish, Send, Weather, World

PERIOD_S = 1.0
HUBS = ("hub-1", "hub-2")
DIRECT = "tcp://"

Noted = TypeVar("Noted")


class Frame(msgspec.Struct, frozen=True, array_like=True):
    id: str
    incarnation: int
    sequence: int
    message: Beacon | Happening | Ping | Pong


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


class Member:
    """One life of one process."""

    def __init__(self, name: str, peer_id: str, table: Liveness, life: int, now: float) -> None:
        self.table = table
        self.id = peer_id
        self.incarnation = life
        self.state: State = "live"
        self.deduplicates = True
        """Off: each hub's copy reaches the table, which must stand that as well."""
        self._name = name
        self._born_at = now
        self._beat_at = now
        self._sequence = count()
        self._windows = DeliveryWindows()
        self._ended: set[tuple[str, int]] = set()

    @property
    def wake_at(self) -> float:
        return min(self._beat_at, self.table.wake_at)

    def advance(self, now: float) -> list[Effect]:
        effects = self._perform(self.table.advance(now))
        if now >= self._beat_at:
            self._beat_at = now + PERIOD_S
            effects.append(self._publish(self._beacon(now)))
        return effects

    def receive(self, sender: str, frame: bytes, now: float) -> list[Effect]:
        heard = _decode(frame)
        if isinstance(heard.message, Ping):
            return [Send(sender, self._frame(Pong(self.id, self.incarnation)))]
        assert isinstance(heard.message, Pong)
        pong = heard.message
        return self._perform(self.table.answered(pong.id, pong.incarnation, now))

    def hear(self, sender: str, frame: bytes, now: float) -> list[Effect]:
        heard = _decode(frame)
        first = self._windows.first_time(heard.id, heard.incarnation, heard.sequence)
        if self.deduplicates and not first:
            return []
        match heard.message:
            case Beacon() as beacon:
                return self._hear_beacon(heard, beacon, now)
            case Happening(subject=subject, reason=life):
                outputs = self.table.exited(subject, int(life), "reaped", now)
                if outputs:  # Else that life is not known here, or not yet.
                    self._ended.add((subject, int(life)))
                return self._perform(outputs)
            case Ping() | Pong():
                raise AssertionError("pings are sent, not published")

    def vouch(self, peer_id: str, incarnation: int) -> Publish:
        """As a node agent: that process has exited."""
        return self._publish(Happening("exited", peer_id, str(incarnation)))

    def _hear_beacon(self, heard: Frame, beacon: Beacon, now: float) -> list[Effect]:
        before = self.table.peer(heard.id)
        outputs = self.table.heard(heard.id, heard.incarnation, beacon, now)
        after = self.table.peer(heard.id)
        if before is not None and after is not None:
            assert (after.incarnation, after.age_s) >= (before.incarnation, before.age_s), (
                f"{self._name} went back from {before} to {after}"
            )
        return self._perform(outputs)

    def _perform(self, outputs: list[Output]) -> list[Effect]:
        effects: list[Effect] = []
        for output in outputs:
            if isinstance(output, PingPeer):
                to = output.endpoint.removeprefix(DIRECT)
                effects.append(Send(to, self._frame(Ping())))
            else:
                effects.append(Note(output))
            if isinstance(output, Returned | Died) and not getattr(output, "vouched", False):
                life = (output.id, output.incarnation)
                assert life not in self._ended, f"{self._name}: {output} after it was vouched dead"
        return effects

    def _beacon(self, now: float) -> Beacon:
        return Beacon(
            role=self.id.split("-")[0],
            node="n1",
            pid=1,
            endpoint=DIRECT + self._name,
            state=self.state,
            age_s=now - self._born_at,
            restarts=0,
            linked=False,
            period_s=PERIOD_S,
            metrics_url="",
            statistics={},
        )

    def _publish(self, message: Beacon | Happening) -> Publish:
        return Publish(self._frame(message))

    def _frame(self, message: Beacon | Happening | Ping | Pong) -> bytes:
        return _encode(Frame(self.id, self.incarnation, next(self._sequence), message))


class Cluster:
    """Two hubs, which are members too, and a few bricks. `table` is the class under test."""

    def __init__(
        self,
        seed: int,
        *,
        table: type[Liveness] = Liveness,
        bricks: int = 4,
        weather: Weather = CALM,
        deduplicates: bool = True,
    ) -> None:
        self.world = World(seed, hubs=HUBS, weather=weather)
        self.members = [*HUBS, *(f"brick-{n + 1}" for n in range(bricks))]
        self._table = table
        self._deduplicates = deduplicates
        self._lives = count(1)
        for name in self.members:
            self.add(name, name)
            self.world.run(self.world.chance.uniform(0, PERIOD_S / len(self.members)))
        self.world.run(2 * PERIOD_S)  # A newcomer knows the cluster within two periods.

    def add(self, name: str, peer_id: str) -> None:
        def make(now: float) -> Actor:
            life = next(self._lives)  # Greater than any before, as the design asks.
            table = self._table(peer_id, life, period_s=PERIOD_S, now=now)
            member = Member(name, peer_id, table, life, now)
            member.deduplicates = self._deduplicates
            return member

        self.world.add(name, make)

    def member(self, name: str) -> Member | None:
        actor = self.world.nodes[name].actor
        assert actor is None or isinstance(actor, Member)
        return actor

    def up(self) -> list[Member]:
        return [member for name in self.world.nodes if (member := self.member(name))]

    def notes(self, kind: type[Noted], *, by: str = "") -> list[tuple[float, str, Noted]]:
        """What members said, of one kind: when, who, what."""
        return [
            (at, name, what)
            for at, name, what in self.world.noted
            if isinstance(what, kind) and by in ("", name)
        ]

    def wrongly_dead(self) -> list[tuple[float, str, Died]]:
        """Deaths of processes whose same life is up even now."""
        lives = {(member.id, member.incarnation) for member in self.up()}
        return [note for note in self.notes(Died) if (note[2].id, note[2].incarnation) in lives]

    def kill_and_vouch(self, name: str) -> None:
        """Kill it, if it is up, and have an agent (one of the bricks) say so at once."""
        member = self.member(name)
        if member is None:
            return
        life = member.incarnation
        self.world.kill(name)
        for agent in self.members[2:]:
            if (other := self.member(agent)) is not None:
                self.world.perform(agent, other.vouch(name, life))
                return

    def must(self, condition: object, problem: str) -> None:
        assert condition, self.world.told(problem)

    def everyone_is_live_in_every_table(self) -> None:
        for observer in self.up():
            self.must(not observer.table.blind, f"{observer.id} still suspects the hubs")
            seen = {peer.id: (peer.incarnation, peer.state) for peer in observer.table.peers()}
            for other in self.up():
                if other.id != observer.id:
                    expected = (other.incarnation, "live")
                    self.must(
                        seen.get(other.id) == expected,
                        f"{observer.id} sees {other.id} as {seen.get(other.id)}, not {expected}",
                    )
