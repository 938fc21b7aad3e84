"""The same ticks give the same verdicts: of recordings made here, and of those that are kept.

Method: each `recordings/NAME.jsonl` (or `.jsonl.gz`) is replayed, and what is condemned compared
with `NAME.verdicts.json` beside it: who, when, and which statistics spoke against it. To add one:

    softstate pinpoint replay NAME.jsonl --json > NAME.verdicts.json

and look whether that is right. The same after a change that is to change verdicts.
"""

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from bus.config_shape import PinpointConfig
from pinpoint.judge import Judge
from pinpoint.recording import Header, line_of
from pinpoint.replay import Replayed, Said, replay
from tests.pinpoint.crowd import SICK, Herd

RECORDINGS = Path(__file__).parent / "recordings"
KEPT = sorted(path for path in RECORDINGS.iterdir() if ".jsonl" in path.name)

HEADER = Header(
    by="pinpoint-1",
    incarnation=7,
    part=0,
    period_s=1.0,
    needed={"brick": 3},
    settings=PinpointConfig(),
)


def recorded() -> list[bytes]:
    """A minute of six bricks, one of which is slow from its middle on."""
    herd = Herd(6, 5)
    ticks = [herd.tick({"brick-3": SICK} if second >= 30 else None) for second in range(60)]
    return [line_of(HEADER), *map(line_of, ticks)]


def gist(said: list[Said]) -> list[tuple[float, str, int, list[str]]]:
    return [(each.at_s, each.id, each.incarnation, each.statistics) for each in said]


def test_replay_says_what_was_said_when_it_was_recorded() -> None:
    herd, judge = Herd(6, 5), Judge(HEADER.settings, HEADER.needed)
    live = []
    for second in range(60):
        judgement = judge.tick(herd.tick({"brick-3": SICK} if second >= 30 else None))
        live += [(float(second), each.id, each.sentence) for each in judgement.condemned]
    replayed = replay(recorded())
    assert live
    assert [(each.at_s, each.id, each.reason) for each in replayed.condemned] == live
    assert (replayed.ticks, replayed.runs, replayed.seconds) == (60, 1, 59.0)


def test_parts_of_one_run_are_judged_as_one() -> None:
    lines = recorded()
    second = msgspec.structs.replace(HEADER, part=1)
    parted = [*lines[:33], line_of(second), *lines[33:]]
    assert replay(parted) == replay(lines)


def test_next_run_begins_anew() -> None:
    lines = recorded()
    later = msgspec.structs.replace(HEADER, incarnation=8)
    both = replay([*lines, line_of(later), *lines[1:20]])
    assert (both.runs, both.ticks) == (2, 79)
    assert both.condemned == replay(lines).condemned


def test_run_whose_beginning_is_lost_is_counted() -> None:
    lines = recorded()
    later = line_of(msgspec.structs.replace(HEADER, incarnation=8))
    third = line_of(msgspec.structs.replace(HEADER, part=3))
    assert replay([*lines, later, *lines[1:20]]).headless == 0
    assert replay([third, *lines[1:20]]).headless == 1
    # A disk was full for a while, or the part between is missing.
    assert replay([*lines[:20], lines[0], *lines[40:]]).headless == 1
    assert replay([*lines[:20], third, *lines[40:]]).headless == 1


def test_lines_that_cannot_be_read_are_counted_and_change_nothing() -> None:
    lines = recorded()
    spoilt = [b"nonsense\n", b"\n", *lines[:10], b"[1,2\n", *lines[10:]]
    assert replay(spoilt) == msgspec.structs.replace(replay(lines), unreadable=2)


def test_ticks_without_settings_are_not_judged() -> None:
    assert replay(recorded()[1:]) == Replayed(0, 0, 0, 60, [], [], {})


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name.partition(".")[0])
def test_kept_recording_gives_the_same_verdicts(path: Path) -> None:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        replayed = replay(file)
    beside = path.with_name(path.name.partition(".")[0] + ".verdicts.json")
    wanted = msgspec.convert(json.loads(beside.read_text()), Replayed)
    assert replayed.unreadable == 0
    assert gist(replayed.condemned) == gist(wanted.condemned)
