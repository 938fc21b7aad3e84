"""What an agent keeps for its next life comes back; what is damaged costs no more than itself."""

from pathlib import Path

import pytest

from bus.identity import INCARNATION_MAX
from roles.agent_states import Hold
from roles.incarnations import recall, recall_holds, remember, remember_holds

HOLDS = [
    Hold("brick-1", "disabled", 1_000),
    Hold("brick-2", "offline", 2_000, "3 restarts in a row did not help", 602_000),
]


def test_what_was_remembered_is_recalled(tmp_path: Path) -> None:
    path = tmp_path / "new" / "incarnations-n1.json"
    assert recall(path) == ({}, "")
    assert remember(path, {"brick-1": 5000, "hub-1": 1}) == ""
    assert recall(path) == ({"brick-1": 5000, "hub-1": 1}, "")
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_numbers_that_cannot_be_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "incarnations-n1.json"
    path.write_text(
        f'{{"hub-1": 7, "a-1": {2**64 + 2}, "a-2": {INCARNATION_MAX}, "a-3": -1, "a-4": true, '
        '"a-5": "1", "a-6": 1.5, "a-7": null}'
    )
    assert recall(path) == ({"hub-1": 7}, f"{path} has entries that cannot be: 7 are left out")


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"brick-1": 1', b"\xff", b"[" * 10_000])
def test_damage_is_told_and_no_reason_not_to_begin(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "of-n1.json"
    path.write_bytes(content)
    assert recall(path) == ({}, f"{path} is damaged; incarnations go by the clock")
    if content != b"[1]":
        assert recall_holds(path) == ([], f"{path} is damaged; nothing is held any more")


def test_what_is_held_is_recalled(tmp_path: Path) -> None:
    path = tmp_path / "holds-n1.json"
    assert recall_holds(path) == ([], "")
    assert remember_holds(path, HOLDS) == ""
    assert recall_holds(path) == (HOLDS, "")
    assert remember_holds(path, []) == ""
    assert recall_holds(path) == ([], "")


def test_holds_that_cannot_be_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "holds-n1.json"
    good = '{"id": "brick-1", "why": "disabled", "since_ms": 1000, "of a later version": 1}'
    path.write_text(
        f'[7, {good}, {{}}, {{"id": "brick-2", "why": "so", "since_ms": 1}}, '
        f'{{"id": "brick-3", "why": "offline", "since_ms": {2**80}}}]'
    )
    assert recall_holds(path) == (HOLDS[:1], f"{path} has entries that cannot be: 4 are left out")


def test_what_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "holds-n1.json"
    assert recall_holds(path) == ([], f"cannot read {path}: Not a directory")
    assert remember_holds(path, HOLDS) == f"cannot write {path}: File exists"
    assert recall(tmp_path) == ({}, f"cannot read {tmp_path}: Is a directory")
    assert remember(tmp_path, {}) == f"cannot write {tmp_path}: Is a directory"
