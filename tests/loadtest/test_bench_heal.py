"""The benchmark of healing, short and real: three faults, one each. Never a tight timing.

Method: real processes are killed, stopped and slowed down under load, with a timeout of seconds, as
this machine may stand still for as long. What must hold all the same: the dead and the hung are
found and come back, nobody else is restarted, and every session is what was written.
"""

from typing import Any

import msgspec
import pytest

from loadtest import bench_heal
from loadtest.heal_field import Load
from loadtest.report import page

pytestmark = pytest.mark.slow

TINY = bench_heal.Pace(
    runs={"crash": 1, "slow": 1, "hang": 1},
    settle_s=0.5,
    first_s=5.0,
    find_s_max=12.0,
    grace_s=3.0,
    load=Load(per_s=60.0, sessions=60, timeout_ms=5000.0),
)


def test_hurt_bricks_are_found_and_replaced_and_nobody_else() -> None:
    lines: list[str] = []
    result: dict[str, Any] = bench_heal.run(TINY, lines.append)
    assert [line.partition(" ")[0] for line in lines] == ["crash", "slow", "hang"], lines
    assert page(result), "a page for people can be made of it"
    assert msgspec.json.decode(msgspec.json.encode(result)) == result, "it is plain JSON"
    wanted = {"failed_requests", "lost_sessions", "false_restarts", "detect_s", "recover_s"}
    assert set(result) >= {*wanted, "faults", "samples", "aims", "method", "versions", "machine"}
    assert result["samples"]["losses"] == []
    assert result["samples"]["false_restarts"] == []
    rows = {row["fault"]: row for row in result["faults"]}
    for verb in ("crash", "hang"):
        assert (rows[verb]["runs"], rows[verb]["recall"]) == (1, 1.0), lines
        assert rows[verb]["recover_s"] is not None, lines
        assert result[f"detect_s_{verb}"] == rows[verb]["detect_s"]
    assert result["requests"] > 0


def test_faults_take_turns() -> None:
    runs = bench_heal.in_turn({"crash": 2, "hang": 1, "leak": 3})
    assert list(runs) == [
        (0, "crash"),
        (0, "hang"),
        (0, "leak"),
        (1, "crash"),
        (1, "leak"),
        (2, "leak"),
    ]


def test_every_fault_of_the_paper_is_in_both_paces() -> None:
    assert set(bench_heal.QUICK.runs) == set(bench_heal.FULL.runs)
    assert min(bench_heal.QUICK.runs.values()) > 0
    assert set(bench_heal.FULL.runs.values()) == {10}
