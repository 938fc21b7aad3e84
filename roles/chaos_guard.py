"""Undo faults at their time, or at once when whoever made them is gone. A process of its own.

Run by its path, with the standard library alone, so that it is there in a moment and nothing of
ours can break it. `roles.chaos_keeper` talks to it: a line of JSON each.

    {"keep": 7, "for_s": 10.0, "undo": [["continue", 4711, 123456]]}   ->  ["kept", 7, ""]
    {"heal": 7, "in_s": 0.0}                                           ->  ["healed", 7, ""]

The third word of an answer is what went wrong. Processes are named by pid and start time, so that
a stranger who got the pid is left alone. Ways to undo:

    ["continue", pid, started]              let a stopped process go on
    ["limit", pid, started, soft, hard]     the length that its files may have, as it was
    ["filter", pid, started, table]         remove a table of packet filters from its network

What always holds:
  G1  What is kept is undone once: at its time, when asked, or at the end of whoever asked.
  G2  What is kept can be undone even if the process it is about has ended meanwhile.
  G3  A signal that is to end it breaks nothing off: first all is undone, and then it ends.
"""

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import time
from typing import Any

COMMAND_S_MAX = 10.0
LINE_BYTES_MAX = 1 << 20
WAIT_S_MAX = 3600.0
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"

Undo = list[Any]


class Kept:
    """One fault, and what it takes to undo it."""

    def __init__(self, for_s: float, undo: list[Undo]) -> None:
        self.until = time.monotonic() + for_s
        self._undo = [(words, _hold(words)) for words in undo]  # G2

    def heal(self) -> str:
        trouble = []
        for words, descriptor in self._undo:
            try:
                _undo(words, descriptor)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                trouble.append(f"{words[0]} {words[1]}: {error}")
            finally:
                if descriptor is not None:
                    os.close(descriptor)
        return "; ".join(trouble)


def started(pid: int) -> int:
    """When that process was started, in ticks of the kernel; 0 if there is none."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except OSError:
        return 0


def _hold(words: Undo) -> int | None:
    """A descriptor of what is to be undone, which stays what it is; None if that is gone."""
    kind, pid, start = words[:3]
    try:
        if kind == "filter":
            held = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        else:
            held = os.pidfd_open(pid)
    except OSError:
        return None
    if started(pid) != start:
        os.close(held)
        return None
    return held


def _undo(words: Undo, descriptor: int | None) -> None:
    if descriptor is None:
        return
    kind, pid, start = words[:3]
    if kind == "continue":
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)
    elif kind == "limit":
        if started(pid) == start:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (words[3], words[4]))
    elif kind == "filter":
        _remove(words[3], descriptor)
    else:
        raise ValueError(f"no such way to undo: {kind}")


def _remove(table: str, namespace: int) -> None:
    enter = [_program("nsenter"), f"--net=/proc/self/fd/{namespace}", "--", _program("nft")]
    done = subprocess.run(
        [*enter, "delete", "table", "inet", table],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S_MAX,
        pass_fds=[namespace],
        check=False,
    )
    if done.returncode != 0 and "No such file" not in done.stderr:
        raise OSError(done.stderr.strip())


def _program(name: str) -> str:
    return shutil.which(name, path=_PATH) or name


class Guard:
    def __init__(self) -> None:
        self._kept: dict[int, Kept] = {}
        self._heard = b""
        self._told_to_end, told = os.pipe()
        os.set_blocking(told, False)
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ending, _noted)  # G3: they are read between two steps.

    def run(self) -> None:
        """Until nobody asks any more, or we are to end; then everything is undone (G1)."""
        try:
            while self._hear():
                self._heal_due()
        finally:
            for number in list(self._kept):
                self._heal(number)

    def _hear(self) -> bool:
        """Wait for the next line or the next time; False at the end."""
        until = min((kept.until for kept in self._kept.values()), default=float("inf"))
        wait_s = min(max(until - time.monotonic(), 0.0), WAIT_S_MAX)
        ready = select.select([0, self._told_to_end], [], [], wait_s)[0]
        if self._told_to_end in ready:
            return False
        if not ready:
            return True
        chunk = os.read(0, 1 << 16)
        *lines, self._heard = (self._heard + chunk).split(b"\n")
        for line in lines:
            self._obey(json.loads(line))
        return bool(chunk) and len(self._heard) < LINE_BYTES_MAX

    def _obey(self, order: dict[str, Any]) -> None:
        if "keep" in order:
            self._kept[order["keep"]] = Kept(order["for_s"], order["undo"])
            _say("kept", order["keep"], "")
        elif order["heal"] in self._kept:
            self._kept[order["heal"]].until = time.monotonic() + order["in_s"]

    def _heal_due(self) -> None:
        for number, kept in list(self._kept.items()):
            if kept.until <= time.monotonic():
                self._heal(number)

    def _heal(self, number: int) -> None:
        trouble = self._kept[number].heal()
        del self._kept[number]
        _say("healed", number, trouble)


def _noted(number: int, frame: object) -> None:
    """Of a signal no more is wanted than that it is in the pipe."""


def _say(word: str, number: int, trouble: str) -> None:
    with contextlib.suppress(OSError):  # Nobody listens: what is to be done is done all the same.
        os.write(1, json.dumps([word, number, trouble]).encode() + b"\n")


if __name__ == "__main__":
    Guard().run()
