"""Goal: Tarzan counts what it says it counts, and finds what its docstring says it finds.

Method: hypothesis compares with strings, counted anew each time; then series with and without a
fault, of six components.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pinpoint import patterns
from pinpoint.patterns import CODES, HISTORY, LENGTH, SCAN, SCORED_MAX, VARIANCE_MIN, Patterns

ZONE = 1.0
SLOPES = {"D": -2.0, "F": 0.0, "U": 2.0}


def counted(text: str, positions: int) -> Counter[str]:
    """How often each word ends in the newest positions that have a word of full length."""
    last = range(LENGTH, len(text) + 1)[-positions:]
    return Counter(text[end - length : end] for end in last for length in range(LENGTH + 1))


def expected(word: str, count: Counter[str]) -> float:
    positions = count[""]
    if count[word]:
        return SCAN * count[word] / positions
    if len(word) == LENGTH:
        pairs = [count[word[at : at + 2]] for at in range(LENGTH - 1)]
        if all(pairs):
            inner = math.prod(count[letter] for letter in word[1:-1])
            return SCAN / positions * math.prod(pairs) / inner
    return SCAN * math.prod(count[letter] / positions for letter in word)


def slowly(text: str, others: list[str]) -> float:
    peers: Counter[str] = sum((counted(other, HISTORY) for other in others), Counter())
    seen = counted(text, SCAN)
    worst = 0.0
    for word in set(seen) - {""}:
        mean = expected(word, peers)
        variance = max(mean * (1 - mean / SCAN), VARIANCE_MIN)
        worst = max(worst, abs(seen[word] - mean) / math.sqrt(variance))
    return worst


def fed(texts: list[str]) -> tuple[Patterns, dict[str, object]]:
    found = Patterns(ZONE)
    lives: dict[str, object] = {f"brick-{number}": object() for number in range(len(texts))}
    for number, text in enumerate(texts):
        for letter in text:
            found.feed(f"brick-{number}", lives[f"brick-{number}"], SLOPES[letter])
    return found, lives


texts = st.lists(
    st.text("DFU", min_size=SCAN + LENGTH, max_size=HISTORY + 60), min_size=3, max_size=5
)


@settings(max_examples=40, deadline=None)
@given(texts)
def test_scores_are_those_of_counting_substrings(written: list[str]) -> None:
    found, lives = fed(written)
    found.look(lives)
    scores = {each: found.histories[each].surprise.score for each in lives}
    assert scores == pytest.approx(
        {
            f"brick-{number}": slowly(text, written[:number] + written[number + 1 :])
            for number, text in enumerate(written)
        }
    )


@settings(max_examples=40, deadline=None)
@given(texts, st.data())
def test_totals_are_the_sum_of_those_that_are_kept(written: list[str], data: st.DataObject) -> None:
    found, lives = fed(written)
    gone = data.draw(st.sets(st.sampled_from(sorted(lives))))
    reborn = {each: object() if each in gone else life for each, life in lives.items()}
    found.keep(reborn)
    assert set(found.histories) == set(lives) - gone
    kept = found.histories.values()
    assert found.totals == [sum(each.counts[code] for each in kept) for code in range(CODES)]


Series = Callable[[Random], Iterator[float]]


def trembling(draw: Random) -> Iterator[float]:
    while True:
        yield draw.gauss(0, 10)


def saw_tooth(draw: Random) -> Iterator[float]:
    at = draw.randrange(8)
    while True:
        at += 1
        yield -60.0 if at % 8 < 2 else 10.0 + draw.gauss(0, 2)


def first_found(usual: Series, fault: float, seed: int) -> tuple[int | None, int]:
    """After how many ticks the one whose slope is `fault` from then on is found, if within 60;
    and how often somebody else was."""
    draw = Random(seed)
    lives: dict[str, object] = {f"brick-{number}": object() for number in range(6)}
    series = {each: usual(draw) for each in lives}
    found, others = Patterns(ZONE), 0
    for tick in range(260):
        for each, slopes in series.items():
            ill = each == "brick-0" and tick >= 200
            found.feed(each, lives[each], fault if ill else next(slopes))
        odd = {each for each, _ in found.look(lives)[0]}
        others += len(odd - {"brick-0"})
        if tick >= 200 and "brick-0" in odd:
            return tick - 200, others
    return None, others


@pytest.mark.parametrize(
    ("usual", "fault"), [(trembling, 0.0), (trembling, 10.0), (saw_tooth, 0.0), (saw_tooth, 10.0)]
)
def test_an_unusual_order_of_usual_slopes_is_found(usual: Series, fault: float) -> None:
    found = [first_found(usual, fault, seed) for seed in range(3)]
    assert all(after is not None and after <= 40 for after, _ in found)
    assert sum(others for _, others in found) <= 3 * 6 * 260 // 50


def test_saw_teeth_out_of_phase_are_alike() -> None:
    assert all(
        first_found(saw_tooth, -60.0 if seed < 0 else 10.0, seed)[1] < 30 for seed in range(3)
    )


def test_a_crowd_is_scored_in_turn() -> None:
    draw = Random(5)
    written = ["".join(draw.choices("DFU", k=SCAN + LENGTH)) for _ in range(2 * SCORED_MAX)]
    found, lives = fed(written)
    found.look(lives)
    scored = {each for each in lives if found.histories[each].surprise is not patterns.NONE}
    assert len(scored) == SCORED_MAX
    found.look(lives)
    assert all(found.histories[each].surprise is not patterns.NONE for each in lives)


def test_two_histories_say_nothing() -> None:
    found, lives = fed(["U" * 100, "D" * 100])
    assert found.look(lives) == ([], 0)
