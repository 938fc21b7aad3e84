"""The key ring's file: found again after every change, kept through every damage.

Method: real files in a temporary directory; only the clock of `KeyRingFile` is ours, so that a
second passes when the test says so. Writers that come at once are threads, each with its own lock.
"""

import os
import threading
from pathlib import Path

import pytest

from bus.config import Config, parse
from bus.errors import ConfigError, CookieCorrupted
from roles.commands.node import is_on_one_machine
from roles.cookie import Cookie, encode
from roles.key_ring import Ring
from roles.key_ring_file import LOOK_S, KeyRingFile, ensure_ring, read_ring, rotate_file
from roles.testing import LocalCluster

LIFETIME_S = 30 * 86_400.0
COOKIE = Cookie(b"k" * 16, b"s" * 16, 1, 2_000_000_000, b"c" * 16, ((1, 1),))


class Time:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


class Watched:
    """A ring's file, with a clock that stands still and a record of what was reported."""

    def __init__(self, path: Path) -> None:
        self.time, self.reported = Time(), list[str]()
        self.file = KeyRingFile(path, "shop", report=self.reported.append, clock=self.time)

    def after(self, seconds: float) -> Ring:
        self.time.at += seconds
        return self.file.current()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "sessions.keys"
    rotate_file(path, LIFETIME_S)
    return path


def states(path: Path) -> list[str]:
    return [key.state for key in read_ring(path).keys]


# Writing.


def test_first_rotation_makes_the_file_and_its_directory_for_us_alone(tmp_path: Path) -> None:  # F1
    path = tmp_path / "run" / "sessions.keys"
    before_umask = os.umask(0)
    try:
        before, after = rotate_file(path, LIFETIME_S)
    finally:
        os.umask(before_umask)
    assert before is None
    assert after == read_ring(path)
    assert states(path) == ["active", "staged"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["sessions.keys"]


def test_rotation_writes_a_new_file_and_tells_what_was_there(path: Path) -> None:  # F2
    was, inode = read_ring(path), path.stat().st_ino
    before, after = rotate_file(path, LIFETIME_S)
    assert (before, after) == (was, read_ring(path))
    assert after.active.id == was.keys[1].id
    assert states(path) == ["retiring", "active", "staged"]
    assert path.stat().st_ino != inode
    assert path.stat().st_mode & 0o777 == 0o600


def test_two_rings_made_alike_have_different_keys(tmp_path: Path) -> None:
    rings = [rotate_file(tmp_path / name, LIFETIME_S)[1] for name in ("a", "b")]
    assert len({key.secret for ring in rings for key in ring.keys}) == 4


def test_damaged_ring_is_not_written_over(path: Path) -> None:  # F2
    path.write_text(path.read_text().replace('"active"', '"activ"'))
    damaged = path.read_text()
    with pytest.raises(ConfigError, match="state"):
        rotate_file(path, LIFETIME_S)
    assert path.read_text() == damaged


def test_rotations_at_once_come_one_after_the_other(path: Path) -> None:  # F2
    def rotate_five_times() -> None:
        for _ in range(5):
            rotate_file(path, LIFETIME_S)

    threads = [threading.Thread(target=rotate_five_times) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert states(path) == ["retiring"] * 20 + ["active", "staged"]


def test_what_a_writer_that_died_left_behind_is_no_hindrance(path: Path) -> None:  # F1
    left = path.with_name(".sessions.keys.new")
    left.write_text("half a r")
    left.chmod(0o666)
    rotate_file(path, LIFETIME_S)
    assert states(path) == ["retiring", "active", "staged"]
    assert path.stat().st_mode & 0o777 == 0o600
    assert not left.exists()


def test_link_to_the_ring_stays_a_link(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere" / "ring"
    link.parent.mkdir()
    link.symlink_to(path)
    rotate_file(link, LIFETIME_S)
    assert link.is_symlink()
    assert states(path) == ["retiring", "active", "staged"]


def test_directory_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file: File exists; check who owns it"):
        rotate_file(tmp_path / "file" / "ring", LIFETIME_S)


# Reading.


def test_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no key ring.*make it with `softstate keys rotate`"):
        KeyRingFile(tmp_path / "sessions.keys", "shop")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644])
def test_ring_that_others_may_touch_is_not_used(path: Path, mode: int) -> None:  # F1
    path.chmod(mode)
    with pytest.raises(ConfigError, match=f"others may read this secret; run `chmod 600 {path}`"):
        KeyRingFile(path, "shop")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "exactly one key"), (b"\xff\xfe", "not UTF-8"), (b"#" * (1 << 21), "longer than")],
)
def test_file_that_is_no_ring_is_refused_at_start(
    path: Path, content: bytes, sentence: str
) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=sentence):
        KeyRingFile(path, "shop")


def test_directory_in_its_place_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        KeyRingFile(tmp_path, "shop")


def test_change_is_seen_after_a_second_and_not_looked_for_before(path: Path) -> None:  # F4
    watched = Watched(path)
    first = watched.after(0)
    assert first.application == "shop"
    _, second = rotate_file(path, LIFETIME_S)
    assert watched.after(LOOK_S - 0.001) is first
    found = watched.after(0.001)
    assert (found.keys, found.application) == (second.keys, "shop")
    assert watched.after(LOOK_S) is found, "an unchanged file is not read again"
    assert (watched.file.failures, watched.reported) == (0, [])


def test_cookie_of_a_key_that_came_a_moment_ago_is_believed_at_once(path: Path) -> None:  # F4
    watched = Watched(path)
    rotate_file(path, LIFETIME_S)
    _, ring = rotate_file(path, LIFETIME_S)  # What signs now was not staged when we looked.
    text = encode(COOKIE, Ring(ring.keys, "shop"))
    assert watched.file.decode(text) == COOKIE
    assert watched.after(0).keys == ring.keys


def test_cookie_of_a_key_that_nobody_has_is_refused(path: Path, tmp_path: Path) -> None:
    watched = Watched(path)
    _, other = rotate_file(tmp_path / "other.keys", LIFETIME_S)
    with pytest.raises(CookieCorrupted, match="a key that is not on the ring"):
        watched.file.decode(encode(COOKIE, Ring(other.keys, "shop")))


def test_damaged_ring_changes_nothing_and_is_reported_once(path: Path) -> None:  # F3
    watched = Watched(path)
    good, text = watched.after(0), path.read_text()
    path.write_text(text[:100])
    assert [watched.after(LOOK_S) for _ in range(3)] == [good] * 3
    assert watched.file.failures == 3
    assert len(watched.reported) == 1
    assert watched.reported[0].startswith(f"the key ring stays as it was: {path}:")

    path.write_text(text)
    assert watched.after(LOOK_S) == good
    _, other = rotate_file(path, LIFETIME_S)
    assert watched.after(LOOK_S).keys == other.keys
    assert (watched.file.failures, len(watched.reported)) == (3, 1)


def test_vanished_ring_changes_nothing_and_is_found_again(path: Path) -> None:  # F3
    watched = Watched(path)
    good = watched.after(0)
    away = path.rename(path.with_name("away"))
    assert watched.after(LOOK_S) is good
    away.rename(path)
    assert watched.after(LOOK_S) is good
    path.rename(away)
    assert watched.after(LOOK_S) is good
    assert watched.file.failures == 2
    assert len(watched.reported) == 2, "it came back in between, so it is news again"


def test_ring_that_others_may_read_all_at_once_is_kept_but_reported(path: Path) -> None:  # F1, F3
    watched = Watched(path)
    good = watched.after(0)
    path.chmod(0o644)
    assert watched.after(LOOK_S) is good
    assert "others may read this secret" in watched.reported[0]
    path.chmod(0o600)
    watched.after(LOOK_S)
    assert (watched.file.failures, len(watched.reported)) == (1, 1)


def test_forged_cookies_do_not_have_a_damaged_file_read_again(path: Path, tmp_path: Path) -> None:
    """F4: anyone can name a key that nobody has, as often as they like."""
    watched = Watched(path)
    _, other = rotate_file(tmp_path / "other.keys", LIFETIME_S)
    forged = encode(COOKIE, Ring(other.keys, "shop"))
    path.write_text("damaged")
    for _ in range(10):
        with pytest.raises(CookieCorrupted):
            watched.file.decode(forged)
    assert watched.file.failures == 1


# For a cluster.


def config(directory: Path, text: str = "", run: str = "{hub = 1, brick = 2}") -> Config:
    return parse(
        f'hubs = ["tcp://127.0.0.1:7000"]\nrun_directory = "{directory}"\n'
        f"[nodes.n1]\nrun = {run}\n{text}",
        known_roles={"brick"},
    )


def test_cluster_with_bricks_gets_a_ring_once(tmp_path: Path) -> None:  # F2
    cluster = config(tmp_path / "run")
    assert ensure_ring(cluster)
    ring = read_ring(cluster.key_ring_path)
    assert not ensure_ring(cluster)
    assert read_ring(cluster.key_ring_path) == ring


def test_cluster_without_bricks_gets_none(tmp_path: Path) -> None:
    assert not ensure_ring(config(tmp_path / "run", run="{hub = 1}"))
    assert not (tmp_path / "run").exists()


def test_ring_that_the_configuration_names_is_not_made_up(tmp_path: Path) -> None:
    named = tmp_path / "mine.keys"
    assert not ensure_ring(config(tmp_path / "run", f'[sessions]\nkey_ring = "{named}"\n'))
    assert list(tmp_path.iterdir()) == []


def test_node_makes_a_ring_only_for_a_cluster_of_this_machine(tmp_path: Path) -> None:
    assert is_on_one_machine(config(tmp_path))
    elsewhere = 'address = "192.0.2.1"\n[nodes.n2]\naddress = "127.0.0.1"\n'
    several = parse(
        'hubs = ["tcp://192.0.2.1:7000"]\nallow_plain = true\n'
        f"[nodes.n1]\nrun = {{hub = 1, brick = 2}}\n{elsewhere}",
        known_roles={"brick"},
    )
    assert not is_on_one_machine(several)


@pytest.mark.slow
def test_local_cluster_with_bricks_has_a_ring_when_it_is_there() -> None:
    roles = {"brick": "tests.roles.sleeper_role:main"}
    with LocalCluster(hubs=1, nodes=1, bricks=1, preset="fast", roles=roles) as local:
        path = local.cluster.config.key_ring_path
        assert [key.state for key in read_ring(path).keys] == ["active", "staged"]
