"""Throw bad frames at a live server, while good clients use it: `python -m loadtest.fuzz`.

Plain ZeroMQ sockets send what `loadtest.mutations` makes. One of them reads no
answers until the end; each is replaced now and then, by one that slams the door in mid-talk.
The last message on each socket is a good `Ping`: as order is kept, its answer says that the
server has been through everything before it, and lives.
"""

import argparse
import sys
from collections import Counter
from random import Random

import msgspec
import psutil
import zmq

from bus.clock import now
from bus.errors import BusError
from bus.frames import LENGTHS, VERSION_BYTE, MessageDecoder, encode_header, raw, unjoin
from bus.headers import Ask, Reply
from bus.messages import Message, Ping, Pong
from loadtest.echo_ours import Echo
from loadtest.fuzz_processes import AskCounters, Counters, Good
from loadtest.mutations import Mutations, Parts
from loadtest.processes import START_S_MAX, Children

THROWERS = 4  # The first never reads an answer.
FRAMES_PER_SOCKET = 20_000
FRAMES_PER_LOOK = 64  # Thrown between two looks at what the server answers.
SEND_S_MAX = 30.0
ANSWER_S_MAX = 60.0
LINGER_S_MAX = 5.0
WARM_UP_SHARE = 0.1  # Of the frames: by then caches, queues and the allocator have grown.
FIRST_REQUEST_ID = 1 << 50  # Of our own good requests: above all the mutations'.


class Fuzzed(msgspec.Struct, frozen=True):
    """What was thrown, and what it did to the server's memory."""

    frames: int
    elapsed_s: float
    kinds: dict[str, int]
    """How many frames of each kind of badness."""
    rss_bytes_before: int
    """The server's memory after the warm-up."""
    rss_bytes_after: int
    counters: dict[str, int]
    """What the server counted, if it is one of `loadtest.fuzz_processes`; else nothing."""


class ServerGoneError(BusError):
    """The server under test ended, or no longer answers a good request."""


def fuzz(
    endpoint: str, frames: int, seed: int, *, server_pid: int, seconds_max: float = 3600.0
) -> Fuzzed:
    """Throw `frames` bad messages, or as many as `seconds_max` allow; then see that it lives."""
    server = psutil.Process(server_pid)
    mutations = Mutations(Random(seed), Echo())
    kinds, began_at, before = Counter[str](), now(), 0
    with zmq.Context() as context:
        throwers = [_Thrower(context, endpoint, deaf=not number) for number in range(THROWERS)]
        try:
            while (done := _done(kinds.total() / frames, (now() - began_at) / seconds_max)) < 1:
                thrower = throwers[kinds.total() // FRAMES_PER_LOOK % THROWERS]
                for _ in range(min(FRAMES_PER_LOOK, frames - kinds.total())):
                    kind, parts = mutations.next()
                    thrower.throw(parts)
                    kinds[kind] += 1
                thrower.look()
                if not before and done >= WARM_UP_SHARE:
                    before = _rss_bytes(server)
            for thrower in throwers:
                thrower.last_word()
            elapsed_s = now() - began_at
            counters = throwers[-1].counters()
            after = _rss_bytes(server)
            return Fuzzed(kinds.total(), elapsed_s, dict(kinds), before or after, after, counters)
        finally:
            for thrower in throwers:
                thrower.close()


class _Thrower:
    """One hostile peer; it comes back as another now and then."""

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", endpoint: str, *, deaf: bool
    ) -> None:
        self._context = context
        self._endpoint = endpoint
        self._deaf = deaf
        self._request_id = FIRST_REQUEST_ID
        self._connect()

    def throw(self, parts: Parts) -> None:
        try:
            self._socket.send_multipart(parts)
        except zmq.Again as error:
            raise ServerGoneError(f"nothing taken for {SEND_S_MAX:.0f} s") from error
        self._thrown += 1

    def look(self) -> None:
        """Read what the server answers, and become somebody else if it is time."""
        if not self._deaf:
            while self._socket.poll(0):
                self._socket.recv_multipart()
        if self._thrown >= FRAMES_PER_SOCKET:
            self.last_word()
            self._slam_the_door()
            self._connect()

    def last_word(self) -> None:
        """See to it that the server has been through everything, as order is kept."""
        self._ask(Ping(), MessageDecoder(Pong))

    def counters(self) -> dict[str, int]:
        """What the server has counted, if it can tell."""
        answer = self._ask(AskCounters(), MessageDecoder(Counters))
        return answer.counters if isinstance(answer, Counters) else {}

    def close(self) -> None:
        self._socket.close(linger=int(LINGER_S_MAX * 1000))

    def _slam_the_door(self) -> None:
        """Leave in the middle of a conversation, with answers unread and requests unsent."""
        for _ in range(FRAMES_PER_LOOK):
            self._send_ask(Ping())
        self._socket.close(linger=0)

    def _connect(self) -> None:
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.sndtimeo = int(SEND_S_MAX * 1000)
        self._socket.connect(self._endpoint)
        self._thrown = 0

    def _ask(self, message: Message, decoder: MessageDecoder) -> Message | None:
        """The server's answer to a good request; None if it was refused."""
        self._send_ask(message)
        deadline = now() + ANSWER_S_MAX
        while self._socket.poll(max(int((deadline - now()) * 1000), 0)):
            for answer, _body in unjoin(*self._socket.recv_multipart())[0]:
                if getattr(answer, "request_id", 0) == self._request_id:
                    return decoder.decode(answer.message) if isinstance(answer, Reply) else None
        raise ServerGoneError(f"no answer to a good request within {ANSWER_S_MAX:.0f} s")

    def _send_ask(self, message: Message) -> None:
        self._request_id += 1
        budget_us = int(ANSWER_S_MAX * 1e6)
        ask = Ask(self._request_id, "last-word", 1, budget_us, 0, int(now() * 1e6), raw(message))
        header = encode_header(ask)
        self.throw([VERSION_BYTE + LENGTHS.pack(len(header), 0) + header])


def _done(*shares: float) -> float:
    return max(shares)


def _rss_bytes(server: psutil.Process) -> int:
    try:
        return int(server.memory_info().rss)
    except psutil.NoSuchProcess as error:
        raise ServerGoneError("the server has ended") from error


def run(frames: int, seed: int, seconds_max: float) -> tuple[Fuzzed, Good]:
    """A server and good clients of our own, and bad frames for the server."""
    with Children() as children:
        server = children.start("server", "loadtest.fuzz_processes", "server")
        endpoint = server.receive(START_S_MAX)["endpoint"]
        clients = children.start("good clients", "loadtest.fuzz_processes", "clients", endpoint)
        clients.receive(START_S_MAX)
        fuzzed = fuzz(endpoint, frames, seed, server_pid=server.pid, seconds_max=seconds_max)
        return fuzzed, msgspec.convert(clients.ask({}, START_S_MAX), Good)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.fuzz", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after so long")
    asked = parser.parse_args(arguments)
    try:
        fuzzed, good = run(asked.frames, asked.seed, asked.seconds)
    except BusError as error:
        print(f"fuzz: {error} (seed {asked.seed})", file=sys.stderr)
        return 1
    print(msgspec.json.format(msgspec.json.encode({"fuzzed": fuzzed, "good": good})).decode())
    return 1 if good.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
