"""A cluster of bricks and the generators that load it, for as long as a `with` lasts. Starts, asks.

Every process has its own interpreter; what they do is in `loadtest.session_cluster` and
`loadtest.session_generator`.
"""

from itertools import count
from types import TracebackType
from typing import Any

import msgspec

from bus.clock import now
from loadtest.arrivals import Shape, duration_s, part_of
from loadtest.goodput import Outcome, merged
from loadtest.processes import START_S_MAX, Child, Children
from loadtest.session_requests import ClusterAsked, ClusterUp, Drive, Obeyed, Order

BEGIN_S = 0.1  # From the request to its beginning: for all generators to have heard it.
END_S_MAX = 30.0
CLUSTER_END_S_MAX = 15.0
VALUE_BYTES = 8192
TIMEOUT_S = 0.06
INTERVAL_S = 0.1
SESSIONS = 20_000  # At most, of all generators together.


class Field:
    def __init__(
        self, asked: ClusterAsked, generators: int, *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._asked = asked
        self._timeout_s = timeout_s
        self._generators: list[Child] = []
        self._count = generators
        self._children = Children(CLUSTER_END_S_MAX)
        self._seeds = count(1)

    def __enter__(self) -> "Field":
        self._children.__enter__()
        try:
            self.cluster, self._cluster = start_cluster(self._children, self._asked)
            self._generators = [
                self._children.start(
                    f"generator {number}", "loadtest.session_generator", self.cluster.config
                )
                for number in range(self._count)
            ]
            for each in self._generators:
                each.receive(START_S_MAX)
        except BaseException as error:
            self._children.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._children.__exit__(kind, error, trace)

    def drive(
        self, shape: Shape, *, sessions: int = SESSIONS, settings: dict[str, Any] | None = None
    ) -> Outcome:
        """Load it with the shape, and wait for the end of it."""
        self.begin(shape, sessions=sessions, settings=settings)
        return self.end(shape)

    def begin(
        self, shape: Shape, *, sessions: int = SESSIONS, settings: dict[str, Any] | None = None
    ) -> float:
        """Load it with the shape; when that begins."""
        begin_at = now() + BEGIN_S
        for each in self._generators:
            each.send(
                Drive(
                    begin_at=begin_at,
                    shape=list(part_of(shape, self._count)),
                    seed=next(self._seeds),
                    settings={"timeout_ms": 1000 * self._timeout_s, **(settings or {})},
                    sessions=max(1, sessions // self._count),
                    value_bytes=VALUE_BYTES,
                    interval_s=INTERVAL_S,
                    timeout_s=self._timeout_s,
                )
            )
        return begin_at

    def end(self, shape: Shape) -> Outcome:
        wait_s = duration_s(shape) + END_S_MAX
        answers = [each.receive(wait_s) for each in self._generators]
        # Not strictly: JSON has no integers for keys, as a histogram has.
        return merged([msgspec.convert(each, Outcome, strict=False) for each in answers])

    def order(self, order: Order) -> Obeyed:
        return msgspec.convert(self._cluster.ask(order, END_S_MAX), Obeyed)


def start_cluster(children: Children, asked: ClusterAsked) -> tuple[ClusterUp, Child]:
    text = msgspec.json.encode(asked).decode()
    child = children.start("cluster", "loadtest.session_cluster", text)
    return msgspec.convert(child.receive(START_S_MAX), ClusterUp), child
