"""Bare gevent TCP doing the same copies, server and client: the limit of what Python can do.

Frames with a length in front, one connection to each server, everything that is ready sent at
once. No deadlines, limits, checksums, cookies or statistics: what ours costs more is for those.
"""

import struct
import sys
from collections.abc import Callable, Iterator
from itertools import count
from random import Random

import gevent
from gevent import socket
from gevent.event import Event
from gevent.hub import Hub
from gevent.server import StreamServer
from greenlet import getcurrent, greenlet

from loadtest.child import answer_all, end_with_the_benchmark, tell
from loadtest.greenlets import read_line
from loadtest.session_phase import measure
from loadtest.session_requests import Phase, Phased

HEAD = struct.Struct("!IIBI")
"""The length of the rest, the request's number, what to do, the session."""
REST_BYTES = HEAD.size - 4
WRITE, READ = 1, 2
RECEIVE_BYTES = 1 << 18
COPIES, WRITE_QUORUM, READS = 3, 2, 2

Frame = tuple[int, int, int, memoryview]


def frames(connection: socket.socket) -> Iterator[list[Frame]]:
    """All that have come, each time some have."""
    rest = b""
    while received := connection.recv(RECEIVE_BYTES):
        held = rest + received if rest else received
        view, place, found = memoryview(held), 0, list[Frame]()
        while place + HEAD.size <= len(held):
            length, number, verb, session = HEAD.unpack_from(held, place)
            end = place + 4 + length
            if end > len(held):
                break
            found.append((number, verb, session, view[place + HEAD.size : end]))
            place = end
        rest = held[place:]
        if found:
            yield found


def serve() -> None:
    end_with_the_benchmark()
    held: dict[int, bytes] = {}

    def handle(connection: socket.socket, address: object) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for asked in frames(connection):
            answers = []
            for number, verb, session, value in asked:
                body = b""
                if verb == WRITE:
                    held[session] = bytes(value)
                else:
                    body = held[session]
                answers += [HEAD.pack(REST_BYTES + len(body), number, verb, session), body]
            connection.sendall(b"".join(answers))

    server = StreamServer(("127.0.0.1", 0), handle)
    server.start()
    tell({"port": server.server_port})
    Event().wait()


class Link:
    """The connection to one server: what is to be sent is joined until it can be."""

    def __init__(self, port: int, heard: Callable[[Frame], None]) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waiting: list[bytes] = []
        self._wanted = Event()
        self._heard = heard
        self._greenlets = [gevent.spawn(self._send_all), gevent.spawn(self._receive_all)]

    def send(self, number: int, verb: int, session: int, value: bytes) -> None:
        self._waiting += [HEAD.pack(REST_BYTES + len(value), number, verb, session), value]
        self._wanted.set()

    def _send_all(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            joined = b"".join(self._waiting)
            self._waiting.clear()
            self._socket.sendall(joined)

    def _receive_all(self) -> None:
        for found in frames(self._socket):
            for frame in found:
                self._heard(frame)


class Client:
    def __init__(self, ports: list[int]) -> None:
        self._links = [Link(port, self._heard) for port in ports]
        self._copies: dict[int, list[Link]] = {}
        self._pending: dict[int, list[int | greenlet]] = {}
        self._numbers = count()
        self._hub: Hub = gevent.get_hub()
        self._random = Random(1)
        self._value = b""

    def measure(self, phase: Phase) -> Phased:
        self._value = bytes(phase.value_bytes)
        for number in range(phase.in_flight):
            self.write(number)
        return measure(self.write if phase.operation == "write" else self.read, phase)

    def write(self, session: int) -> None:
        links = self._copies[session] = self._random.sample(self._links, COPIES)
        self._ask(links, WRITE, session, self._value, WRITE_QUORUM)

    def read(self, session: int) -> None:
        found = self._ask(self._copies[session][:READS], READ, session, b"", 1)
        assert len(found) == len(self._value)

    def _ask(
        self, links: list[Link], verb: int, session: int, value: bytes, need: int
    ) -> memoryview:
        number = next(self._numbers) & 0xFFFF_FFFF
        self._pending[number] = [need, getcurrent()]
        for link in links:
            link.send(number, verb, session, value)
        answer: memoryview = self._hub.switch()
        return answer

    def _heard(self, frame: Frame) -> None:
        waiting = self._pending.get(frame[0])
        if waiting is None:
            return  # Enough had answered.
        waiting[0] -= 1  # type: ignore[operator]
        if not waiting[0]:
            del self._pending[frame[0]]
            # In the event loop, so that it comes back here: see bus.client.
            self._hub.loop.run_callback(waiting[1].switch, frame[3])  # type: ignore[union-attr]


def main(part: str, *ports: str) -> None:
    if part == "server":
        serve()
        return
    client = Client([int(port) for port in ports])
    tell({})
    answer_all(Phase, client.measure, read_line)


if __name__ == "__main__":
    main(*sys.argv[1:])
