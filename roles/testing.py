"""A real cluster of real processes for tests, on free loopback ports, gone when the test is.

    with LocalCluster(hubs=2, nodes=2, bricks=4, preset="fast") as local:
        local.kill("brick-2")
        local.start("brick-2")
        local.wait_live("brick-2", timeout_s=10)

It is `softstate up` in a temporary directory, seen through `local.cluster`. Works whether or not
this process is monkey-patched. Enter it in a thread that outlives it (the main thread will do):
should this process end without leaving it, the kernel ends the cluster with that thread.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import gevent
import msgspec
import psutil

from bus.agents import order
from bus.clock import now
from bus.config import HUB, NODE, Config, KeysConfig, Preset, dump, installed_roles, load, local
from bus.errors import BusError, ConfigError, NotReady
from bus.keys import create_cluster
from bus.member import Member
from bus.messages import Refused
from bus.parent import PARENT
from bus.process_orders import StartProcess
from bus.pump import new_keypair
from roles.cluster import Cluster
from roles.inquiry import cluster_rows
from roles.invoke import environment, softstate
from roles.messages import Component

MARK = "SOFTSTATE_LOCAL_CLUSTER"
"""In the environment of every process of a local cluster: its directory."""

READY_S_MAX = 20.0
ASK_S_MAX = 5.0
END_S_MAX = 10.0  # Longer than `softstate up` needs to kill what does not end by itself.
LOOK_S = 0.02
TAIL_BYTES = 4000
OUTPUT_BYTES_MAX = 4 << 20


class LocalCluster:
    """Counts are keywords, by role, in the plural or not: `hubs=2, bricks=4, greeter=1`."""

    def __init__(
        self,
        *,
        nodes: int = 2,
        preset: Preset = "lan",
        heal: bool = True,
        keys: bool = False,
        roles: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        **counts: int,
    ) -> None:
        """`roles` adds roles of your own: name to `package.module:function`, which must be
        importable where this process would import it from. `keys`: encrypt, with new keys.
        `settings`: further keys and tables of a configuration, as in `{"store": {"kind": "etcd",
        "endpoints": […]}}`."""
        if nodes < 1:
            raise ConfigError(f"nodes={nodes}: a cluster has at least one")
        own = dict(roles or {})
        self._run = run_counts(counts, installed_roles() | own.keys())
        self._nodes, self._preset, self._heal, self._keys = nodes, preset, heal, keys
        self._roles, self._settings = own, settings
        self._directory = Path()
        self._up: subprocess.Popen[bytes] | None = None
        self._cluster: Cluster | None = None
        self._member: Member | None = None
        self._killed: dict[str, int] = {}

    @property
    def cluster(self) -> Cluster:
        """For whatever is made from a cluster: `Stub(local.cluster)`."""
        assert self._cluster is not None, "use it inside `with`"
        return self._cluster

    @property
    def _linked(self) -> Member:
        assert self._member is not None, "use it inside `with`"
        return self._member

    def __enter__(self) -> "LocalCluster":
        self._directory = Path(tempfile.mkdtemp(prefix="softstate-"))
        try:
            config = self._write_config()
            self._up = self._start_up(config)
            self._cluster = Cluster(config)
            self._member = self._cluster.member()
            self._wait(self._all_live, READY_S_MAX, "every process live")
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def components(self) -> list[Component]:
        """Every process, as an agent sees it: objects with the fields of `status --json`."""
        return cluster_rows(self._linked, ASK_S_MAX).components

    def output(self, component_id: str) -> str:
        """What that component has written so far; the end of it, if that is very long."""
        prefix = f"{component_id} | "
        lines = self._tail(OUTPUT_BYTES_MAX).splitlines()
        return "\n".join(line.removeprefix(prefix) for line in lines if line.startswith(prefix))

    def kill(self, component_id: str) -> None:
        """SIGKILL; returns when the process is reaped. A node's agent takes its node with it."""
        incarnations = self._incarnations()
        process = self._process(component_id)
        for gone in self._dies_with(component_id):
            self._killed[gone] = incarnations.get(gone, 0)
        process.kill()
        self._wait(lambda: not process.is_running(), ASK_S_MAX, f"{component_id} reaped")

    def pause(self, component_id: str) -> None:
        """SIGSTOP: it is there, and does nothing. A hang, as the others see it."""
        self._process(component_id).send_signal(signal.SIGSTOP)

    def resume(self, component_id: str) -> None:
        """SIGCONT: it goes on where it was."""
        self._process(component_id).send_signal(signal.SIGCONT)

    def start(self, component_id: str) -> None:
        """Ask the agent of its node to start it, unless it runs. Agents come back by themselves."""
        nodes = {planned.id: planned for planned in self.cluster.config.components()}
        if component_id not in nodes:
            raise ValueError(f"no component {component_id}; there are {', '.join(nodes)}")
        planned = nodes[component_id]
        if planned.role == NODE:
            return
        answer = order(self._linked, planned.node, StartProcess(component_id), ASK_S_MAX)
        if isinstance(answer, Refused):
            raise NotReady(f"{component_id} was not started: {answer.reason}, {answer.detail}")

    def wait_live(self, component_id: str, timeout_s: float = READY_S_MAX) -> Component:
        """Wait until it is live, in a later life than the one killed, if it was killed."""
        found: list[Component] = []

        def live() -> bool:
            rows = cluster_rows(self._linked, ASK_S_MAX)
            killed = self._killed.get(component_id, -1)
            found[:] = [
                row
                for row, incarnation in zip(rows.components, rows.incarnations, strict=True)
                if row.id == component_id and row.state == "live" and incarnation > killed
            ]
            return bool(found)

        self._wait(live, timeout_s, f"{component_id} live")
        return found[0]

    # Beginning and end.

    def _write_config(self) -> Config:
        config = local(
            self._directory,
            self._nodes,
            self._run,
            preset=self._preset,
            heal=self._heal,
            roles=self._roles,
            settings=self._settings,
        )
        if self._keys:
            keys = self._directory / "keys"
            create_cluster(keys, new_keypair)
            config = msgspec.structs.replace(config, keys=KeysConfig(directory=str(keys)))
        path = self._directory / "cluster.toml"
        path.write_text(dump(config), encoding="utf-8")
        return load(path, {})

    def _start_up(self, config: Config) -> "subprocess.Popen[bytes]":
        # None of the SOFTSTATE_* variables: they speak of another cluster.
        environ = {
            name: value for name, value in os.environ.items() if not name.startswith("SOFTSTATE_")
        }
        environ["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        environ[MARK] = str(self._directory)
        environ[PARENT] = str(os.getpid())
        with self._output_path.open("ab") as output:
            return subprocess.Popen(
                softstate("up", "--config", config.source, "--passing"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(environ),
                start_new_session=True,
            )

    def _all_live(self) -> bool:
        """Whether an agent sees everyone live, us too, and we see all of them."""
        try:
            rows = cluster_rows(self._linked, LOOK_S * 25)
        except NotReady:
            return False  # No agent yet.
        planned = {component.id for component in self.cluster.config.components()}
        there = {row.id for row in rows.components if row.state == "live"}
        here = {peer.id for peer in self._linked.peers()}
        return there >= {*planned, self._linked.identity.id} and here >= planned

    def _close(self) -> None:
        if self._cluster is not None and self._member is not None:
            self._cluster.release()
        self._cluster = self._member = None
        if self._up is not None:
            self._end(self._up)
            self._up = None
        shutil.rmtree(self._directory, ignore_errors=True)

    def _end(self, up: "subprocess.Popen[bytes]") -> None:
        """All of them end with `up`; if it cannot end them, the kernel does when it is killed."""
        if up.poll() is None:
            up.terminate()
            _until(lambda: up.poll() is not None, END_S_MAX)
        if up.poll() is None:
            up.kill()
            up.wait()
        for process in processes_of(self._directory):
            process.kill()
        _until(lambda: not processes_of(self._directory), END_S_MAX)

    # What is there.

    def _incarnations(self) -> dict[str, int]:
        rows = cluster_rows(self._linked, ASK_S_MAX)
        return {
            row.id: number for row, number in zip(rows.components, rows.incarnations, strict=True)
        }

    def _process(self, component_id: str) -> psutil.Process:
        """The process behind an id; only ever one of this cluster."""
        rows = {row.id: row for row in self.components()}
        row = rows.get(component_id)
        if row is None:
            raise ValueError(f"no component {component_id}; there are {', '.join(rows)}")
        if row.linked:
            raise ValueError(f"{component_id} merely links the cluster: it is never touched")
        process = _process_of(row.pid, self._directory) if row.pid else None
        if process is None:
            raise ValueError(f"{component_id} does not run (it is {row.state})")
        return process

    def _dies_with(self, component_id: str) -> list[str]:
        planned = self.cluster.config.components()
        node = next((p.node for p in planned if (p.id, p.role) == (component_id, NODE)), None)
        return [component_id] if node is None else [p.id for p in planned if p.node == node]

    def _wait(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        assert self._up is not None
        deadline = now() + timeout_s
        while True:
            try:
                if condition():
                    return
                trouble = ""
            except BusError as error:
                trouble = f" ({error})"
            if self._up.poll() is not None:
                raise NotReady(f"{what}: the cluster ended.\n{self._tail(TAIL_BYTES)}")
            if now() >= deadline:
                raise NotReady(
                    f"{what}: not within {timeout_s:.1f} s{trouble}.\n{self._tail(TAIL_BYTES)}"
                )
            gevent.sleep(LOOK_S)

    @property
    def _output_path(self) -> Path:
        return self._directory / "output"

    def _tail(self, size: int) -> str:
        with self._output_path.open("rb") as output:
            length = output.seek(0, os.SEEK_END)
            output.seek(max(0, length - size))
            return output.read(size).decode(errors="replace")


def run_counts(counts: Mapping[str, int], known: frozenset[str] | set[str]) -> dict[str, int]:
    """`{"bricks": 4}` as `{"brick": 4}`, for roles that exist."""
    run: dict[str, int] = {}
    for name, count in counts.items():
        word = name.replace("_", "-")
        role = next((guess for guess in (word, word.removesuffix("s")) if guess in known), None)
        if role is None or role == NODE:
            listed = ", ".join(sorted(known - {NODE}))
            raise ConfigError(f"{name}={count}: no such role; known are {listed}")
        if role in run:
            raise ConfigError(f"{name}={count}: {role} is given twice")
        run[role] = count
    return {HUB: 2, **run}


def processes_of(directory: Path) -> list[psutil.Process]:
    """Every process that carries the mark of the local cluster in `directory`."""
    found = (_process_of(pid, directory) for pid in psutil.pids() if pid != os.getpid())
    return [process for process in found if process is not None]


def _process_of(pid: int, directory: Path) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return process if process.environ().get(MARK) == str(directory) else None
    except psutil.Error:
        return None  # Gone, or somebody else's.


def _until(condition: Callable[[], bool], timeout_s: float) -> None:
    deadline = now() + timeout_s
    while not condition() and now() < deadline:
        gevent.sleep(LOOK_S)
