"""Which of two versions with one number goes on; answers are added one by one."""

import pytest

from bus.messages import Refused
from bus.replies import Reply
from roles.brick_view import Brick
from roles.limiter import Unlimited
from roles.session_census import Census
from roles.session_messages import SessionAnswer, checksum_of
from roles.sightings import Sighting
from tests.roles.test_brick_view import peer

SID = b"0123456789abcdef"
A, B, C, D = (
    Brick(peer(number, "n1"), number, Unlimited(), Sighting(f"brick-{number}", 1))
    for number in range(1, 5)
)
MISSING = Reply(SessionAnswer("missing", 7), b"", 0.0)
DELETED = Reply(SessionAnswer("deleted", 7), b"", 0.0)


def has(value: bytes, version: int = 2, checksum: bytes = b"") -> Reply[SessionAnswer]:
    checksum = checksum or checksum_of(SID, version, value)
    return Reply(SessionAnswer("value", 7, version, 60.0, checksum), value, 0.0)


@pytest.mark.parametrize(
    ("answers", "winner"),
    [
        ({A: has(b"x"), B: has(b"y")}, b"x"),
        ({B: has(b"y"), A: has(b"x"), C: MISSING}, b"x"),
        ({A: has(b"x"), B: has(b"y"), C: has(b"y")}, b"y"),
        ({C: has(b"x"), B: has(b"y"), A: None}, b"y"),
        ({A: has(b"x"), B: has(b"y"), C: has(b"y", 3)}, None),
        ({A: has(b"x"), B: has(b"y"), C: has(b"z", 1)}, b"x"),
        ({A: has(b"x", checksum=b"wrong"), B: has(b"y")}, b"y"),
        ({A: has(b"x"), B: has(b"y"), C: DELETED}, None),
        ({A: Refused("busy"), B: None}, None),
    ],
    ids=[
        "as many: the first arbiter's",
        "in whatever order they answer",
        "most",
        "the second's if the first is silent",
        "a newer version is there",
        "an older one counts for nothing",
        "a lie counts for nothing",
        "deleted",
        "nobody has anything",
    ],
)
def test_what_most_have_goes_on(  # C1, C2
    answers: dict[Brick, Reply[SessionAnswer] | Refused | None], winner: bytes | None
) -> None:
    census = Census(SID)
    census.awaited = len(answers)
    for brick, outcome in answers.items():
        census.awaited -= 1
        census.add(brick, outcome)
    assert census.is_settled
    assert census.winner(2, [A, B]) == winner
