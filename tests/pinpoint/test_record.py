"""What Pinpoint saw, on disk.

Method: real files in a temporary directory; a full disk is /dev/full, which every Linux has, or a
limit on how long a file may be.
"""

import resource
from pathlib import Path

import msgspec
import pytest

from bus.config_shape import PinpointConfig
from pinpoint.record import RETRY_TICKS, Recorder
from pinpoint.recording import Header, line_of, read_line
from pinpoint.samples import Tick
from tests.pinpoint.crowd import CALM, brick, crowd

HEADER = Header(
    by="pinpoint-1",
    incarnation=7,
    part=0,
    period_s=1.0,
    needed={"brick": 3},
    settings=PinpointConfig(),
)


def tick(at: float) -> Tick:
    return Tick(at, list(crowd(6).values()), [], CALM, blind=False)


def read(path: Path) -> list[Header | Tick | None]:
    return [read_line(line) for line in path.read_bytes().splitlines() if line]


def part(number: int) -> Header:
    return msgspec.structs.replace(HEADER, part=number)


def test_what_is_written_is_what_was_seen_behind_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "run" / "p.ticks.jsonl"
    recorder = Recorder(path, HEADER, 1 << 20)
    recorder.write(tick(1.0))
    recorder.write(tick(2.0))
    recorder.close()
    assert read(path) == [HEADER, tick(1.0), tick(2.0)]
    assert (recorder.lost, recorder.trouble, recorder.bytes) == (0, "", path.stat().st_size)


def test_two_files_never_have_more_than_was_allowed_and_the_newest_ticks(tmp_path: Path) -> None:
    path, older = tmp_path / "p.ticks.jsonl", tmp_path / "p.ticks.older.jsonl"
    bytes_max = 2 * (len(line_of(HEADER)) + 10 * len(line_of(tick(100.0))) + 1)
    recorder = Recorder(path, HEADER, bytes_max)
    for at in range(100, 200):
        recorder.write(tick(float(at)))
        assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= bytes_max
    recorder.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == [path.name, older.name]
    assert read(older) == [part(8), *(tick(float(at)) for at in range(180, 190))]
    assert read(path) == [part(9), *(tick(float(at)) for at in range(190, 200))]
    assert recorder.lost == 0


def test_next_life_goes_on_behind_what_the_last_one_left_torn(tmp_path: Path) -> None:
    path = tmp_path / "p.ticks.jsonl"
    path.write_bytes(line_of(HEADER) + line_of(tick(1.0)) + line_of(tick(2.0))[:99])
    later = msgspec.structs.replace(HEADER, incarnation=8)
    recorder = Recorder(path, later, 1 << 20)
    recorder.write(tick(3.0))
    recorder.close()
    assert read(path) == [HEADER, tick(1.0), None, later, tick(3.0)]


def test_full_disk_costs_ticks_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "p.ticks.jsonl"
    path.symlink_to("/dev/full")
    recorder = Recorder(path, HEADER, 1 << 20)
    recorder.write(tick(1.0))
    assert (recorder.lost, recorder.trouble) == (1, "No space left on device")
    path.unlink()
    for at in range(RETRY_TICKS + 1):
        recorder.write(tick(float(at)))
    recorder.close()
    assert read(path) == [HEADER, tick(float(RETRY_TICKS))]
    assert (recorder.lost, recorder.trouble) == (1 + RETRY_TICKS, "")


def test_line_that_only_half_went_to_disk_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "p.ticks.jsonl"
    recorder = Recorder(path, HEADER, 1 << 20)
    recorder.write(tick(1.0))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 50, before[1]))
    try:
        recorder.write(tick(2.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    for at in range(RETRY_TICKS + 1):
        recorder.write(tick(float(at)))
    recorder.close()
    assert read(path) == [HEADER, tick(1.0), None, HEADER, tick(float(RETRY_TICKS))]
    assert recorder.lost == 1 + RETRY_TICKS


def test_tick_too_long_for_a_file_is_lost_alone(tmp_path: Path) -> None:
    path = tmp_path / "p.ticks.jsonl"
    recorder = Recorder(path, HEADER, 2 * (len(line_of(HEADER)) + 2 * len(line_of(tick(1.0)))))
    huge = Tick(2.0, [brick(number) for number in range(100)], [], CALM, blind=False)
    for each in (tick(1.0), huge, tick(3.0)):
        recorder.write(each)
    recorder.close()
    assert recorder.lost == 1
    assert read(path) == [HEADER, tick(1.0), tick(3.0)]


def test_nothing_is_written_where_nothing_is_to_be_kept(tmp_path: Path) -> None:
    Recorder(tmp_path / "p.ticks.jsonl", HEADER, 0).write(tick(1.0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[]", b"nonsense", b'"\xff"', b"[" * 9999, line_of(tick(1.0))[:-9], b"{\xff"],
)
def test_line_that_is_none_is_none(line: bytes) -> None:
    assert read_line(line) is None


def test_recording_of_another_format_is_not_read() -> None:
    assert read_line(line_of(msgspec.structs.replace(HEADER, softstate_ticks=2))) is None


class FullFile:
    """A disk that takes nothing, and says so once more when the file is closed."""

    def write(self, line: bytes) -> int:
        raise OSError(122, "Disk quota exceeded")

    def close(self) -> None:
        raise OSError(122, "Disk quota exceeded")


def test_disk_that_fails_again_at_the_close_costs_ticks_and_nothing_else(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "p.ticks.jsonl", HEADER, 1 << 20)
    recorder._file = FullFile()  # type: ignore[assignment]
    recorder.write(tick(1.0))
    recorder.close()
    assert (recorder.lost, recorder.trouble) == (1, "Disk quota exceeded")
