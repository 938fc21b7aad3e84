"""Locust users for the session store: hyperactive ones, and people with time to think.

    locust -f loadtest/locustfile.py --headless -u 50 -r 50 -t 10s
    locust -f loadtest/locustfile.py,loadtest/locust_shapes.py --headless --shape spike

Finds its cluster as commands do: SOFTSTATE_CONFIG, ./cluster.toml, the last `softstate up`. Locust
is a closed loop: each user waits for its answer, so a store that is slow is asked less. For what is
left under overload see `softstate bench overload`, which is an open loop.

A request that took longer than the stub's timeout counts as failed, so what Locust calls failures
is all that is not goodput. At the end goodput is told next to offered load; with `--csv PREFIX` it
is written by seconds to PREFIX_goodput.csv, with `--html FILE` drawn at the end of that report.
"""

import csv
import os
from collections import deque
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from gevent.lock import BoundedSemaphore
from locust import User, between, constant, events, task
from locust.env import Environment

from bus.clock import now, wall_s
from bus.errors import StateConflict, StateExpired, StateLost
from loadtest.goodput_seconds import GoodputSeconds
from loadtest.hyperactive import WrongValueError
from roles.cluster import Cluster
from roles.stub import Stub

VALUE_BYTES = int(os.environ.get("SOFTSTATE_VALUE_BYTES", "8192"))
TTL_S = 1800.0
KIND = "session"
STUB_S_MAX = 10.0
DOUBTFUL_MAX = 16

_goodput = GoodputSeconds()
_numbers = count()
_stubs: list[Stub] = []
_one_at_a_time = BoundedSemaphore()


class LateError(Exception):
    """It was carried out, but not in time: nobody waits that long."""


def the_stub() -> Stub:
    """One for all users of this process, as in a web server."""
    with _one_at_a_time:  # All users begin at once, and to make it takes a while.
        if not _stubs:
            _stubs.append(Stub(Cluster.load(), ready_s=STUB_S_MAX))
        return _stubs[0]


class SessionUser(User):
    """One session, and how to do something with it that counts."""

    abstract = True

    def on_start(self) -> None:
        self.stub = the_stub()
        self.timeout_s = self.stub.settings.timeout_ms / 1000
        self.key = f"locust-{next(_numbers)}"
        self.cookie: str | None = None
        self.value = b""
        self.doubtful: deque[bytes] = deque(maxlen=DOUBTFUL_MAX)
        """What was written since and failed: it may have had effect."""

    def write(self) -> None:
        value = (b"%d " % next(_numbers)).ljust(VALUE_BYTES, b".")

        def request() -> None:
            self.doubtful.append(value)
            self.cookie = self.stub.write(self.key, value, ttl_s=TTL_S, cookie=self.cookie)
            self.value = value
            self.doubtful.clear()

        self.counted("write", request)

    def read(self) -> None:
        cookie = self.cookie
        if cookie is None:
            return

        def request() -> None:
            session = self.stub.load(cookie)
            self.cookie = session.cookie
            if session.value != self.value and session.value not in self.doubtful:
                raise WrongValueError(f"{self.key} read what it did not write")

        self.counted("read", request)

    def counted(self, name: str, request: Callable[[], None]) -> None:
        began_at = now()
        error: Exception | None = None
        try:
            request()
        except StateConflict as conflict:
            error, self.cookie = conflict, conflict.cookie or None
        except (StateLost, StateExpired) as lost:
            error, self.cookie = lost, None
        except Exception as failed:  # noqa: BLE001 (whatever it is, Locust tells it)
            error = failed
        took_s = now() - began_at
        if error is None and took_s > self.timeout_s:
            error = LateError(f"over {1e3 * self.timeout_s:g} ms")
        _goodput.add(int(wall_s()), is_good=error is None)
        self.environment.events.request.fire(
            request_type=KIND,
            name=name,
            response_time=1e3 * took_s,
            response_length=VALUE_BYTES,
            exception=error,
            context={},
        )


class HyperactiveUser(SessionUser):
    """The paper's: writes and reads in turn, without a rest."""

    wait_time = constant(0)
    weight = 1

    @task
    def write_then_read(self) -> None:
        self.write()
        self.read()


class ThinkingUser(SessionUser):
    """Looks at pages: reads its session with each, changes it now and then."""

    wait_time = between(0.5, 2.0)
    weight = 1

    @task(3)
    def look(self) -> None:
        if self.cookie is None:
            self.write()
        self.read()

    @task(1)
    def change(self) -> None:
        if self.cookie is not None:
            self.read()
        self.write()


@events.report_to_master.add_listener  # type: ignore[untyped-decorator]
def _to_master(client_id: str, data: dict[str, Any], **_: object) -> None:
    data["goodput"] = _goodput.taken()


@events.worker_report.add_listener  # type: ignore[untyped-decorator]
def _from_worker(client_id: str, data: dict[str, Any], **_: object) -> None:
    _goodput.merge(data.get("goodput", []))


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _at_the_end(environment: Environment, **_: object) -> None:
    while _stubs:
        _stubs.pop().close()
    if not _goodput.seconds:
        return
    print(_goodput.told())
    options = environment.parsed_options
    if prefix := getattr(options, "csv_prefix", None):
        with Path(f"{prefix}_goodput.csv").open("w", newline="") as file:
            csv.writer(file).writerows([_goodput.HEAD, *_goodput.rows()])
    report = Path(getattr(options, "html_file", None) or "")
    if report.is_file():  # Locust has written it by now.
        text = report.read_text(encoding="utf-8")
        before, body, after = text.rpartition("</body>")
        report.write_text(before + _goodput.section() + body + after, encoding="utf-8")
