"""A peer that speaks our frames but keeps to none of our rules: it repeats itself and lies."""

import zmq

from bus.frames import LENGTHS, VERSION_BYTE, Record, encode_header, raw, unjoin
from bus.headers import Ask, Header
from bus.messages import Message
from tests.waiting import until


class RawPeer:
    def __init__(self, kind: int, endpoint: str) -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
        self.socket.set(zmq.LINGER, 0)
        self.socket.connect(endpoint)

    def close(self) -> None:
        self.socket.close()

    def received(self, timeout_s: float = 5) -> bytes:
        """The next message of one part."""
        until(lambda: self.socket.poll(0), timeout_s, "a message to the raw peer")
        return self.socket.recv()

    def records(self) -> list[Record]:
        """The records of the next frame."""
        return unjoin(self.received())[0]


def frame(*headers: Header) -> bytes:
    """Records without a body, joined as `bus.outbox` does."""
    encoded = [encode_header(header) for header in headers]
    return VERSION_BYTE + b"".join(LENGTHS.pack(len(each), 0) + each for each in encoded)


def ask(request_id: int, message: Message, *, budget_s: float, sent_at: float) -> Ask:
    budget_us, sent_us = int(budget_s * 1e6), int(sent_at * 1e6)
    return Ask(request_id, "raw-1", 1, budget_us, 0, sent_us, raw(message))
