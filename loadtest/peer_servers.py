"""Real redis-server and memcached processes on free loopback ports, for benchmarks.

Debian's packages of the same names; `PROGRAMS` has None for one that is missing. Nothing is written
to disk. A port is free when it is chosen, not for sure when it is used: a start that fails is tried
again with another.

What always holds:
  R1  After `close`, or a start that failed, no process of ours is left; nor after our own death.
"""

import os
import shutil
import socket
import subprocess
import tempfile
from types import TracebackType
from typing import Literal

import gevent

from bus.clock import now
from bus.errors import NotReady
from loadtest.etcd_peer import free_ports

Kind = Literal["redis-server", "memcached"]
PROGRAMS: dict[Kind, str | None] = {
    "redis-server": shutil.which("redis-server"),
    "memcached": shutil.which("memcached"),
}
START_S_MAX = 10.0
STARTS_MAX = 3
LOOK_S = 0.02
MEMORY_MB = 256


class PeerServer:
    def __init__(self, kind: Kind) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="softstate-peer-")
        for attempt in range(1, STARTS_MAX + 1):
            (self.port,) = free_ports(1)
            self._process = self._start(kind)
            if self._answers():
                return
            self._end()
            if attempt == STARTS_MAX:
                self._directory.cleanup()
                raise NotReady(f"{kind} does not start")

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        self._end()
        self._directory.cleanup()

    def __enter__(self) -> "PeerServer":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, kind: Kind) -> "subprocess.Popen[bytes]":
        program, port = PROGRAMS[kind] or kind, str(self.port)
        if kind == "redis-server":
            command = [program, "--port", port, "--bind", "127.0.0.1", "--save", ""]
            command += ["--appendonly", "no", "--dir", self._directory.name]
        else:
            command = [program, "-l", "127.0.0.1", "-p", port, "-U", "0", "-m", str(MEMORY_MB)]
            command += ["-u", "nobody"] if os.geteuid() == 0 else []
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command],  # R1
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _answers(self) -> bool:
        deadline = now() + START_S_MAX
        while self._process.poll() is None and now() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                gevent.sleep(LOOK_S)
            else:
                return self._process.poll() is None
        return False

    def _end(self) -> None:
        self._process.kill()
        self._process.wait(START_S_MAX)
