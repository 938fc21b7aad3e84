"""`softstate pinpoint`: what it prints, and what it says of what is no recording.

Method: the command itself on files in a temporary directory, and once as `python -m pinpoint`.
"""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bus.errors import BusError, ConfigError
from pinpoint.command import main
from tests.pinpoint.test_replay import recorded

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "p.ticks.jsonl"
    path.write_bytes(b"".join(recorded()))
    return path


def test_replay_says_who_when_and_why(recording: Path, capsys: Capture) -> None:
    assert main(["replay", str(recording)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "60 ticks of 59 s"
    assert "s  condemned  brick-3: unlike its peers for 3 of the last 5 s: " in lines[1]


def test_replay_for_programs_is_one_object(recording: Path, capsys: Capture) -> None:
    assert main(["replay", str(recording), "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["ticks"] == 60
    assert {each["id"] for each in replayed["condemned"]} == {"brick-3"}


def test_packed_recording_and_its_parts_are_read_alike(recording: Path, capsys: Capture) -> None:
    lines = recorded()
    first, second = recording.with_name("1.jsonl.gz"), recording.with_name("2.jsonl")
    first.write_bytes(gzip.compress(b"".join(lines[:40])))
    second.write_bytes(lines[0].replace(b'"part":0', b'"part":1') + b"".join(lines[40:]))
    main(["replay", str(recording)])
    whole = capsys.readouterr().out
    main(["replay", str(first), str(second)])
    assert capsys.readouterr().out == whole


def halved(recording: Path) -> None:
    """As Pinpoint does when one file is long enough: right before the verdict."""
    header, *ticks = recorded()
    recording.with_name("p.ticks.older.jsonl").write_bytes(b"".join([header, *ticks[:32]]))
    recording.write_bytes(header.replace(b'"part":0', b'"part":1') + b"".join(ticks[32:]))


def test_older_half_is_read_first_by_itself_and_in_any_order(
    recording: Path, capsys: Capture
) -> None:
    main(["replay", str(recording)])
    whole = capsys.readouterr().out
    halved(recording)
    older = str(recording.with_name("p.ticks.older.jsonl"))
    for files in ([str(recording)], [older, str(recording)], [str(recording), older]):
        main(["replay", *files])
        assert capsys.readouterr().out == whole


def test_packed_older_half_is_read_as_well(recording: Path, capsys: Capture) -> None:
    main(["replay", str(recording)])
    whole = capsys.readouterr().out
    halved(recording)
    for path in (recording, recording.with_name("p.ticks.older.jsonl")):
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    main(["replay", f"{recording}.gz"])
    assert capsys.readouterr().out == whole


def test_recording_that_begins_in_the_middle_says_so(recording: Path, capsys: Capture) -> None:
    halved(recording)
    main(["replay", "--only", str(recording)])
    first, second = capsys.readouterr().out.splitlines()[:2]
    assert (first, second) == (
        "28 ticks of 27 s",
        "it begins in the middle of a run: what Pinpoint had seen before is not here, so at first "
        "verdicts may be others than it gave",
    )
    main(["replay", "--only", "--json", str(recording)])
    assert json.loads(capsys.readouterr().out)["headless"] == 1
    main(["replay", "--json", str(recording)])
    assert json.loads(capsys.readouterr().out)["headless"] == 0


def test_recording_without_a_verdict_says_so(recording: Path, capsys: Capture) -> None:
    recording.write_bytes(b"".join(recorded()[:10]) + b"torn")
    main(["replay", str(recording)])
    assert capsys.readouterr().out == "9 ticks of 8 s\n1 lines are not readable\nno verdict\n"


@pytest.mark.parametrize("name", ["missing.jsonl", "text.jsonl", "not-packed.jsonl.gz", "."])
def test_what_is_no_recording_is_one_sentence(tmp_path: Path, name: str) -> None:
    for text in ("text.jsonl", "not-packed.jsonl.gz"):
        (tmp_path / text).write_text("hello\n")
    with pytest.raises(ConfigError, match=name):
        main(["replay", str(tmp_path / name)])


def test_option_first_means_the_role(tmp_path: Path) -> None:
    with pytest.raises(BusError, match=r"missing\.toml"):
        main(["--id", "pinpoint-1", "--config", str(tmp_path / "missing.toml")])


@pytest.mark.slow
def test_module_is_the_command(recording: Path, capsys: Capture) -> None:
    words = [sys.executable, "-m", "pinpoint", "replay", str(recording)]
    said = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout
    main(["replay", str(recording)])
    assert said == capsys.readouterr().out
