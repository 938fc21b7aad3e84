"""A real etcd of one or three members on free loopback ports, to be killed and paused. For the
benchmark and for tests.

    with Etcd(members=3, directory=path) as etcd:
        EtcdStore(etcd.endpoints, "leases/", 2.0)
        etcd.kill(etcd.leader())

Needs Debian's `etcd-server`; `PROGRAM` is None where it is missing, to skip by. A port is free when
it is chosen, not for sure when it is used: a start that fails is tried again with others.

What always holds:
  E1  After `close`, or a start that failed, no process of ours is left; nor after our own death.
"""

import http.client
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import gevent
import msgspec

from bus.clock import now
from bus.errors import NotReady

PROGRAM = shutil.which("etcd")
START_S_MAX = 30.0
STARTS_MAX = 3
ASK_S_MAX = 0.5
LOOK_S = 0.05
TAIL_CHARACTERS = 2000


class Etcd:
    def __init__(self, *, members: int, directory: Path, options: Sequence[str] = ()) -> None:
        """`options`: further arguments for each member."""
        assert members in (1, 3)
        self._directory = directory
        self._options = list(options)
        self._members: list[subprocess.Popen[bytes] | None] = [None] * members
        self._ids: dict[str, int] = {}
        for attempt in range(1, STARTS_MAX + 1):
            try:
                self._start_all(directory / f"attempt-{attempt}")
            except BaseException as error:
                self.close()  # E1
                if not isinstance(error, NotReady) or attempt == STARTS_MAX:
                    raise
            else:
                return

    @property
    def endpoints(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self._client_ports]

    def pid(self, i: int) -> int:
        member = self._members[i]
        assert member is not None, f"member {i} does not run"
        return member.pid

    def start(self, i: int) -> None:
        """Start a member, on what it left on the disk; it may take a while to answer."""
        assert self._members[i] is None, f"member {i} runs"
        peers = [f"http://127.0.0.1:{port}" for port in self._peer_ports]
        cluster = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
        command = [
            *("setpriv", "--pdeathsig", "KILL", PROGRAM or "etcd"),  # E1
            *("--name", f"m{i}", "--data-dir", str(self._directory / f"m{i}")),
            *("--listen-client-urls", self.endpoints[i]),
            *("--advertise-client-urls", self.endpoints[i]),
            *("--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i]),
            *("--initial-cluster", cluster),
            *self._options,
        ]
        with self._log(i).open("ab") as log:
            self._members[i] = subprocess.Popen(
                command, stdout=log, stderr=log, env={"PATH": os.environ["PATH"]}
            )

    def kill(self, i: int) -> None:
        """SIGKILL; returns when it is reaped."""
        self._signal(i, signal.SIGKILL)
        member, self._members[i] = self._members[i], None
        assert member is not None
        member.wait(START_S_MAX)

    def pause(self, i: int) -> None:
        self._signal(i, signal.SIGSTOP)

    def resume(self, i: int) -> None:
        self._signal(i, signal.SIGCONT)

    def leader(self) -> int:
        """Waits until those that answer agree on one that is among them."""
        return self._agreed(everybody=False)

    def settle(self) -> None:
        """Wait until all that were started answer, and agree on a leader."""
        self._agreed(everybody=True)

    def call(self, i: int, path: str, question: object) -> Any:  # noqa: ANN401 (any JSON)
        """Ask a member's gateway, past any store of ours. OSError: it did not answer."""
        port = self._client_ports[i]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ASK_S_MAX)
        try:
            connection.request("POST", path, msgspec.json.encode(question))
            return msgspec.json.decode(connection.getresponse().read())
        except (http.client.HTTPException, msgspec.DecodeError) as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()

    def close(self) -> None:
        for i, member in enumerate(self._members):
            if member is not None:
                self.kill(i)

    def __enter__(self) -> "Etcd":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start_all(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        count = len(self._members)
        ports = free_ports(2 * count)
        self._client_ports, self._peer_ports = ports[:count], ports[count:]
        for i in range(count):
            self.start(i)
        self.settle()

    def _agreed(self, *, everybody: bool) -> int:
        """The leader, once those that answer agree; `NotReady` if one ends, or it takes long."""
        deadline = now() + START_S_MAX
        while True:
            self._check_alive()
            leaders = self._leaders()
            enough = not everybody or len(leaders) == sum(
                each is not None for each in self._members
            )
            if enough and len(set(leaders)) == 1 and self._members[leaders[0]] is not None:
                return leaders[0]
            if now() > deadline:
                raise NotReady(f"no etcd leader within {START_S_MAX:g} s; see {self._directory}")
            gevent.sleep(LOOK_S)

    def _check_alive(self) -> None:
        for i, member in enumerate(self._members):
            if member is not None and member.poll() is not None:
                tail = self._log(i).read_text()[-TAIL_CHARACTERS:]
                raise NotReady(f"an etcd member ended by itself: {tail}")

    def _leaders(self) -> list[int]:
        """Whom each that answers takes for the leader, of those that know one and that we know."""
        named = []
        for i, member in enumerate(self._members):
            if member is None:
                continue
            try:
                status = self.call(i, "/v3/maintenance/status", {})
            except OSError:
                continue
            if "leader" in status:  # Left out while there is none.
                self._ids[status["header"]["member_id"]] = i
                named.append(status["leader"])
        return [self._ids[leader] for leader in named if leader in self._ids]

    def _signal(self, i: int, number: signal.Signals) -> None:
        os.kill(self.pid(i), number)

    def _log(self, i: int) -> Path:
        return self._directory / f"m{i}.log"


def free_ports(count: int) -> list[int]:
    """Bound all at once, so that they differ; then let go, for others to bind."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
