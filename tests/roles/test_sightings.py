"""What a process tells of the bricks it asks: counts and medians of each life, once, and bounded.

Method: bricks are an object with a sighting and a limit; the median is compared with that of all
waits, sorted.
"""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from bus.messages import PEERS_SEEN_MAX, PeerSeen, PeersSeen
from roles.limiter import Aimd, Limiter, Unlimited
from roles.sightings import ROOM_MAX, WAITS_MAX, Sighting, Sightings


@dataclass(frozen=True)
class Brick:
    sighting: Sighting
    limiter: Limiter = field(default_factory=lambda: Aimd(0.06))


def test_counts_of_all_stubs_are_told_once_with_the_room_of_all() -> None:
    sightings = Sightings(100.0)
    first, second = (Brick(sightings.of("brick-1", 5)) for _ in range(2))
    first.sighting.asked += 4
    second.sighting.asked += 1
    for wait_s in (0.5, 0.25, 1.0):
        second.sighting.answer(wait_s)
    first.sighting.refused += 1
    first.sighting.silent += 1
    assert sightings.taken([first, second], 101.5) == PeersSeen(
        "brick", 1.5, [PeerSeen("brick-1", 5, 5, 3, 1, 1, 0.5, 64.0)]
    )
    assert sightings.taken([first, second], 102.5) is None  # S2
    first.sighting.silent += 1  # It was asked in the time before.
    assert sightings.taken([first], 103.5) == PeersSeen(
        "brick", 1.0, [PeerSeen("brick-1", 5, 0, 0, 0, 1, 0.0, 32.0)]
    )


def test_what_a_life_that_is_over_owes_is_not_told_of_the_next() -> None:  # S1
    sightings = Sightings(0.0)
    before = Brick(sightings.of("brick-1", 5))
    before.sighting.asked += 3
    after = Brick(sightings.of("brick-1", 6))
    after.sighting.asked += 1
    before.sighting.silent += 3
    late = [before, after]  # One of two stubs has not heard of it yet.
    assert sightings.taken(late, 1.0) == PeersSeen(
        "brick", 1.0, [PeerSeen("brick-1", 6, 1, 0, 0, 0, 0.0, 32.0)]
    )


def test_brick_that_no_stub_uses_any_more_is_forgotten() -> None:  # S2
    sightings = Sightings(0.0)
    brick = Brick(sightings.of("brick-1", 5))
    brick.sighting.asked += 1
    assert sightings.taken([], 1.0) is None
    assert sightings.of("brick-1", 5) is not brick.sighting


def test_room_without_any_limit_is_a_number() -> None:
    sightings = Sightings(0.0)
    brick = Brick(sightings.of("brick-1", 5), Unlimited())
    brick.sighting.asked += 1
    told = sightings.taken([brick], 1.0)
    assert told is not None
    assert [row.room for row in told.seen] == [ROOM_MAX]


def test_of_too_many_those_asked_most_are_told() -> None:  # S3
    sightings = Sightings(0.0)
    bricks = [Brick(sightings.of(f"brick-{number}", 1)) for number in range(PEERS_SEEN_MAX + 9)]
    for number, brick in enumerate(bricks):
        brick.sighting.asked += number + 1
    told = sightings.taken(bricks, 1.0)
    assert told is not None
    assert [row.asked for row in told.seen] == list(range(PEERS_SEEN_MAX + 9, 9, -1))


@given(st.lists(st.floats(0, 10), min_size=1, max_size=WAITS_MAX - 1))
def test_median_of_few_answers_is_exact(waits: list[float]) -> None:
    assert _told(waits) == sorted(waits)[len(waits) // 2]


@given(
    count=st.integers(WAITS_MAX, 3000),
    slow_share=st.sampled_from([0.3, 0.5, 0.7]),
    is_sudden=st.booleans(),
)
def test_median_of_many_answers_is_near_that_of_all(  # S3
    *, count: int, slow_share: float, is_sudden: bool
) -> None:
    """Waits grow over the second, or some of them leap: the sample is of all of it."""
    slow_from = count * (1 - slow_share)
    waits = [
        number / count + (5.0 if is_sudden and number > slow_from else 0.0)
        for number in range(count)
    ]
    told_s = _told(waits)
    share = sum(wait_s <= told_s for wait_s in waits) / count
    assert abs(share - 0.5) < 0.06


def _told(waits: list[float]) -> float:
    sightings = Sightings(0.0)
    brick = Brick(sightings.of("brick-1", 1))
    for wait_s in waits:
        brick.sighting.answer(wait_s)
    told = sightings.taken([brick], 1.0)
    assert told is not None
    return told.seen[0].wait_s
