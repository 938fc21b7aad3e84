"""The pictures of `make overload`: made from figures that are given, and looked at as files."""

import csv
from pathlib import Path
from typing import Any

import pytest

from loadtest.draw_overload import write_all
from loadtest.goodput import Outcome
from loadtest.kill_and_restart import Seen

pytestmark = pytest.mark.slow  # To import matplotlib takes a second.

SWEEP: list[dict[str, Any]] = [
    {"protection": kind, "multiple": multiple, "offered_per_s": 1000 * multiple, "goodput_per_s": g}
    for kind, goodput in (("aimd", (500, 980)), ("qdelay", (500, 990)), ("off", (500, 0)))
    for multiple, g in zip((0.5, 4.0), goodput, strict=True)
]
RESULT = {"saturating_per_s": 1000.0, "goodput_4x": 1.0, "sweep": SWEEP, "aims": {}}


def test_every_picture_has_its_figures_beside_it(tmp_path: Path) -> None:
    outcome = Outcome.of(3.0, 0.1, 0.06)
    for tenth in range(30):
        outcome.done(tenth / 10, 0.002)
    outcome.failed(1.5, "StateLost")
    write_all(tmp_path, RESULT, Seen(outcome=outcome, killed_s=1.0, live_s=2.0))
    for name in ("goodput", "kill_and_restart"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text()
    with (tmp_path / "goodput.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["goodput_per_s"] for row in rows] == ["500", "980", "500", "990", "500", "0"]
    with (tmp_path / "kill_and_restart.csv").open() as file:
        by_second = list(csv.DictReader(file))
    counts = [(row["offered"], row["goodput"], row["failed"]) for row in by_second]
    assert counts == [("10", "10", "0"), ("11", "10", "1"), ("10", "10", "0")]
    assert [float(row["slowest_ms"]) for row in by_second] == pytest.approx([2.0] * 3, rel=0.05)
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "31 requests, 1 of them failed or late" in page
