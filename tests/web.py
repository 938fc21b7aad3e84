"""A web server in a process of its own, and a browser's worth of HTTP to ask it. For tests only.

A test process is not monkey-patched, so whatever blocks here does so in a native thread.
"""

import http.client
import json
import shutil
import signal
import sys
import urllib.parse
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import gevent
from gevent import subprocess as green

from bus.parent import PARENT
from roles.invoke import environment
from tests.waiting import until

ROOT = Path(__file__).parent.parent
START_S_MAX = 30.0

NO_SETPRIV = "" if shutil.which("setpriv") else "there is no `setpriv`: apt-get install util-linux"


class WebServer:
    """A command that serves HTTP on `port`, until `kill`."""

    def __init__(
        self,
        command: Sequence[str],
        port: int,
        log: Path,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.port = port
        self._log = log
        clean = {name: word for name, word in environment().items() if name != PARENT}
        with log.open("wb") as output:
            self._process = green.Popen(
                # It knows nothing of tests, so the kernel is asked to end it with us.
                ["setpriv", "--pdeathsig", "KILL", sys.executable, *command],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                env=clean | dict(environ or {}),
            )

    def wait_for(self, word: str) -> None:
        until(lambda: word in self.said() or self.is_over, START_S_MAX, f"{word}: {self.said()}")
        assert not self.is_over, self.said()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def is_over(self) -> bool:
        return self._process.poll() is not None

    def said(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        """With the workers it may have, which a server that is told to end does end."""
        if not self.is_over:
            self._process.send_signal(signal.SIGTERM)
            with suppress(green.TimeoutExpired):
                self._process.wait(10)
        if not self.is_over:
            self._process.kill()
        self._process.wait(10)


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: str

    @property
    def json(self) -> Any:  # noqa: ANN401
        assert self.status == http.HTTPStatus.OK, self
        return json.loads(self.body)

    @property
    def cookies(self) -> list[str]:
        return self.headers.get_all("Set-Cookie") or []


class Browser:
    """Keeps cookies as a browser does, as far as one server is concerned."""

    def __init__(self, server: WebServer, cookies: Mapping[str, str] | None = None) -> None:
        self._server = server
        self.cookies = dict(cookies or {})

    def another(self) -> "Browser":
        """One with the same cookies: another tab, or a thief."""
        return Browser(self._server, self.cookies)

    def get(self, path: str, **query: str) -> Answer:
        return self.ask("GET", path, query)

    def post(self, path: str, **query: str) -> Answer:
        """What must succeed."""
        answer = self.try_post(path, **query)
        assert answer.status == http.HTTPStatus.OK, answer
        return answer

    def try_post(self, path: str, **query: str) -> Answer:
        return self.ask("POST", path, query)

    def ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Answer:
        pairs = "; ".join(f"{name}={text}" for name, text in self.cookies.items())
        sent = {"Cookie": pairs} if pairs else {}
        url = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        asking = gevent.get_hub().threadpool.spawn(
            _ask, self._server.port, method, url, sent | dict(headers or {}), body
        )
        answer = asking.get()
        assert answer is not None
        for line in answer.cookies:
            name, _, text = line.partition(";")[0].partition("=")
            if text.strip('"'):
                self.cookies[name] = text
            else:
                self.cookies.pop(name, None)
        return answer


def _ask(port: int, method: str, url: str, headers: dict[str, str], body: bytes) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, url, body, headers)
        response = connection.getresponse()
        return Answer(response.status, response.msg, response.read().decode())
    finally:
        connection.close()
