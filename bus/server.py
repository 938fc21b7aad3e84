"""Answer requests with plain functions. Waits, calls and sends; the handlers decide.

Requests are handled by a few reusable greenlets. A handler that does not wait costs no
switch at all: one greenlet empties the inbox. A handler that waits keeps its greenlet and
the next one goes on with the inbox; so a slow or crashing handler harms only its own request.

What always holds:
  S1  What has run out of budget is dropped: on arrival, counting time spent in queues we
      cannot see (`delay`), again before its handler runs, and again before its answer leaves.
  S2  Every request is answered once, refused once, or dropped because nobody waits for it.
  S3  Inbox, greenlets and the bytes of all bodies are bounded; past that a request is refused
      at once.
  S4  A request that its key may not make is refused before any handler sees it. That is asked
      on arrival, before the handler runs, and before the answer leaves; a key that is no longer
      on the list gets no answer at all.
  S5  Whatever handlers do that do not wait, timers and other ports have their turn every
      `WORK_S_MAX`, and after each handler at the latest.

`use_inbox` puts another inbox in the place of our queue; its `serve_late` suspends S1, for
experiments that want to see why it is there.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import gevent
from greenlet import getcurrent, greenlet

from bus.clock import now
from bus.config_shape import WORKERS_MAX
from bus.delay import QueueDelays
from bus.errors import RemoteProtocolError
from bus.frames import BODY_BYTES_MAX, Body, MessageDecoder, encode_header, raw
from bus.headers import Ask, Cancel, Header, Refusal, Reply
from bus.identity import Identity
from bus.inbox import Inbox, TurnedAway
from bus.messages import Message, Ping, Pong, Refused
from bus.pump import Pump, told
from bus.replies import Answer

M = TypeVar("M", bound=Message)

INBOX_MAX = 4096
BODIES_BYTES_MAX = 256 * 1024 * 1024
WORK_S_MAX = 0.01
BUSY_RETRY_S = 0.1
DETAIL_CHARACTERS_MAX = 200
LATE_ANSWER_S_MAX = 10.0  # With `serve_late`: how long an answer may wait for its peer.

log = logging.getLogger(__name__)


class Call(Generic[M]):
    """One request, as its handler sees it."""

    __slots__ = (
        "address",
        "arrived_at",
        "body",
        "cancelled",
        "incarnation",
        "key",
        "message",
        "priority",
        "request_id",
        "sender",
        "until",
    )

    message: M

    def __init__(self, routing_id: bytes, key: str, ask: Ask, body: Body, message: M) -> None:
        self.address = routing_id, ask.request_id
        """Where the answer goes: the connection, and the number of the request on it."""
        self.key = key
        """The public key it came with; empty without keys."""
        self.request_id = ask.request_id
        self.sender = ask.sender
        self.incarnation = ask.incarnation
        self.priority = ask.priority
        self.message = message
        self.body = body
        self.cancelled = False
        """The asker has said that it no longer waits; a long handler may look now and then."""
        self.arrived_at = 0.0
        """When it should have arrived, had it not waited in queues on the way."""
        self.until = 0.0
        """When the asker stops waiting, on our clock."""

    def left_s(self) -> float:
        """How much of the asker's budget is left."""
        return self.until - now()


Handler = Callable[[Call[M]], Message | Answer | Refused]


class Server:
    """One endpoint that answers `Ping`, and whatever `on` has taught it."""

    def __init__(
        self,
        pump: Pump,
        identity: Identity,
        address: str,
        *,
        inbox_max: int = INBOX_MAX,
        workers_max: int = WORKERS_MAX,
        bodies_bytes_max: int = BODIES_BYTES_MAX,
    ) -> None:
        self._pump = pump
        self._id = identity.id
        self._incarnation = identity.incarnation
        self._allowed = None if pump.security is None else pump.security.allowed
        self._inbox_max = inbox_max
        self._workers_max = workers_max
        self._bodies_bytes_max = bodies_bytes_max
        self._bodies_bytes = 0
        self._handlers: dict[type[Message], tuple[Handler[Message], str]] = {}
        self._decoder = MessageDecoder(Ping)
        self._delays = QueueDelays()
        self._inbox: deque[Call[Message]] = deque()
        self._chooser: Inbox[Call[Message]] | None = None
        self._serve_late = False
        self._calls: dict[tuple[bytes, int], Call[Message]] = {}
        self._idle: list[greenlet] = []
        self._workers = 0
        self._woken = False
        self._later = pump.hub.loop.timer(0)
        self.answered = 0
        self.refused = 0
        self.expired = 0
        """Requests, or their answers, that nobody waited for any more (S1)."""
        self.failed = 0
        """Handlers that raised."""
        self.repeated = 0
        """Requests whose number is being served already: dropped."""
        self.on(Ping, lambda call: Pong(identity.id, identity.incarnation))
        self._router = pump.router(address, self._heard)
        self.endpoint = self._router.endpoint

    @property
    def inbox_length(self) -> int:
        return len(self._inbox if self._chooser is None else self._chooser)

    def on(self, kind: type[M], handler: Handler[M], *, permission: str = "") -> None:
        """Answer requests of that kind with `handler(call)`; only for keys with `permission`."""
        self._handlers[kind] = (cast("Handler[Message]", handler), permission)
        self._decoder = MessageDecoder(*self._handlers)

    def use_inbox(
        self,
        inbox: Inbox[Call[Message]],
        *,
        serve_late: bool = False,
        bodies_bytes_max: int | None = None,
    ) -> None:
        """From now on let `inbox` choose what comes next and what is refused, and bound its own
        length. `serve_late`: carry out and answer what nobody waits for any more, too."""
        assert self._chooser is None, "one inbox for good"
        waiting = list(self._inbox)
        self._inbox.clear()  # The same one: a worker may be in the middle of it.
        self._chooser = inbox
        self._serve_late = serve_late
        if bodies_bytes_max is not None:
            self._bodies_bytes_max = bodies_bytes_max
        for call in waiting:
            self._turn_away(inbox.add(call, now()))

    def close(self) -> None:
        self._later.stop()
        self._router.close()

    def _heard(self, routing_id: bytes, key: str, header: Header, body: Body) -> None:
        """In the event loop: take a request in, or refuse it, without waiting."""
        if type(header) is Ask:
            self._take_in(routing_id, key, header, body)
        elif type(header) is Cancel:
            call = self._calls.get((routing_id, header.request_id))
            if call is not None:
                call.cancelled = True
        else:
            self._pump.traffic.malformed += 1

    def _take_in(self, routing_id: bytes, key: str, ask: Ask, body: Body) -> None:
        arrived_at = now()
        # By connection, not by the name it gives: a liar must not spoil another's estimate.
        queued_s = self._delays.queued_s(routing_id, ask.sent_us, int(arrived_at * 1e6))
        left_s = ask.budget_us / 1e6 - queued_s
        if left_s <= 0 and not self._serve_late:
            self.expired += 1  # S1
            return
        until = arrived_at + left_s
        try:
            message = self._decoder.decode(ask.message)
        except RemoteProtocolError as error:
            self._pump.traffic.malformed += 1
            self._refuse(routing_id, ask.request_id, Refused("unknown", str(error)), until)
            return
        call = Call(routing_id, key, ask, body, message)
        call.arrived_at = arrived_at - queued_s
        call.until = until
        address = call.address
        if self._allowed is not None and not self._may(call):
            self._deny(call)
        elif self._is_full(body):
            busy = Refused("busy", "the inbox is full", retry_after_s=BUSY_RETRY_S)
            self._refuse(*address, busy, until)  # S3
        elif address in self._calls:
            self.repeated += 1  # S2: the same request twice, from a peer that replays
        else:
            self._calls[address] = call
            self._bodies_bytes += len(body)
            if self._chooser is None:
                self._inbox.append(call)
            else:
                self._turn_away(self._chooser.add(call, arrived_at))
            if not self._woken:
                self._woken = True
                self._pump.hub.loop.run_callback(self._wake_workers)

    def _turn_away(self, turned_away: TurnedAway[Call[Message]]) -> None:
        """The inbox decided so: each is out of it."""
        for call, refused in turned_away:
            del self._calls[call.address]
            self._bodies_bytes -= len(call.body)
            if call.cancelled or now() >= call.until:
                self.expired += 1  # S1
            else:
                self._refuse(*call.address, refused, call.until)

    def _is_full(self, body: Body) -> bool:
        if len(self._inbox) >= self._inbox_max:
            return True
        return self._bodies_bytes + len(body) > self._bodies_bytes_max

    def _may(self, call: Call[Message]) -> bool:
        """Whether its key is on the list, and may ask that (S4)."""
        permission = self._handlers[type(call.message)][1]
        return self._allowed is None or self._allowed.may(call.key, permission)

    def _deny(self, call: Call[Message]) -> None:
        if self._allowed is not None and self._allowed.may(call.key, ""):
            detail = f"this key may not ask {type(call.message).__name__}"
            self._refuse(*call.address, Refused("denied", detail), call.until)
        else:
            self._pump.traffic.denied += 1

    def _wake_workers(self) -> None:
        """In the event loop: let greenlets empty the inbox; each returns here when it waits."""
        self._woken = False
        while self.inbox_length and not self._woken:
            if self._idle:
                self._idle.pop().switch()
            elif self._workers < self._workers_max:
                self._workers += 1
                worker = gevent.Greenlet(self._work)
                worker.switch()
            else:
                return  # S3: whoever is done next goes on with the inbox.

    def _wake_workers_later(self) -> None:
        """In another round of the loop, so that timers and ports come first."""
        if not self._woken:
            self._woken = True
            self._later = self._pump.hub.loop.timer(0)
            self._later.start(self._wake_workers)

    def _work(self) -> None:
        """A worker greenlet: empty the inbox, sleep until there is more, for ever."""
        hub = self._pump.hub
        me = getcurrent()
        try:
            while True:
                pause_at = now() + WORK_S_MAX
                inbox = self._inbox
                while inbox:
                    if self._serve(inbox.popleft()) >= pause_at:
                        self._wake_workers_later()  # S5
                        break
                if self._chooser is not None:
                    self._work_by_choice(self._chooser, pause_at)
                self._idle.append(me)
                hub.switch()
        finally:
            self._workers -= 1
            if self.inbox_length:
                self._wake_workers_later()

    def _work_by_choice(self, inbox: Inbox[Call[Message]], pause_at: float) -> None:
        while inbox:
            call, turned_away = inbox.take(now())
            self._turn_away(turned_away)
            if call is None:
                return
            done_at = self._serve(call)
            inbox.served(done_at)
            if done_at >= pause_at:
                self._wake_workers_later()  # S5
                return

    def _serve(self, call: Call[Message]) -> float:
        """Carry out one request; when that was done."""
        started_at = now()
        body_bytes = len(call.body)
        handler, _ = self._handlers[type(call.message)]
        answer: Message | Answer | Refused
        try:
            if (call.cancelled or started_at >= call.until) and not self._serve_late:
                self.expired += 1  # S1
                return started_at
            if self._allowed is not None and not self._may(call):
                self._deny(call)
                return started_at
            answer = handler(call)
            encoded = self._encoded(call, answer, started_at - call.arrived_at)
        except (Exception, gevent.Timeout, gevent.GreenletExit) as error:
            # A crashing handler harms only its own request.
            log.exception("handler of %s failed", type(call.message).__name__)
            self.failed += 1
            answer = Refused("failed", told(error))
            encoded = _refusal(call.request_id, answer), b""
        finally:
            del self._calls[call.address]
            self._bodies_bytes -= body_bytes
        done_at = now()
        until = call.until
        if call.cancelled or done_at >= until:
            if not self._serve_late:
                self.expired += 1  # S1
                return done_at
            until = done_at + LATE_ANSWER_S_MAX
        if self._allowed is not None and not self._may(call):
            self._deny(call)
        else:
            if isinstance(answer, Refused):
                self.refused += 1
            else:
                self.answered += 1
            self._router.send(call.address[0], *encoded, until)
        return done_at

    def _encoded(
        self, call: Call[Message], answer: Message | Answer | Refused, queued_s: float
    ) -> tuple[bytes, Body]:
        """Header and body of the answer; raises if that is none that could be sent."""
        body: Body = b""
        if isinstance(answer, Refused):
            return _refusal(call.request_id, answer), body
        if isinstance(answer, Answer):
            message, body = answer.message, answer.body
            if not isinstance(body, (bytes, memoryview)):
                raise TypeError(f"a body is bytes, not {type(body).__name__}")
            if len(body) > BODY_BYTES_MAX:
                raise ValueError(f"body of {len(body)} bytes: at most {BODY_BYTES_MAX}")
        else:
            message = answer
        if not isinstance(message, Message):
            raise TypeError(f"{type(message).__name__} is not a message")
        header = Reply(
            call.request_id, self._id, self._incarnation, int(queued_s * 1e6), raw(message)
        )
        return encode_header(header), body

    def _refuse(self, routing_id: bytes, request_id: int, refused: Refused, until: float) -> None:
        self.refused += 1
        self._router.send(routing_id, _refusal(request_id, refused), b"", until)


def _refusal(request_id: int, refused: Refused) -> bytes:
    """The header of a refusal; raises if a handler made it of what cannot be sent."""
    if not isinstance(refused.reason, str) or not isinstance(refused.detail, str):
        raise TypeError("reason and detail of a refusal are text")
    retry_after_us = -1 if refused.retry_after_s is None else int(refused.retry_after_s * 1e6)
    detail = refused.detail[:DETAIL_CHARACTERS_MAX]
    return encode_header(Refusal(request_id, refused.reason, detail, retry_after_us))
