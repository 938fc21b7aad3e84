"""Run a cluster with each node in a network namespace of its own, and enter one. Wiring only.

`softstate up --hosts` makes the namespaces (`roles.hosts`), writes the configuration that fits
them (`roles.hosts_plan`) and a note of where they are, and runs `softstate up` on it as a child,
whose watchdog starts each agent inside its own. So nothing of the machine's network is touched.
When this process ends, so do the child, the cluster and the namespaces.
"""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bus.config import Config, dump
from bus.errors import ConfigError, NotReady
from bus.parent import PARENT
from roles.chaos_guard import started
from roles.hosts import Hosts, program, why_not
from roles.hosts_plan import in_hosts
from roles.invoke import environment, softstate

CONFIG_NAME = "hosts.toml"
NOTE_NAME = "hosts.json"

_ENDS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class Note(msgspec.Struct, frozen=True):
    """Where the namespaces are: what `softstate hosts` goes by."""

    config: str
    """The configuration that the cluster runs by."""
    pids: dict[str, int]
    """For each node, a process that keeps its namespace."""
    started: dict[str, int]
    """And when that was started, by which a stranger with its pid is known."""


def up_in_hosts(config: Config) -> int:
    """Serve until told to end; the value is an exit code."""
    trouble = why_not()
    if trouble:
        raise ConfigError(f"--hosts cannot be had here: {trouble}")
    adapted = in_hosts(config)
    directory = Path(config.run_directory)
    note_path, path = directory / NOTE_NAME, directory / CONFIG_NAME
    addresses = [node.address for node in adapted.nodes.values()]
    with Hosts(list(adapted.nodes), addresses=addresses) as hosts:
        pids = {name: hosts[name].pid for name in adapted.nodes}
        note = Note(str(path), pids, {name: started(pid) for name, pid in pids.items()})
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(dump(adapted), encoding="utf-8")
            note_path.write_bytes(msgspec.json.encode(note))
        except OSError as error:
            raise ConfigError(f"{directory}: {error.strerror}; set run_directory") from error
        print(_announcement(note), flush=True)
        try:
            return _run(config, note)
        finally:
            note_path.unlink(missing_ok=True)
            path.unlink(missing_ok=True)


def note_of(config: Config) -> Note:
    """Of the cluster that runs in hosts now; raises `NotReady` if none does."""
    path = Path(config.run_directory) / NOTE_NAME
    try:
        note = msgspec.json.decode(path.read_bytes(), type=Note)
    except (OSError, msgspec.MsgspecError):
        note = Note("", {}, {})
    gone = [name for name, pid in note.pids.items() if started(pid) != note.started.get(name)]
    if gone or not note.pids:
        raise NotReady(
            f"the nodes of {config.source} have no hosts of their own now; as root, "
            "`softstate up --hosts` starts a cluster that does"
        )
    return note


def enter(note: Note, node: str, command: list[str]) -> None:
    """Become that command, in the network of that node. Returns only by raising."""
    if node not in note.pids:
        raise ConfigError(f"no node {node}; there are {', '.join(note.pids)}")
    words = [*inside(note.pids[node]), *command]
    environ = {**_without_overrides(), "SOFTSTATE_CONFIG": note.config}
    try:
        os.execvpe(words[0], words, environ)
    except OSError as error:
        raise ConfigError(f"{words[0]}: {error.strerror}") from error


def inside(pid: int) -> list[str]:
    """What goes before a command that is to run in the network of that process."""
    return [program("nsenter"), f"--net=/proc/{pid}/ns/net", "--"]


def _run(config: Config, note: Note) -> int:
    """`softstate up` on it; what we are told, it is told."""
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_ENDS})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    words = ["--config", note.config, "--passing", "--namespaces", _spelt(note.pids)]
    child = subprocess.Popen(
        softstate("up", *words),
        stdin=subprocess.DEVNULL,
        env={**environment(_with_roles_of(config)), PARENT: str(os.getpid())},
        start_new_session=True,  # Ctrl-C comes to us, and we pass it on once.
    )
    try:
        while child.poll() is None:
            heard = signal.sigtimedwait({signal.SIGCHLD, *_ENDS}, 1.0)
            if heard is not None and heard.si_signo in _ENDS:
                child.terminate()
        return child.returncode
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _spelt(pids: Mapping[str, int]) -> str:
    return ",".join(f"{name}={pid}" for name, pid in pids.items())


def namespaces_of(text: str) -> dict[str, int]:
    """What `_spelt` has spelt."""
    return {name: int(pid) for name, _, pid in (each.partition("=") for each in text.split(","))}


def _with_roles_of(config: Config) -> dict[str, str]:
    """The roles of one's own lie beside the file that names them, not beside ours."""
    beside = str(Path(config.source).parent)
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return {**_without_overrides(), "PYTHONPATH": os.pathsep.join([*paths, beside])}


def _without_overrides() -> dict[str, str]:
    """What they said is in our file by now, and would be said once more, of other addresses."""
    overrides = {f"SOFTSTATE_{name}" for name in ("ADDRESS", "CONFIG", "HUBS", "KEYS")}
    return {name: value for name, value in os.environ.items() if name not in overrides}


def _announcement(note: Note) -> str:
    first = next(iter(note.pids))
    return (
        f"{len(note.pids)} hosts, by {note.config}; to look inside: "
        f"softstate hosts exec {first} -- softstate status"
    )
