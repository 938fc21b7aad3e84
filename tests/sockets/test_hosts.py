"""The hosts that other tests are made of: connected, cut one way or both, healed, and gone.

Method: real namespaces; a `nc`-like pair in Python on each side tells what arrives.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from roles.hosts import Host, Hosts, why_not
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not() or "-")]

STRANGERS = 12
LISTEN = """
import socket
listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listener.bind(("", 5000))
print("listening", flush=True)
while True:
    print(listener.recv(99).decode(), flush=True)
"""
SAY = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), (sys.argv[1], 5000))
"""


def say(sender: Host, receiver: Host, word: str) -> None:
    sender.must([sys.executable, "-c", SAY, receiver.address, word])


def listen(host: Host, directory: Path) -> Path:
    heard = directory / f"{host.name}.txt"
    host.popen([sys.executable, "-c", LISTEN], output=heard)
    until(lambda: heard.exists() and heard.read_text() == "listening\n", 10, f"{host.name} listens")
    return heard


def pings(sender: Host, receiver: Host, heard: Path, word: str) -> None:
    """Fails unless what the sender says arrives."""
    say(sender, receiver, word)
    until(lambda: word in heard.read_text(), 5, f"{word} at {receiver.name}")


def test_hosts_reach_each_other_until_cut_one_way_then_both_then_healed(tmp_path: Path) -> None:
    with Hosts(["a", "b"]) as hosts:
        a, b = hosts["a"], hosts["b"]
        at_a, at_b = listen(a, tmp_path), listen(b, tmp_path)
        pings(a, b, at_b, "a-1")
        pings(b, a, at_a, "b-1")

        hosts.cut("a", "b", both=False)
        say(a, b, "a-2")
        pings(b, a, at_a, "b-2")

        hosts.cut("a", "b")
        say(a, b, "a-3")
        say(b, a, "b-3")

        hosts.heal()
        pings(a, b, at_b, "a-4")
        pings(b, a, at_a, "b-4")
        assert at_b.read_text().split() == ["listening", "a-1", "a-4"]
        assert at_a.read_text().split() == ["listening", "b-1", "b-2", "b-4"]


def test_hosts_touch_nothing_of_the_machine() -> None:
    before = subprocess.check_output(["ip", "-brief", "address"], text=True)
    with Hosts(["a"]) as hosts:
        assert "10.77.0.1/24" in hosts["a"].must(["ip", "-brief", "address"])
        assert subprocess.check_output(["ip", "-brief", "address"], text=True) == before
        assert subprocess.check_output(["ip", "netns", "list"], text=True) == ""


def test_two_sets_of_hosts_live_side_by_side(tmp_path: Path) -> None:
    with Hosts(["a", "b"]) as ours, Hosts(["a", "b"]) as theirs:
        at_ours, at_theirs = listen(ours["b"], tmp_path), listen_other(theirs["b"], tmp_path)
        pings(ours["a"], ours["b"], at_ours, "ours")
        pings(theirs["a"], theirs["b"], at_theirs, "theirs")
        assert "theirs" not in at_ours.read_text()


def listen_other(host: Host, directory: Path) -> Path:
    other = directory / "other"
    other.mkdir()
    return listen(host, other)


def test_end_leaves_no_process_behind_not_even_a_grandchild(tmp_path: Path) -> None:
    with Hosts(["a"]) as hosts:
        note = tmp_path / "pid"
        script = f"setsid sleep 1000 & echo $! >{note}; wait"
        hosts["a"].popen(["sh", "-c", script])
        until(lambda: note.exists() and note.read_text(), 5, "the grandchild")
        grandchild, holder = int(note.read_text()), hosts["a"].pid
        os.kill(grandchild, 0)
    until(lambda: not Path(f"/proc/{holder}").exists(), 5, "the holder's end")
    until(lambda: gone(grandchild), 5, "the grandchild's end")


def test_host_that_is_gone_costs_no_stranger_its_life() -> None:  # N3
    """The kernel gives the number of a namespace that is gone to the next one that is made."""
    host = Host("a", "")
    assert os.getsid(host.pid) == host.pid, "a Ctrl-C of the terminal would end it too soon"
    os.kill(host.pid, signal.SIGKILL)
    until(lambda: gone(host.pid), 5, "the holder's end")
    strangers: list[subprocess.Popen[bytes]] = []
    try:
        assert host.must(["true"]) == "", "it can still be entered"
        for _ in range(STRANGERS):
            strangers.append(subprocess.Popen(["unshare", "--net", "sleep", "1000"]))
            until(lambda: is_elsewhere(strangers[-1].pid), 5, "a namespace")
        host.close()
        assert {stranger.poll() for stranger in strangers} == {None}
    finally:
        for stranger in strangers:
            stranger.kill()
            stranger.wait()


def is_elsewhere(pid: int) -> bool:
    return not os.path.samefile(f"/proc/{pid}/ns/net", "/proc/self/ns/net")


def gone(pid: int) -> bool:
    """Ended, though perhaps not yet reaped by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_start_that_fails_half_way_leaves_nothing_behind() -> None:
    with pytest.raises(OSError, match=r"10\.999\.0\.1"), Hosts(["a"], network="10.999.0"):
        pass
    assert children_elsewhere() == set()


def children_elsewhere() -> set[int]:
    """Our child processes that are in another network than we are."""
    children = {int(word) for task in Path("/proc/self/task").iterdir() for word in words(task)}
    ours = os.stat("/proc/self/ns/net").st_ino
    return {child for child in children if os.stat(f"/proc/{child}/ns/net").st_ino != ours}


def words(task: Path) -> list[str]:
    return (task / "children").read_text().split()
