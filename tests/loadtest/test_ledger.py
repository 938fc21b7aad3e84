"""What a session may hold, told in a few writes and reads."""

import pytest

from loadtest.ledger import Ledger, number_of, value_of


def written(ledger: Ledger, *, done: bool) -> bytes:
    number = ledger.next_number()
    (ledger.done if done else ledger.in_doubt)(number)
    return value_of(ledger.key, number, 100 + number)


def test_only_the_last_acknowledged_write_may_be_read() -> None:
    ledger = Ledger("alice")
    first, second = written(ledger, done=True), written(ledger, done=True)
    assert [ledger.is_right(value) for value in (first, second)] == [False, True]


def test_write_in_doubt_may_be_read_or_not_until_another_is_acknowledged() -> None:
    ledger = Ledger("alice")
    first, doubtful = written(ledger, done=True), written(ledger, done=False)
    assert [ledger.is_right(value) for value in (first, doubtful, doubtful)] == [True] * 3
    assert not ledger.is_right(first), "it does not go back"
    last = written(ledger, done=True)
    assert [ledger.is_right(value) for value in (doubtful, last)] == [False, True]


@pytest.mark.parametrize("number", [1, 255, 256, 70_000])
@pytest.mark.parametrize("size", [1, 30, 1024, 8192])
def test_value_says_which_it_is_unless_a_bit_of_it_is_wrong(number: int, size: int) -> None:
    value = value_of("alice", number, size)
    assert number_of("alice", value) == number
    assert number_of("bob", value) is None
    for place in {0, 6, len(value) // 2, len(value) - 1}:
        spoilt = bytearray(value)
        spoilt[place] ^= 1
        assert number_of("alice", bytes(spoilt)) != number
    assert number_of("alice", value[:-1]) is None
    assert [number_of("alice", each) for each in (b"", b"alice", b"alice x 1 ")] == [None] * 3
