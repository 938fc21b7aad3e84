"""The example of leases does what it says: names survive the death and the end of their owners.

Method: a local cluster, and `examples/presence.py` as a user runs it: owners and a frontend, each a
process of its own, asked over HTTP. A client in the background reads every name in turn and writes
down how long each was out of reach. With the preset `fast` a killed owner's names are owned again
within 5.2 s and a second.
"""

import shutil
import signal
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import gevent
import pytest
from gevent import subprocess as green

from bus.clock import now
from bus.lease_timing import LEASE_PRESETS
from bus.parent import PARENT
from roles.invoke import environment
from roles.testing import LocalCluster
from tests.servers import free_port
from tests.waiting import until

pytest.importorskip("flask", reason="the example is a Flask service: pip install flask")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("setpriv"), reason="no setpriv: install util-linux"),
]

ROOT = Path(__file__).parent.parent.parent
FAST = LEASE_PRESETS["fast"]
BUSY_S = 2.0  # What a machine with other things to do may take beyond a bound.
NAMES = [f"user {number}" for number in range(30)]


class Service:
    """One process of the example."""

    def __init__(self, config: str, role: str, directory: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = directory / f"{role}-{self.port}.log"
        command = ["-m", "examples.presence", role, "--port", str(self.port), "--config", config]
        with self._log.open("wb") as log:
            self._process = green.Popen(
                # The example knows nothing of tests, so the kernel is asked to end it with us.
                ["setpriv", "--pdeathsig", "KILL", sys.executable, *command],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env={name: word for name, word in environment().items() if name != PARENT},
            )

    def said(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(10)

    def end(self) -> int:
        """SIGTERM; its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return int(self._process.wait(10))

    def ask(self, name: str, body: str | None = None, timeout_s: float = 10) -> str | None:
        """What is said of a name; None: nothing is known of it, or it cannot be reached."""
        url = f"{self.url}/presence/{urllib.parse.quote(name)}"
        data = None if body is None else body.encode()
        request = urllib.request.Request(url, data=data, method="GET" if data is None else "PUT")
        reading = gevent.get_hub().threadpool.spawn(_read, request, timeout_s)
        answer: str | None = reading.get()
        return answer


def _read(request: urllib.request.Request, timeout_s: float) -> str | None:
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return str(answer.read().decode())
    except OSError:  # An HTTPError is one too.
        return None


class Watch:
    """Reads all names over and over: since when, and for how long, each was not to be had."""

    def __init__(self, frontend: Service) -> None:
        self._frontend = frontend
        self._good_at = dict.fromkeys(NAMES, now())
        self.worst_s = 0.0
        self._reading = [gevent.spawn(self._read, NAMES[first::6]) for first in range(6)]

    def _read(self, names: list[str]) -> None:
        while True:
            for name in names:
                if self._frontend.ask(name) == f"{name} is here":
                    self.worst_s = max(self.worst_s, now() - self._good_at[name])
                    self._good_at[name] = now()
                gevent.sleep(0.02)

    def since(self, instant: float) -> bool:
        """Whether every name was read after that."""
        return min(self._good_at.values()) > instant

    def take_worst_s(self) -> float:
        worst_s, self.worst_s = self.worst_s, 0.0
        return worst_s

    def close(self) -> None:
        gevent.killall(self._reading)


@contextmanager
def watching(frontend: Service) -> Iterator[Watch]:
    watch = Watch(frontend)
    try:
        yield watch
    finally:
        watch.close()


def test_names_survive_the_crash_of_one_owner_and_move_from_another_that_ends(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        local = stack.enter_context(LocalCluster(preset="fast", managers=2, hubs=2, nodes=2))

        def service(role: str) -> Service:
            made = Service(local.cluster.config.source, role, tmp_path)
            stack.callback(made.kill)
            until(lambda: "serving at" in made.said(), 20, f"{role} serves: {made.said()}")
            return made

        first, second, frontend = service("owner"), service("owner"), service("frontend")
        until(lambda: "owns" in first.said() and "owns" in second.said(), 10, "both own names")
        for name in NAMES:
            assert frontend.ask(name, f"{name} is here") == f"{name} is here"
        assert [frontend.ask(name) for name in NAMES] == [f"{name} is here" for name in NAMES]
        assert frontend.ask("a stranger") is None
        theirs = [name for name in NAMES if first.ask(name)]
        assert 0 < len(theirs) < len(NAMES)

        watch = stack.enter_context(watching(frontend))
        until(lambda: watch.since(now() - 1), 10, "every name was read")
        watch.take_worst_s()
        before = frontend.said().count("is gone; putting back")
        first.kill()
        killed_at = now()
        until(
            lambda: frontend.said().count("is gone; putting back") > before, 10, "word of the loss"
        )
        until(lambda: watch.since(killed_at + 0.5), 20, "every name is back")
        assert all(second.ask(name) == f"{name} is here" for name in NAMES)
        until(lambda: watch.since(now() - 1), 10, "every name was read")
        assert watch.take_worst_s() < FAST.manager_ttl_s + 1 + BUSY_S

        third = service("owner")
        until(lambda: "owns" in third.said(), 10, "the third owns names")
        until(lambda: watch.since(now() - 0.5), 10, "every name was read")
        watch.take_worst_s()
        ending_at = now()
        assert second.end() == 0
        until(lambda: watch.since(ending_at), 10, "every name was read since")
        # To move takes a second at most; to put back what was lost with the move, not much more.
        assert watch.take_worst_s() < 1 + BUSY_S
        assert all(third.ask(name) == f"{name} is here" for name in NAMES)
        assert "Traceback" not in frontend.said() + second.said() + third.said()
