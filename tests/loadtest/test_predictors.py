"""Which statistic tells which fault: of herds that do not exist, of which one is sick."""

import gzip
from pathlib import Path

import msgspec
import pytest

from bus.config_shape import PinpointConfig
from loadtest.heal_field import INJURIES
from loadtest.heal_requests import Injury, Verb
from loadtest.predictors import Predictors, main, page
from pinpoint.recording import Header, line_of
from pinpoint.samples import Tick
from tests.pinpoint.crowd import SICK, Herd

SECONDS, SICK_FROM = 90, 60


def ticks() -> list[Tick]:
    """A minute and a half of six bricks, one of which is slow in the last third."""
    herd = Herd(6, 5)
    return [herd.tick({"brick-3": SICK} if at >= SICK_FROM else None) for at in range(SECONDS)]


def injury(at: float, verb: Verb = "slow", brick: str = "brick-3") -> Injury:
    return Injury(verb, brick, 1, at)


def test_what_is_anomalous_of_the_victim_is_counted_for_its_fault() -> None:
    recorded = ticks()
    predictors = Predictors()
    predictors.add(recorded, [injury(recorded[SICK_FROM].at - 0.5)], 1.0)
    assert predictors.faults == {"slow": 1}
    found = predictors.found["slow", "service_s"]
    assert found.runs == 1
    assert found.first_s[0] < 3.0
    assert found.scores[0] > 3.5
    assert ("slow", "overhead_bytes") not in predictors.found


def test_nobody_is_healthy_for_a_while_after_an_injury_and_all_are_before() -> None:
    recorded = ticks()
    predictors = Predictors()
    predictors.add(recorded, [injury(recorded[SICK_FROM].at - 0.5)], 1.0)
    assert 0 < predictors.healthy_s <= 6 * SICK_FROM + 5 * (SECONDS - SICK_FROM)
    assert predictors.healthy["service_s"] == 0


def test_what_could_not_be_done_and_what_was_a_cure_is_no_fault() -> None:
    recorded = ticks()
    refused = msgspec.structs.replace(injury(recorded[SICK_FROM].at), refused=True)
    predictors = Predictors()
    predictors.add(recorded, [refused, injury(recorded[SICK_FROM].at, "cure")], 1.0)
    assert predictors.faults == {}


def test_page_is_made_of_recordings_packed_or_not_and_in_two_halves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = ticks()
    header = Header(
        by="pinpoint-1",
        incarnation=7,
        part=0,
        period_s=1.0,
        needed={"brick": 3},
        settings=PinpointConfig(),
    )
    lines = [line_of(header), *map(line_of, recorded)]
    (tmp_path / "pinpoint-1.ticks.older.jsonl").write_bytes(b"".join(lines[:30]))
    rest = gzip.compress(b"".join(lines[30:]))
    (tmp_path / "pinpoint-1.ticks.jsonl.gz").write_bytes(rest)
    done = [injury(recorded[SICK_FROM].at - 0.5)]
    (tmp_path / INJURIES).write_bytes(msgspec.json.encode(done))
    assert main([str(tmp_path)]) == 0
    together = Predictors()
    together.add(recorded, done, 1.0)
    printed = capsys.readouterr().out
    assert printed == page(together) + "\n"
    head, *rows = printed.splitlines()
    assert head.split() == ["statistic", "slow", "(1)", "healthy/h"]
    assert any(row.startswith("service_s  ") and " 1x " in row for row in rows)
