"""A real browser for tests: Debian's Chromium without a window, driven through its own pipe.

    with Chromium(directory) as chromium:
        chromium.open("http://127.0.0.1:8000")
        chromium.click("#login")

It speaks the DevTools protocol over two descriptors (`--remote-debugging-pipe`): JSON, each ended
by a zero byte. So neither a port is taken nor a driver needed. What blocks does so in a native
thread.
"""

import base64
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import gevent

from bus.clock import now
from tests.waiting import until

PROGRAM = shutil.which("chromium")
WHY_NOT = "" if PROGRAM else "there is no `chromium`: apt-get install chromium"

ANSWER_S_MAX = 60.0
# Descriptors 3 and 4 are where it looks for its orders and writes its answers.
_LAUNCH = """
import os, sys
orders, answers = int(sys.argv[1]), int(sys.argv[2])
os.dup2(orders, 3); os.dup2(answers, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_OPTIONS = """--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run
    --disable-extensions --disable-background-networking --disable-component-update
    --disable-sync --remote-debugging-pipe about:blank"""


class Chromium:
    """One browser with one page, from `with` to its end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._orders = self._answers = -1
        self._received = b""
        self._last_id = 0
        self._session = ""

    def __enter__(self) -> Self:
        try:
            self._start()
            targets = self._ask("Target.getTargets")["targetInfos"]
            page = next(target for target in targets if target["type"] == "page")
            attached = self._ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)
            self._session = attached["sessionId"]
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def open(self, url: str) -> None:
        self._ask("Page.navigate", url=url)
        self._wait_loaded(url)

    def text(self, selector: str) -> str | None:
        """What stands there; None if there is no such element."""
        found: str | None = self._value(f"document.querySelector({selector!r})?.innerText ?? null")
        return None if found is None else " ".join(found.split())

    def type(self, selector: str, text: str) -> None:
        self._value(f"document.querySelector({selector!r}).focus()")
        self._ask("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """With the mouse, where it is seen; returns when the page that follows is there."""
        x, y = self._value(
            f"(e => {{const r = document.querySelector({selector!r}).getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]})()"
        )
        self._value("window.wasHere = true")
        for kind in ("mousePressed", "mouseReleased"):
            self._ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        until(lambda: self._value("window.wasHere") is None, ANSWER_S_MAX, f"{selector} leads on")
        self._wait_loaded("")

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._ask("Page.captureScreenshot")["data"]))

    def _wait_loaded(self, url: str) -> None:
        def is_loaded() -> bool:
            state, at = self._value("[document.readyState, location.href]")
            return bool(state == "complete" and at.startswith(url))

        until(is_loaded, ANSWER_S_MAX, f"{url} is loaded")

    def _value(self, script: str) -> Any:  # noqa: ANN401 (JSON)
        """What the script makes in the page; None too while one page gives way to the next."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    # The pipe.

    def _start(self) -> None:
        assert PROGRAM is not None, WHY_NOT
        theirs_in, self._orders = os.pipe()
        self._answers, theirs_out = os.pipe()
        # None of them may be 3 or 4 itself.
        high = [fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in (theirs_in, theirs_out)]
        options = [f"--user-data-dir={self._directory / 'profile'}", *_OPTIONS.split()]
        launch = [sys.executable, "-c", _LAUNCH, *map(str, high), PROGRAM, *options]
        with (self._directory / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *launch],
                pass_fds=high,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        for descriptor in (theirs_in, theirs_out, *high):
            os.close(descriptor)

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:  # noqa: ANN401
        self._last_id += 1
        order = {"id": self._last_id, "method": method, "params": parameters}
        if self._session:
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        deadline = now() + ANSWER_S_MAX
        while True:
            answer = self._receive()
            if answer.get("id") == self._last_id:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result
            assert now() < deadline, f"{method}: no answer"

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._received:
            chunk = gevent.get_hub().threadpool.apply(os.read, (self._answers, 1 << 16))
            assert chunk, "Chromium is gone"
            self._received += chunk
        line, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def _end(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)  # Ours: it leads a group of its own.
            self._process.wait()
        for descriptor in (self._orders, self._answers):
            if descriptor >= 0:
                os.close(descriptor)
