"""Ask bricks as a stub does, without a stub: one request to one brick, and its answer as it is."""

from typing import Literal

from bus.messages import Message, Refused
from bus.peers import Peer
from bus.replies import Reply
from roles.cluster import Cluster
from roles.session_messages import (
    DeleteSession,
    ReadSession,
    SessionAnswer,
    StoreSession,
    TouchSession,
    checksum_of,
)
from tests.waiting import until

PATIENCE_S = 10.0

Outcome = Literal["stored", "value", "touched", "conflict", "missing", "deleted"]


def sid_of(number: int) -> bytes:
    return number.to_bytes(16, "big")


class RawBricks:
    """In one cluster; `close` it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.member = cluster.member()

    def close(self) -> None:
        self._cluster.release()

    def peer(self, brick_id: str, *, after: int = 0) -> Peer:
        """That brick, live, in a later life than `after`."""
        found: list[Peer] = []

        def is_live() -> bool:
            peer = self.member.liveness.peer(brick_id)
            if peer is not None and peer.state == "live" and peer.incarnation > after:
                found.append(peer)
            return bool(found)

        until(is_live, PATIENCE_S, f"{brick_id} live")
        return found[-1]

    def ask(
        self, brick_id: str, message: Message, body: bytes = b"", *, timeout_s: float = 5.0
    ) -> Reply[SessionAnswer] | Refused:
        endpoint = self.peer(brick_id).endpoint
        return self.member.client.ask(
            endpoint, message, expect=SessionAnswer, timeout_s=timeout_s, body=body
        )

    def answer(
        self, brick_id: str, message: Message, body: bytes = b""
    ) -> tuple[SessionAnswer, bytes]:
        reply = self.ask(brick_id, message, body)
        assert isinstance(reply, Reply), reply
        return reply.message, bytes(reply.body)

    def store(
        self, brick_id: str, number: int, value: bytes, *, version: int = 1, ttl_s: float = 60.0
    ) -> Reply[SessionAnswer] | Refused:
        return self.ask(brick_id, storing(number, value, version=version, ttl_s=ttl_s), value)

    def stored(self, brick_id: str, number: int, value: bytes, *, version: int = 1) -> None:
        reply = self.store(brick_id, number, value, version=version)
        assert isinstance(reply, Reply), reply
        assert reply.message.outcome == "stored"

    def read(self, brick_id: str, number: int, *, version: int = 1) -> tuple[SessionAnswer, bytes]:
        return self.answer(brick_id, ReadSession(sid_of(number), version))

    def touch(self, brick_id: str, number: int, ttl_s: float, *, version: int = 1) -> Outcome:
        return self.answer(brick_id, TouchSession(sid_of(number), version, ttl_s))[0].outcome

    def delete(self, brick_id: str, number: int, ttl_s: float = 60.0) -> Outcome:
        return self.answer(brick_id, DeleteSession(sid_of(number), ttl_s))[0].outcome


def storing(number: int, value: bytes, *, version: int = 1, ttl_s: float = 60.0) -> StoreSession:
    sid = sid_of(number)
    return StoreSession(sid, version, ttl_s, checksum_of(sid, version, value), version - 1)
