"""As many beacons through one hub as it carries: a publisher, and subscribers.

A closed loop with a window, not an offered rate: subscribers report how far they have come, and
the publisher is never more than `window` beacons ahead of the slowest. That keeps the
hub busy all the time, never overruns a high-water mark (where ZeroMQ drops silently), and
finds the highest rate in one run; on a shared machine, a search over offered rates finds the
machine's worst moment instead. Every number must still arrive at every subscriber, once.

The beacons travel under a topic of their own, apart from those of the hub itself. Publisher and
subscribers are plain blocking pyzmq: the hub is what is measured, and they must
not be its limit.
"""

import struct
import sys
from typing import Any

import msgspec
import zmq

from bus.clock import now
from bus.config import publish_address
from loadtest.beacon_frames import Impostor, sequence_in
from loadtest.child import read_line, tell
from loadtest.hub_requests import Flood, Flooded
from loadtest.meter import Meter
from loadtest.tally import Tally

TOPIC = "flood"
IMPOSTORS = 1000
BURST = 100  # Beacons sent between two looks at the acknowledgements.
DRAIN_MAX = 500  # Beacons taken from one socket before the next one has its turn.
HIGH_WATER_FRAMES = 20_000  # Of our own sockets: never the limit within a window.
SETTLE_S_MAX = 10.0  # For all subscriptions to reach the publisher.
LAST_S_MAX = 5.0  # For the last beacons to arrive.
ACKNOWLEDGEMENT = struct.Struct("<IQ")


class Publisher:
    def __init__(self) -> None:
        self._context = zmq.Context()
        self._reports = self._context.socket(zmq.PULL)
        port = self._reports.bind_to_random_port("tcp://127.0.0.1")
        self.reports_at = f"tcp://127.0.0.1:{port}"
        self._news = self._context.socket(zmq.PUB)
        self._news.linger = 0
        self._news.sndhwm = HIGH_WATER_FRAMES
        self._impostors = [Impostor(number, TOPIC) for number in range(IMPOSTORS)]
        self._sent = 0
        self._came_to: dict[int, int] = {}

    def flood(self, flood: Flood) -> Flooded:
        self._news.connect(publish_address(flood.hub))
        self._settle(flood.processes)
        self._keep_busy(flood.window, flood.warm_up_s)
        before = self._slowest()
        meter = Meter(flood.hub_pid)
        self._keep_busy(flood.window, flood.duration_s)
        measured = meter.read((self._slowest() - before) * flood.subscribers)
        deadline = now() + LAST_S_MAX
        while self._slowest() < self._sent and now() < deadline:
            self._hear(wait_ms=50)
        return Flooded(measured, self._sent)

    def _settle(self, processes: int) -> None:
        """Until every subscriber has heard something, each beacon waits a little for the last."""
        deadline = now() + SETTLE_S_MAX
        while len(self._came_to) < processes or not self._slowest():
            assert now() < deadline, "subscribers hear nothing"
            self._send(1)
            self._hear(wait_ms=5)

    def _keep_busy(self, window: int, duration_s: float) -> None:
        until = now() + duration_s
        while now() < until:
            room = window - (self._sent - self._slowest())
            if room > 0:
                self._send(min(room, BURST))
            self._hear(wait_ms=0 if room > BURST else 10)

    def _send(self, count: int) -> None:
        send, impostors = self._news.send, self._impostors
        for number in range(self._sent, self._sent + count):
            send(impostors[number % IMPOSTORS].frame(number))
        self._sent += count

    def _hear(self, wait_ms: int) -> None:
        """What reports there are; wait for the first of them."""
        if self._reports.poll(wait_ms):
            try:
                while True:
                    process, came_to = ACKNOWLEDGEMENT.unpack(self._reports.recv(zmq.NOBLOCK))
                    self._came_to[process] = came_to
            except zmq.Again:
                pass

    def _slowest(self) -> int:
        """Every beacon below this number has passed every subscriber."""
        return min(self._came_to.values(), default=0)


class Subscribers:
    """Several subscriptions in one process, each on a socket of its own."""

    def __init__(self, hub: str, reports_at: str, process: int, count: int) -> None:
        context = zmq.Context()
        self._process = process
        self._report = context.socket(zmq.PUSH)
        self._report.connect(reports_at)
        self._poller = zmq.Poller()
        self._tallies: dict[Any, Tally] = {}
        self._sequence_at = Impostor(0, TOPIC).sequence_at
        for _ in range(count):
            socket = context.socket(zmq.SUB)
            socket.rcvhwm = HIGH_WATER_FRAMES
            socket.setsockopt(zmq.SUBSCRIBE, TOPIC.encode() + b"\0")
            socket.connect(hub)
            self._poller.register(socket, zmq.POLLIN)
            self._tallies[socket] = Tally()
        self._poller.register(sys.stdin.fileno(), zmq.POLLIN)

    def run(self) -> None:
        """Until the benchmark hangs up; it gets the tallies whenever it asks."""
        reported = 0
        while True:
            for socket, _ in self._poller.poll():
                if socket in self._tallies:
                    self._tallies[socket].add(self._drain(socket))
                elif read_line():
                    tell(list(self._tallies.values()))
                else:
                    return
            came_to = min(tally.next for tally in self._tallies.values())
            if came_to > reported:
                reported = came_to
                self._report.send(ACKNOWLEDGEMENT.pack(self._process, came_to))

    def _drain(self, socket: Any) -> list[int]:  # noqa: ANN401
        receive, at = socket.recv, self._sequence_at
        numbers: list[int] = []
        try:
            while len(numbers) < DRAIN_MAX:
                numbers.append(sequence_in(receive(zmq.NOBLOCK), at))
        except zmq.Again:
            pass
        return numbers


def publish() -> None:
    publisher = Publisher()
    tell({"reports_at": publisher.reports_at})
    while line := read_line():
        tell(publisher.flood(msgspec.json.decode(line, type=Flood)))


def main(part: str, *arguments: str) -> None:
    if part == "publisher":
        publish()
    else:
        hub, reports_at, process, count = arguments
        Subscribers(hub, reports_at, int(process), int(count)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
