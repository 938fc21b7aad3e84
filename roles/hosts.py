"""Network namespaces as hosts, to be cut off from each other and healed: several machines in one.

    with Hosts(["a", "b"]) as hosts:
        hosts["a"].popen(["softstate", "node", "n1"])
        hosts.cut("a", "b", both=False)   # what a sends no longer reaches b
        hosts.heal()

Each host is a namespace with a loopback and one address, 10.77.0.1 and so on, on a bridge that has
a namespace of its own. Nothing is made in the namespace of the machine, no name is taken there, and
the same test may run many times at once. A namespace lives as long as a process in it: each is held
by a `cat` that ends when its input does, so even a test process that is killed leaves nothing.

What always holds:
  N1  After the `with`, or a start that failed, no process and no namespace of ours is left.
  N2  A cut drops packets where they arrive: the sender notices nothing, as with a broken wire.
  N3  Nobody else's process is killed: the namespace is held open for as long as we go by its
      number, which the kernel gives to a new one once the old one is gone.
"""

import functools
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import TracebackType

COMMAND_S_MAX = 30.0
HOSTS_MAX = 100
_PROGRAMS = {"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux", "unshare": "util-linux"}
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
TABLE = "softstate_cuts"
"""Of the packet filter, in each namespace that we made and in no other."""
_FILTER = f"""
table inet {TABLE} {{
  set from {{ type ipv4_addr; }}
  chain arriving {{
    type filter hook input priority 0; policy accept;
    ip saddr @from counter drop;
  }}
}}
"""


class Host:
    """One namespace. Programs started here see its network, and the files of the machine."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self._holder = subprocess.Popen(
            [program("unshare"), "--net", "sh", "-c", "echo held; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for us: whoever lives in there ends before it does.
        )
        self._started: list[subprocess.Popen[str]] = []
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "held\n":
            _, complaint = self._holder.communicate()
            raise OSError(f"no namespace: {complaint.strip()}")
        self._namespace = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)  # N3

    @property
    def pid(self) -> int:
        """A process that is there from the first moment to the last."""
        return self._holder.pid

    def run(
        self,
        command: Sequence[str],
        *,
        text: str | None = None,
        environ: dict[str, str] | None = None,
        timeout_s: float = COMMAND_S_MAX,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program to its end; what it said and its exit code are in the result."""
        return subprocess.run(
            self._inside(command),
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            env=environ,
            timeout=timeout_s,
            check=False,
        )

    def must(self, command: Sequence[str], *, text: str | None = None) -> str:
        """Run a program that has to succeed; its output."""
        done = self.run(command, text=text)
        if done.returncode != 0:
            raise OSError(f"{self.name}: {' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def popen(
        self,
        command: Sequence[str],
        *,
        output: "Path | None" = None,
        environ: dict[str, str] | None = None,
        directory: Path | None = None,
    ) -> "subprocess.Popen[str]":
        """Start a program; it is killed with the host. Its output goes to a file, or is read."""
        with ExitStack() as stack:
            stream = stack.enter_context(output.open("a")) if output else subprocess.PIPE
            process = subprocess.Popen(
                self._inside(command),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                text=True,
                env=environ,
                cwd=directory,
            )
        self._started.append(process)
        return process

    def close(self) -> None:
        """End every process in the namespace, whoever started it, and so the namespace."""
        for _ in range(10):  # N1. Again, for what was being born while we looked.
            inside = self._pids()
            if not inside:
                break
            for pid in inside:
                self._kill(pid)
            for process in (*self._started, self._holder):
                if process.pid in inside:
                    process.wait(timeout=COMMAND_S_MAX)
        for process in (*self._started, self._holder):
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait(timeout=COMMAND_S_MAX)
        os.close(self._namespace)

    def _inside(self, command: Sequence[str]) -> list[str]:
        entry = f"--net=/proc/{os.getpid()}/fd/{self._namespace}"
        return [program("nsenter"), entry, "--", *command]

    def _pids(self) -> set[int]:
        pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
        return {pid for pid in pids if self._is_in(pid)}

    def _is_in(self, pid: int) -> bool:
        try:
            theirs = os.stat(f"/proc/{pid}/ns/net")
        except OSError:
            return False  # It ended meanwhile.
        return os.path.samestat(theirs, os.fstat(self._namespace))

    def _kill(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            try:
                if self._is_in(pid):  # N3: it may have ended, and a stranger got its pid.
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)


class Hosts:
    """Several hosts on one wire, from `with` to its end."""

    def __init__(
        self, names: Sequence[str], network: str = "10.77.0", addresses: Sequence[str] = ()
    ) -> None:
        """`addresses`: of each, all in one /24; the first ones of `network` unless given."""
        assert 0 < len(names) <= HOSTS_MAX, "an address for each"
        assert len(set(names)) == len(names), "names tell hosts apart"
        numbered = [f"{network}.{number}" for number in range(1, len(names) + 1)]
        self._addresses = dict(zip(names, addresses or numbered, strict=True))
        self._hosts: dict[str, Host] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "Hosts":
        with ExitStack() as stack:  # N1: unwinds what was made, if the rest fails.
            bridge = stack.enter_context(closing(Host("bridge", "")))
            bridge.must([program("ip"), "link", "add", "wire", "type", "bridge"])
            bridge.must([program("ip"), "link", "set", "wire", "up"])
            for number, (name, address) in enumerate(self._addresses.items(), start=1):
                host = stack.enter_context(closing(Host(name, address)))
                _connect(bridge, host, f"port{number}")
                self._hosts[name] = host
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def cut(self, one: str, other: str, *, both: bool = True) -> None:
        """What `one` sends no longer reaches `other`; with `both`, nor the other way round."""
        self._drop(self[one], self[other])
        if both:
            self._drop(self[other], self[one])

    def heal(self) -> None:
        """Undo every cut."""
        for host in self._hosts.values():
            host.must([program("nft"), "flush", "set", "inet", TABLE, "from"])

    def _drop(self, sender: Host, receiver: Host) -> None:
        place = ["inet", TABLE, "from", "{", sender.address, "}"]
        receiver.must([program("nft"), "add", "element", *place])  # N2


@functools.cache
def why_not() -> str:
    """Why hosts cannot be made here; empty if they can. Ask it in a `skipif`."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program, package in _PROGRAMS.items():
        if shutil.which(program, path=_PATH) is None:
            return f"there is no `{program}`: apt-get install {package}"
    try:
        with Hosts(["a", "b"]) as hosts:
            hosts.cut("a", "b")
    except OSError as error:
        return f"network namespaces are not permitted here: {error}"
    return ""


def _connect(bridge: Host, host: Host, port: str) -> None:
    """A wire from the bridge to the host, and what the host needs to use it."""
    ip = program("ip")
    end = ["peer", "name", "eth0", "netns", str(host.pid)]
    bridge.must([ip, "link", "add", port, "type", "veth", *end])
    bridge.must([ip, "link", "set", port, "master", "wire", "up"])
    host.must([ip, "address", "add", f"{host.address}/24", "dev", "eth0"])
    host.must([ip, "link", "set", "lo", "up"])
    host.must([ip, "link", "set", "eth0", "up"])
    host.must([program("nft"), "-f", "-"], text=_FILTER)


def program(name: str) -> str:
    return shutil.which(name, path=_PATH) or name
