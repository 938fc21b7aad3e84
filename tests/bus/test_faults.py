"""Which faults are on: sound ones only, one of each kind, each over at its time by itself.

Method: `now` is written out. What the faults do to a process is in tests/sockets/test_faults.py.
"""

import math

import pytest

from bus.faults import AMOUNT_MAX, DURATION_S_MAX, Faults, spoken, unsound
from bus.messages import InjectFault


def test_fault_is_on_until_its_time_and_told_once() -> None:
    faults = Faults()
    faults.put(InjectFault("drop", 0.7, 10.0), now=100.0)
    assert [faults.amount("drop", at) for at in (100.0, 109.9, 110.0)] == [0.7, 0.7, 0.0]
    assert faults.amount("slow", 105.0) == 0.0
    assert faults.wake_at == 110.0
    assert (faults.healed(109.9), faults.healed(110.0), faults.healed(110.0)) == ([], ["drop"], [])
    assert faults.wake_at == math.inf


def test_later_fault_of_a_kind_takes_the_place_of_the_earlier() -> None:
    faults = Faults()
    faults.put(InjectFault("slow", 0.5, 100.0), now=0.0)
    faults.put(InjectFault("clock", -60.0, 100.0), now=0.0)
    faults.put(InjectFault("slow", 0.001, 5.0), now=1.0)
    assert faults.amount("slow", 5.9) == 0.001
    assert faults.amount("slow", 6.0) == 0.0
    assert faults.amount("clock", 6.0) == -60.0


def test_amount_of_nothing_heals_at_once_and_nobody_is_told_again() -> None:
    faults = Faults()
    faults.put(InjectFault("leak", 1e6, 100.0), now=0.0)
    faults.put(InjectFault("leak", 0.0, 1.0), now=1.0)
    assert faults.amount("leak", 1.0) == 0.0
    assert faults.healed(200.0) == []


@pytest.mark.parametrize(
    "ask",
    [
        InjectFault("drop", 1.1, 1.0),
        InjectFault("drop", -0.1, 1.0),
        InjectFault("slow", AMOUNT_MAX["slow"] * 1.01, 1.0),
        InjectFault("leak", math.inf, 1.0),
        InjectFault("clock", math.nan, 1.0),
        InjectFault("clock", -1e12, 1.0),
        InjectFault("flip", 1e7, 1.0),
        InjectFault("slow", 0.001, 0.0),
        InjectFault("slow", 0.001, -1.0),
        InjectFault("slow", 0.001, DURATION_S_MAX + 1),
        InjectFault("slow", 0.001, math.nan),
        InjectFault("slow", 0.001, math.inf),
    ],
    ids=str,
)
def test_what_is_past_a_bound_is_refused_with_the_bound(ask: InjectFault) -> None:
    assert "from" in unsound(ask) or "at most" in unsound(ask)


@pytest.mark.parametrize("fault", ["slow", "drop", "leak", "flip"])
def test_only_a_clock_goes_backwards(fault: str) -> None:
    assert unsound(InjectFault(fault, -1.0, 1.0))  # type: ignore[arg-type]
    assert unsound(InjectFault("clock", -1.0, 1.0)) == ""


def test_people_read_what_it_is_and_for_how_long() -> None:
    assert spoken(InjectFault("slow", 0.001, 10.0)) == "slow, 0.001 s a message, for 10 s"
    assert spoken(InjectFault("drop", 0.7, 60.0)) == "drop, 0.7 of what goes out, for 60 s"
    assert spoken(InjectFault("drop", 0.0, 60.0)) == "drop healed early"
