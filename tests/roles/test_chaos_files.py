"""A path on another process's command line means what it means there, and not to us.

Method: real processes that sleep, some in a directory or a view of the file system of their own.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from roles.chaos_files import is_same_file
from tests.waiting import until

PATIENCE_S = 10.0
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    (tmp_path / "ours").mkdir()
    made = tmp_path / "ours" / "cluster.toml"
    made.touch()
    return made


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    (tmp_path / "theirs").mkdir()
    made = tmp_path / "theirs" / "cluster.toml"
    made.touch()
    return made


@contextmanager
def sleeper(*before: str, directory: Path = Path("/")) -> Iterator[int]:
    """The pid of a process that sleeps, once it does."""
    with ExitStack() as stack:
        process = subprocess.Popen([*before, "sleep", "1000"], cwd=directory)
        stack.callback(process.wait)
        stack.callback(process.kill)
        name = Path(f"/proc/{process.pid}/comm")
        until(lambda: name.read_text() == "sleep\n", PATIENCE_S, "it sleeps")
        yield process.pid


def test_path_is_followed_from_where_that_process_stands(  # S1
    ours: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ours.parent)
    with sleeper(directory=ours.parent) as near, sleeper(directory=theirs.parent) as far:
        asked = ["cluster.toml", "../ours/cluster.toml", "../theirs/cluster.toml", str(ours)]
        assert [is_same_file(near, path, "cluster.toml") for path in asked] == [1, 1, 0, 1]
        assert [is_same_file(far, path, "cluster.toml") for path in asked] == [0, 1, 0, 1]


def test_link_to_our_file_is_our_file(ours: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(ours)
    with sleeper() as pid:
        assert is_same_file(pid, str(tmp_path / "link"), str(ours))


def test_what_is_not_there_is_nobodys(
    ours: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ours.parent)
    with sleeper(directory=ours.parent) as pid:
        assert not is_same_file(pid, "", str(ours))
        assert not is_same_file(pid, "", "")
        assert not is_same_file(pid, "", ".")
        assert not is_same_file(pid, "no-such-file", str(ours))
        assert not is_same_file(pid, "cluster.toml\0", str(ours))
        theirs.unlink()
        assert not is_same_file(pid, str(ours), str(theirs))
    assert not is_same_file(pid, str(ours), str(ours)), "it has ended"


@needs_root
def test_other_file_under_the_same_name_in_a_container_is_not_ours(  # S1
    ours: Path, theirs: Path
) -> None:
    """Neither is a link whose path, followed in our view of the file system, leads to ours."""
    link = theirs.parent / "link.toml"
    link.symlink_to(ours)
    (theirs.parent / "loop").symlink_to("/")
    there = ours.parent / "link.toml"
    swap = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'mount --bind {theirs.parent} {ours.parent}; exec "$0" "$@"',
    ]
    with sleeper(*swap) as pid:
        assert not is_same_file(pid, str(ours), str(ours))
        assert not is_same_file(pid, str(there), str(ours))
        assert not is_same_file(pid, f"{ours.parent}/loop{ours}", str(ours))
        assert is_same_file(pid, str(ours), str(theirs)), "it is the same file there"


@needs_root
def test_our_file_is_ours_in_a_container_too(ours: Path, theirs: Path) -> None:
    with sleeper("unshare", "--mount") as pid:
        assert is_same_file(pid, str(ours), str(ours))
        assert not is_same_file(pid, str(theirs), str(ours))
