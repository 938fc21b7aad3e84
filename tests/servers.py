"""Real PostgreSQL and Redis servers in a temporary directory. For tests only.

    with Postgres() as postgres, Redis(cluster=True) as redis:
        psycopg.connect(host=str(postgres.directory), user=postgres.user, dbname="postgres")

Both listen on a Unix socket in their own directory, so no port is taken and the same test may run
many times at once; only a cluster needs ports. PostgreSQL refuses to run as root: as root we run
both as `nobody`. What they keep is not synced to disk, but committed as usual.

What always holds:
  V1  After the `with`, or a start that failed, neither server nor directory is left.
  V2  A server does not outlive the thread that started it, even if that is killed.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from glob import glob
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.waiting import until

START_S_MAX = 30.0
END_S_MAX = 10.0
_PATH = os.pathsep.join(
    [
        os.environ.get("PATH", ""),
        # Debian has PostgreSQL's programs, all but psql, in no one's PATH. The latest first.
        *sorted(glob("/usr/lib/postgresql/*/bin"), reverse=True),
    ]
)


def why_not(program: str, package: str) -> str:
    """Why a server cannot be started here; empty if it can. Ask it in a `skipif`."""
    for name, of in ((program, package), ("setpriv", "util-linux")):
        if shutil.which(name, path=_PATH) is None:
            return f"there is no `{name}`: apt-get install {of}"
    return ""


class Server(ABC):
    """One server from `with` to its end."""

    end_signal = signal.SIGTERM

    def __init__(self) -> None:
        as_root = os.geteuid() == 0
        self.user = "nobody" if as_root else pwd.getpwuid(os.geteuid()).pw_name
        self._as_user = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"] if as_root else []
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]:
        """Prepare the directory; the command line that serves from it in the foreground."""

    @abstractmethod
    def answers(self) -> bool: ...

    def __enter__(self) -> Self:
        self.directory = Path(tempfile.mkdtemp(prefix="softstate-"))
        try:
            if self._as_user:
                shutil.chown(self.directory, self.user, "nogroup")
            with (self.directory / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    # V2
                    self._run_as_user(f"--pdeathsig={self.end_signal.name[3:]}", *self.command()),
                    cwd=self.directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            until(self._up, START_S_MAX, "the server answers")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """V1. Ends the server by the id of its process, which is ours to reap."""
        process, self._process = self._process, None
        try:
            if process is not None and process.poll() is None:
                process.send_signal(self.end_signal)
                try:
                    process.wait(END_S_MAX)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(END_S_MAX)
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)

    def must(self, *command: str) -> str:
        """Run a program to its end, as the server's user."""
        done = subprocess.run(
            self._run_as_user(*command),
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=START_S_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{command[0]}: {done.stderr}"
        return done.stdout

    def _up(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"it ended: {(self.directory / 'log').read_text()[-2000:]}")
        return self.answers()

    def _run_as_user(self, *command: str) -> list[str]:
        return [program("setpriv"), *self._as_user, *command]


class Postgres(Server):
    """The database is `postgres`, its superuser `user`, without a password."""

    end_signal = signal.SIGINT  # Sends clients away and shuts down in order.

    @property
    def socket(self) -> str:
        return f"{self.directory}/.s.PGSQL.5432"

    def command(self) -> list[str]:
        place = f"{self.directory}/database"
        self.must(
            program("initdb"), "--pgdata", place, "--username", self.user, "--auth=trust",
            "--no-sync", "--no-locale", "--encoding=UTF8",
        )  # fmt: skip
        return [
            program("postgres"), "-D", place, "-k", str(self.directory), "-h", "",
            "-c", "fsync=off", "-c", "max_connections=20", "-c", "shared_buffers=1MB",
        ]  # fmt: skip

    def answers(self) -> bool:
        return (
            Path(self.socket).exists() and "ready to accept" in (self.directory / "log").read_text()
        )


class Redis(Server):
    """Alone, or as a cluster of one that has every slot: it refuses keys of different slots."""

    def __init__(self, *, cluster: bool = False) -> None:
        super().__init__()
        self.cluster = cluster

    @property
    def socket(self) -> str:
        return f"{self.directory}/redis"

    def command(self) -> list[str]:
        settings = ["--port", "0", "--unixsocket", self.socket, "--save", "", "--appendonly", "no"]
        if self.cluster:
            bus = free_port()
            settings += ["--cluster-enabled", "yes", "--cluster-port", str(bus)]
            settings += ["--bind", "127.0.0.1"]
        return [program("redis-server"), *settings, "--dir", str(self.directory)]

    def answers(self) -> bool:
        if self.told("PING") != "PONG":
            return False
        if not self.cluster or "cluster_state:ok" in self.told("CLUSTER", "INFO"):
            return True
        self.told("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
        return False

    def told(self, *command: str) -> str:
        """What the server says to a command; empty if it says nothing yet."""
        done = subprocess.run(
            [program("redis-cli"), "-s", self.socket, *command],
            capture_output=True,
            text=True,
            timeout=START_S_MAX,
            check=False,
        )
        return done.stdout.strip()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


def program(name: str) -> str:
    return shutil.which(name, path=_PATH) or name
