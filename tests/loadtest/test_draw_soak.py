"""The picture of a soak: made from a history that is given, and looked at as files."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from loadtest.draw_soak import draw_history, gaps, split

pytestmark = pytest.mark.slow  # To import matplotlib takes a second.

FAULT: dict[str, Any] = {"what": "fault", "verb": "hang", "id": "brick-1", "detail": "stopped"}
LEG: list[dict[str, Any]] = [
    {"at_s": 0.0, "what": "leg", "seed": 7, "planned": ["brick-1", "hub-1"]},
    *(
        {"at_s": float(at), "what": "second", "offered": 10, "good": 8, "late": 1, "failed": 1}
        for at in range(9)
    ),
    {"at_s": 2.0, **FAULT},
    {"at_s": 3.0, "what": "load", "per_s": 20.0},
    {
        "at_s": 5.5,
        "what": "noticed",
        "kind": "died",
        "id": "brick-1",
        "by": "node-1",
        "reason": "silent <for> 4.0 s",
    },
    {"at_s": 6.0, "what": "over", "id": "brick-1"},
    {"at_s": 7.0, "what": "live", "id": "brick-1"},
    {"at_s": 8.0, "what": "over", "id": "hub-1"},
]


def test_each_cluster_of_a_soak_has_a_picture_on_one_page(tmp_path: Path) -> None:
    history = b"".join(msgspec.json.encode(line) + b"\n" for line in [*LEG, *LEG])
    (tmp_path / "history.jsonl").write_bytes(history)
    page = draw_history(tmp_path).read_text()
    for number in (1, 2):
        assert (tmp_path / f"soak-{number}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"soak-{number}.svg").read_text()
    assert page.count("<svg") == 2
    assert "hang brick-1: stopped" in page
    assert "died brick-1: silent &lt;for&gt; 4.0 s (by node-1)" in page


def test_gap_lasts_from_the_end_of_a_life_to_where_a_later_one_is_live() -> None:
    (leg,) = split(LEG)
    assert gaps(leg, "brick-1", 10.0) == [(6.0, 7.0)]
    assert gaps(leg, "hub-1", 10.0) == [(8.0, 10.0)]
