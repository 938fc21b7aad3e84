"""The bricks a stub may use now, and which of them to ask. Decides only.

What always holds:
  B1  Chosen bricks are different ones, live, and with room; two nodes have some of them where two
      nodes have any.
  B2  A brick that began a new life starts with a new limiter.
  B3  A copy is gone only if that is known: its tables began anew, or its process is over for good.
  B4  Nobody is chosen for a new copy who is suspect, or who was full a moment ago, unless there
      are too few others; whoever has a copy is asked for it all the same.
  B5  Nobody who drains is chosen for a new copy, unless there would be fewer than `enough`.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from math import inf
from random import Random
from typing import Literal

from bus.config_shape import BRICK
from bus.peers import Peer
from roles.limiter import Limiter
from roles.sightings import Sighting

HAND_OVER_S = 60.0
"""A brick that said goodbye may leave its tables to its next life for so long."""

UNASKED_S = 1.0
"""What a brick left unanswered tells nothing of it once nothing was in flight for so long."""

SILENT_S = 30.0
"""A brick that died by silence may come back, tables and all; after so long we give up on it."""

FULL_S = 1.0
"""A brick that refused for want of memory is not chosen for new copies for so long."""

DATA_INCARNATION = "data_incarnation"
DRAINING = "draining"
"""The statistic of a brick that takes on nothing new, and serves those who have a copy there."""

PASSED_S = 0.002
"""What a brick is asked in that order it answers in that order; this much may be chance."""

LOSSY_S = 3.0
"""A brick that lost something is taken to lose more for so long."""

Fate = Literal["here", "away", "gone"]


class Brick:
    """One live brick, as a stub sees it."""

    __slots__ = (
        "data_incarnation",
        "endpoint",
        "full_until",
        "id",
        "incarnation",
        "is_draining",
        "is_suspect",
        "limiter",
        "lossy_until",
        "node",
        "number",
        "passed_at",
        "sighting",
        "tried_at",
        "unheard_since",
    )

    def __init__(self, peer: Peer, number: int, limiter: Limiter, sighting: Sighting) -> None:
        self.number = number
        self.id = peer.id
        self.incarnation = peer.incarnation
        self.endpoint = peer.endpoint
        self.node = peer.node
        self.limiter = limiter
        self.sighting = sighting
        self.data_incarnation = int(peer.statistics.get(DATA_INCARNATION, 0))
        """0: not known yet."""
        self.is_suspect = False
        self.is_draining = False
        self.full_until = 0.0
        self.passed_at = -inf
        """When the latest was asked of what it has answered, that came before nothing else."""
        self.lossy_until = -inf
        self.tried_at = -inf
        """When it was last asked, or found silent."""
        self.unheard_since = inf
        """Since when it owes an answer, and has given none; inf: it owes none."""

    @property
    def has_room(self) -> bool:
        return self.limiter.in_flight < self.limiter.limit

    def asked(self, now: float) -> None:
        """One more is in flight."""
        self.sighting.asked += 1
        if self.unheard_since == inf or (
            self.limiter.in_flight <= 1 and now > self.tried_at + UNASKED_S
        ):
            self.unheard_since = now
        self.tried_at = now

    def heard(self, now: float) -> None:
        """It has answered or refused, and that is in flight no longer."""
        self.unheard_since = now if self.limiter.in_flight else inf

    def has_lost(self, asked_at: float, now: float) -> bool:
        """Whether what it was asked then, and has not answered, came to nothing: it has answered
        what it was asked later. It is not slow, and does not hang, but loses what it gets or
        sends, and for a while its silence tells nothing."""
        if self.passed_at > asked_at + PASSED_S:
            self.lossy_until = now + LOSSY_S
        return now < self.lossy_until

    def is_stuck(self, quiet_s: float, now: float) -> bool:
        """Whether all that it may have is in flight, and nothing came of it for so long, or of its
        beacons, or it loses things: it is not slow, which its limiter would tell, but hangs or is
        dead."""
        if self.has_room:
            return False
        return self.is_suspect or now < self.lossy_until or now > self.unheard_since + quiet_s


class BrickView:
    def __init__(
        self,
        new_limiter: Callable[[], Limiter],
        random: Random,
        sighting_of: Callable[[str, int], Sighting] = Sighting,
        *,
        enough: int = 0,
    ) -> None:
        """`sighting_of` an id and an incarnation: where to count what is asked of that life.
        `enough`: how many a write needs at the least."""
        self._new_limiter = new_limiter
        self._sighting_of = sighting_of
        self._enough = enough
        self._random = random.random
        self.live: dict[int, Brick] = {}
        """By number: brick-7 is 7. The suspect are among them, as they may have copies."""
        self._order: list[Brick] = []
        """Those to choose from, shuffled a little with each choice."""
        self._avoided: list[Brick] = []
        """The rest, but for"""
        self._draining: list[Brick] = []
        """those who are to be rid of what they have."""
        self.any_full = False
        """Whether `forgive` is to be called now and then."""
        self.any_draining = False
        self._forgive_at = 0.0
        self._nodes: set[str] = set()

    def update(self, peers: Iterable[Peer]) -> None:
        """These are the live bricks now, and the suspect, and those who drain."""
        live: dict[int, Brick] = {}
        for peer in peers:
            number = number_of(peer.id)
            if number is None:
                continue
            brick = self.live.get(number)
            if brick is None or brick.incarnation != peer.incarnation:
                sighting = self._sighting_of(peer.id, peer.incarnation)
                brick = Brick(peer, number, self._new_limiter(), sighting)  # B2
            brick.data_incarnation = int(peer.statistics.get(DATA_INCARNATION, 0))
            brick.is_suspect = peer.state == "suspect"
            brick.is_draining = peer.statistics.get(DRAINING, 0.0) > 0
            live[number] = brick
        self.live = live
        self._sort()

    def note_full(self, brick: Brick, now: float) -> None:
        """It has just refused for want of memory."""
        is_news = not brick.full_until
        brick.full_until = now + FULL_S
        if is_news:
            self._sort()

    def forgive(self, now: float) -> None:
        """Those who were full a while ago may have memory again."""
        if now < self._forgive_at:
            return
        for brick in self.live.values():
            if brick.full_until <= now:
                brick.full_until = 0.0
        self._forgive_at = now + FULL_S / 2
        self._sort()

    def _sort(self) -> None:
        """B4: whom to choose from, and whom only if there are too few."""
        self._draining = [each for each in self.live.values() if each.is_draining]
        self.any_draining = bool(self._draining)
        everyone = [each for each in self.live.values() if not each.is_draining]
        self._avoided = [each for each in everyone if each.is_suspect or each.full_until]
        self._order = [each for each in everyone if not (each.is_suspect or each.full_until)]
        self._nodes = {brick.node for brick in everyone}
        self.any_full = any(brick.full_until for brick in everyone)

    def choose(
        self, count: int, kept: Sequence[Brick] = (), nodes: Collection[str] | None = None
    ) -> list[Brick]:
        """`kept`, and as many others by chance as make `count`; fewer if there are no more. With
        `nodes`, others from there only."""
        chosen = list(kept)
        of_interest = self._nodes if nodes is None else self._nodes & set(nodes)
        needs_other_node = len(of_interest) > 1 and count > 1
        order, random = self._order, self._random
        others = len(order)
        for index in range(others):
            if len(chosen) >= count:
                break
            # One step of a shuffle: what is before `index` has been looked at.
            drawn = index + int(random() * (others - index))
            brick = order[drawn]
            order[drawn] = order[index]
            order[index] = brick
            if not _is_free(brick, chosen, nodes):
                continue
            if needs_other_node and len(chosen) == count - 1 and _one_node(chosen, brick.node):
                continue  # B1: the last place is for another node.
            chosen.append(brick)
        if len(chosen) < count and (needs_other_node or self._avoided or self._draining):
            self._fill(chosen, count, nodes)
        return chosen

    def _fill(self, chosen: list[Brick], count: int, nodes: Collection[str] | None) -> None:
        """No other node has room: rather all on one node than too few; and rather those who are
        suspect or full (B4) than too few."""
        for brick in [*self._order, *self._avoided]:
            if len(chosen) >= count:
                return
            if _is_free(brick, chosen, nodes):
                chosen.append(brick)
        for brick in self._draining:
            if len(chosen) >= min(count, self._enough):
                return
            if _is_free(brick, chosen, nodes):
                chosen.append(brick)  # B5

    def fate(self, copy: tuple[int, int], peer: Peer | None, *, is_over: bool, now: float) -> Fate:
        """What became of a copy. `peer`: what is known of its brick; `is_over`: somebody reaped the
        life that we knew of it."""
        number, data_incarnation = copy
        brick = self.live.get(number)
        if brick is not None:
            known = brick.data_incarnation
            return "here" if known in (0, data_incarnation) else "gone"  # B3
        if peer is None or is_over:
            return "gone"
        silent_s = now - peer.heard_at
        match peer.state:
            case "dead":
                return "gone" if silent_s > SILENT_S else "away"
            case "offline":
                return "gone" if silent_s > HAND_OVER_S else "away"
            case _:
                return "away"


def number_of(brick_id: str) -> int | None:
    """7 of `brick-7`; None for what is no brick of ours."""
    role, _, digits = brick_id.rpartition("-")
    if role != BRICK or not digits.isdecimal() or len(digits) > 9:
        return None
    return int(digits)


def _is_free(brick: Brick, chosen: Sequence[Brick], nodes: Collection[str] | None) -> bool:
    if brick in chosen or brick.limiter.in_flight >= brick.limiter.limit:  # B1
        return False
    return nodes is None or brick.node in nodes


def _one_node(bricks: Sequence[Brick], node: str) -> bool:
    return all(brick.node == node for brick in bricks)
