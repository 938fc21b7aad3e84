"""A handler that holds each request until it is let go, and remembers whom it saw."""

from gevent.event import Event

from bus.server import Call
from tests.sockets.pair import Echo
from tests.waiting import until


class Gate:
    def __init__(self) -> None:
        self.calls: list[Call[Echo]] = []
        self._open = Event()

    def __call__(self, call: Call[Echo]) -> Echo:
        self.calls.append(call)
        self._open.wait()
        return call.message

    @property
    def numbers(self) -> list[int]:
        return [call.message.number for call in self.calls]

    def open(self) -> None:
        self._open.set()

    def wait_for(self, count: int) -> None:
        until(lambda: len(self.calls) >= count, 5, f"{count} requests at the gate")
