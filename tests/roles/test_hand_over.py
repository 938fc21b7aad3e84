"""What one life of a brick leaves to the next: whole and recent, or nothing at all.

Method: files as bytes, cut and spoilt at every place; then real files in a directory of the test.
"""

import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roles.hand_over_file as files
from bus.clock import now, wall_s
from bus.config import Config
from roles.hand_over import VALID_S, Head, Reader, Unusable, Writer
from roles.session_messages import checksum_of
from roles.session_tables import Kept, SessionTables

HEAD = Head("c1", "brick-1", "boot", 7, 100.0, 3)
RECORDS = [
    Kept(b"a" * 16, 3, 9.5, checksum_of(b"a" * 16, 3, b"value"), b"value"),
    Kept(b"b" * 16, 1, 0.5, checksum_of(b"b" * 16, 1, b""), b""),
    Kept(b"m" * 16, 0, 60.0, b"", None),
]


def written() -> bytes:
    writer = Writer()
    return b"".join([writer.begin(HEAD), *map(writer.record, RECORDS), writer.end()])


def read(content: bytes, *, at: float = 101.0, boot_id: str = "boot") -> tuple[Head, list[Kept]]:
    reader = Reader(io.BytesIO(content).read)
    head = reader.head(cluster="c1", brick_id="brick-1", boot_id=boot_id, now=at)
    return head, list(reader.records(head))


def test_what_is_written_is_read() -> None:
    assert read(written()) == (HEAD, RECORDS)


@pytest.mark.parametrize("length", range(len(written())))
def test_half_a_file_is_unusable(length: int) -> None:  # H1
    with pytest.raises(Unusable):
        read(written()[:length])


@pytest.mark.parametrize("place", range(len(written())))
def test_any_byte_that_changed_makes_it_unusable(place: int) -> None:  # H1
    content = bytearray(written())
    content[place] ^= 0x10
    with pytest.raises(Unusable):
        read(bytes(content))


def test_anything_behind_the_end_makes_it_unusable() -> None:  # H1
    with pytest.raises(Unusable, match="damaged"):
        read(written() + b"\0")


@pytest.mark.parametrize(
    ("at", "why"), [(100.0 + VALID_S + 1, "61 s old"), (99.0, "-1 s old")], ids=["old", "future"]
)
def test_file_of_another_time_is_unusable(at: float, why: str) -> None:  # H1
    assert read(written(), at=100.0 + VALID_S)[0] == HEAD
    with pytest.raises(Unusable, match=why):
        read(written(), at=at)


def test_file_of_another_boot_or_brick_is_unusable() -> None:  # H1
    with pytest.raises(Unusable, match="before this machine was started"):
        read(written(), boot_id="other")
    for cluster, brick_id in (("c2", "brick-1"), ("c1", "brick-2")):
        reader = Reader(io.BytesIO(written()).read)
        with pytest.raises(Unusable, match="of another brick"):
            reader.head(cluster=cluster, brick_id=brick_id, boot_id="boot", now=101.0)


@given(st.binary(max_size=300), st.integers(0, 60))
def test_garbage_is_unusable_and_nothing_worse(garbage: bytes, kept: int) -> None:  # H2
    content = written()[:kept] + garbage
    if content != written():
        with pytest.raises(Unusable):
            read(content)


# Files.


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(files, "IN_MEMORY", memory)
    return Config(hubs=("tcp://127.0.0.1:7",), source="x.toml", run_directory=str(tmp_path / "run"))


def new_tables(data_incarnation: int) -> SessionTables:
    return SessionTables(data_incarnation, bytes_max=1 << 20, value_bytes_max=100, ttl_s_max=1e6)


def full_tables() -> SessionTables:
    tables = new_tables(7)
    for number in range(1200):
        value = b"%d" % number
        sid = number.to_bytes(16, "big")
        tables.store(sid, 1, value, checksum_of(sid, 1, value), ttl_s=100.0, now=now())
    tables.delete(b"m" * 16, 100.0, now())
    return tables


def test_next_life_holds_what_this_one_left_and_the_file_is_gone(config: Config) -> None:  # F1, F3
    length = files.leave(config, "brick-1", full_tables())
    [path] = Path(files.IN_MEMORY).iterdir()
    assert path == files.places(config, "brick-1")[0]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size == length
    assert files.find(config, "brick-2", new_tables) == (None, [])
    tables, complaints = files.find(config, "brick-1", new_tables)
    assert tables is not None
    assert (tables.items, tables.marks, tables.data_incarnation, complaints) == (1200, 1, 7, [])
    answer, value = tables.read((7).to_bytes(16, "big"), 1, now())
    assert (value, 90 < answer.ttl_s <= 100) == (b"7", True)
    assert not path.exists()
    assert files.find(config, "brick-1", new_tables) == (None, [])


def test_without_room_in_memory_it_is_left_on_disk(  # F2
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.IN_MEMORY.rmdir()
    files.IN_MEMORY.write_text("no directory")
    files.leave(config, "brick-1", full_tables())
    tables, complaints = files.find(config, "brick-1", new_tables)
    assert tables is not None
    assert (tables.items, complaints) == (1200, [])
    monkeypatch.setattr(files, "SPARE_BYTES", 1 << 60)
    with pytest.raises(OSError, match="no room for"):
        files.leave(config, "brick-1", full_tables())
    assert list(Path(config.run_directory).iterdir()) == []


def test_session_that_rotted_before_it_was_written_spoils_the_file(config: Config) -> None:
    tables = full_tables()
    assert tables.corrupt((9).to_bytes(16, "big"))
    files.leave(config, "brick-1", tables)
    found, [complaint] = files.find(config, "brick-1", new_tables)
    assert found is None
    assert complaint.endswith(f"session {(9).to_bytes(16, 'big').hex()} in it is damaged")


def test_what_others_could_have_written_is_not_read(config: Config, tmp_path: Path) -> None:  # F1
    path = files.places(config, "brick-1")[0]
    files.leave(config, "brick-1", full_tables())
    path.chmod(0o666)
    found, [complaint] = files.find(config, "brick-1", new_tables)
    assert (found, complaint) == (None, f"{path}: others may read or write it")
    assert not path.exists()

    files.leave(config, "brick-1", full_tables())
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    found, [complaint] = files.find(config, "brick-1", new_tables)
    assert found is None
    assert os.strerror(40) in complaint  # ELOOP


def test_what_nobody_came_back_for_is_removed(config: Config) -> None:  # F4
    old, recent, foreign = (
        files.places(config, "brick-1")[0],
        files.places(config, "brick-2")[0],
        files.IN_MEMORY / "softstate-of-another-cluster-brick-1",
    )
    for path in (old, recent, foreign):
        path.touch()
    for path in (old, foreign):
        os.utime(path, (0, wall_s() - 2 * VALID_S - 5))
    files.tidy(config)
    assert [path.exists() for path in (old, recent, foreign)] == [False, True, True]
