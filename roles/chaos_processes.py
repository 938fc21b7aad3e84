"""The processes of a cluster on this machine: found, stopped, killed, and damaged. Has no opinion.

What always holds:
  P1  Before anything is done to a process it is held by a descriptor of the kernel's, and only
      then looked at; so nobody who gets its pid later is ever touched.
"""

import os
import resource
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

import gevent

from bus.clock import now
from bus.config import Config
from bus.errors import NotReady
from bus.parent import PARENT
from roles.chaos_files import is_same_file
from roles.chaos_guard import started
from roles.chaos_targets import Life, life_of

STOP_S_MAX = 5.0
STACK_BYTES = 512  # Above the stack pointer: the frames of what the process is doing now.
FLIPS_MAX = 500
FLIP_PAUSE_S = 0.01
_LOOK_S = 0.005
_LOOKS_MAX = 400


class Found(NamedTuple):
    """One process, as it was found."""

    life: Life
    pid: int
    started: int


def find(config: Config) -> dict[str, Found]:
    """Every process of that cluster on this machine, by id; of two lives the later."""
    found: dict[str, Found] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal():
            process = _look(int(entry.name), config)
            before = None if process is None else found.get(process.life.id)
            if process is not None and (before is None or before.life < process.life):
                found[process.life.id] = process
    return found


def watchdog_of(agent: Found) -> Found | None:
    """Who keeps that agent running: the parent that it was told of when it was started."""
    parent = int(_stat(agent.pid)[1] or 0)
    told = f"{PARENT}={parent}".encode()
    try:
        environ = Path(f"/proc/{agent.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    if told not in environ:
        return None
    return Found(Life(f"the watchdog of {agent.life.id}", 0), parent, started(parent))


@contextmanager
def held(process: Found) -> Iterator[int]:
    """A descriptor of that very process (P1); `NotReady` if it has ended."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        raise NotReady(f"{process.life.id} has ended") from None
    try:
        if started(process.pid) != process.started:
            raise NotReady(f"{process.life.id} has ended")
        yield descriptor
    finally:
        os.close(descriptor)


def send(process: Found, number: signal.Signals) -> None:
    with held(process) as descriptor:
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            raise NotReady(f"{process.life.id} has ended") from None
        except PermissionError:
            raise NotReady(f"{process.life.id} belongs to another user") from None


def stop(process: Found) -> None:
    """Returns when all of it stands still, which is a while after the signal."""
    send(process, signal.SIGSTOP)
    deadline = now() + STOP_S_MAX
    while is_running(process) and not _stands(process.pid):
        if now() >= deadline:
            raise NotReady(f"{process.life.id} did not stop within {STOP_S_MAX:g} s")
        gevent.sleep(_LOOK_S)


def check_goes_on(process: Found) -> None:
    """Raises `NotReady` if somebody has stopped it."""
    if _stat(process.pid)[0] in ("T", "t"):
        raise NotReady(f"{process.life.id} is stopped as it is; wait until that fault is over")


def wait_gone(processes: Iterable[Found]) -> None:
    """Returns when they have ended, or after a while."""
    deadline = now() + STOP_S_MAX
    while any(is_running(process) for process in processes) and now() < deadline:
        gevent.sleep(_LOOK_S)


def is_running(process: Found) -> bool:
    """Whether it is there, and has not ended without being reaped."""
    return started(process.pid) == process.started and _stat(process.pid)[0] not in ("Z", "X")


def limit_files(process: Found, bytes_max: int) -> tuple[int, int]:
    """Let no file of it grow past that; what the limits were."""
    with held(process):
        try:
            before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (bytes_max, before[1]))
        except PermissionError:
            raise NotReady(f"{process.life.id} belongs to another user") from None
    return before


def file_limits(process: Found) -> tuple[int, int]:
    with held(process):
        return resource.prlimit(process.pid, resource.RLIMIT_FSIZE)


def spoil_stack(process: Found, random: Random, flips_max: int = FLIPS_MAX) -> int:
    """Flip bits near its stack pointer, one by one, until it ends; how many it were."""
    for number in range(1, flips_max + 1):
        try:
            _flip_one(process, random)
        except (NotReady, ProcessLookupError):
            return number - 1
        except OSError as error:
            raise NotReady(
                f"the memory of {process.life.id} cannot be written ({error.strerror}); "
                "run this as root"
            ) from None
        deadline = now() + FLIP_PAUSE_S
        while now() < deadline:
            if not is_running(process):
                return number
            gevent.sleep(_LOOK_S)
    return flips_max


def _flip_one(process: Found, random: Random) -> None:
    with held(process):
        place = _stack_pointer(process) + random.randrange(STACK_BYTES)
        memory = os.open(f"/proc/{process.pid}/mem", os.O_RDWR)
        try:
            if started(process.pid) != process.started:  # P1: what was opened is what was held.
                raise NotReady(f"{process.life.id} has ended")
            byte = os.pread(memory, 1, place)
            if byte:
                os.pwrite(memory, bytes([byte[0] ^ 1 << random.randrange(8)]), place)
        finally:
            os.close(memory)


def _stack_pointer(process: Found) -> int:
    """As the kernel tells it of a process that waits, which every one of ours soon does."""
    for _ in range(_LOOKS_MAX):
        words = Path(f"/proc/{process.pid}/syscall").read_text().split()
        if len(words) >= 3:
            return int(words[-2], 16)
        if not is_running(process):
            break
        gevent.sleep(_LOOK_S)
    raise NotReady(f"{process.life.id} never waits")


def _look(pid: int, config: Config) -> Found | None:
    begun = started(pid)
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return None

    def same(path: str) -> bool:
        return is_same_file(pid, path, config.source)

    life = life_of([os.fsdecode(word) for word in words], config, same)
    if life is None or begun == 0 or started(pid) != begun:
        return None
    process = Found(life, pid, begun)
    return process if is_running(process) else None


def _stat(pid: int) -> tuple[str, str]:
    """Its state, in the letters of the kernel, and its parent."""
    with suppress(OSError):
        words = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return words[0], words[1]
    return "X", "0"


def _stands(pid: int) -> bool:
    tasks = [path.read_text(errors="replace") for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(task.rpartition(")")[2].split()[0] in ("T", "t", "Z", "X") for task in tasks)
