"""Ask servers and wait for their answers. Waits, sends and counts; decides nothing.

Any number of greenlets ask any number of servers at once. The asking greenlet sleeps until
its answer, a refusal, or its deadline wakes it; nothing else is created per request. One
request id serves a whole fan-out: the header is encoded once and sent to all of them. Who has its
own idea of when that is done brings a `FanOut`, which hears of each outcome as it comes.
"""

import math
from collections.abc import Collection
from functools import partial
from typing import Generic, TypeVar, cast, get_args

from greenlet import getcurrent, greenlet

from bus.clock import now
from bus.errors import LinkError, RemoteProtocolError, RequestTimeoutError, SendQueueFullError
from bus.frames import BODY_BYTES_MAX, Body, MessageDecoder, encode_header, raw
from bus.headers import Ask, Cancel, Header, Refusal
from bus.headers import Reply as ReplyHeader
from bus.identity import Identity
from bus.messages import Message, Refused
from bus.pending import Pending
from bus.pump import Dealer, Pump
from bus.replies import Gathered, Reply

R = TypeVar("R", bound=Message)

TIMEOUT_S_MAX = 3600.0
SERVERS_MAX = 4096  # Connections kept open at once; the oldest makes room.
CANCEL_S_MAX = 10.0  # How long word of a cancellation may wait for a peer that takes nothing.
SWEEP_S_MIN = 0.002  # Deadlines closer together than this are swept in one go.

_REASONS = frozenset(get_args(Refused.__annotations__["reason"]))


class FanOut(Generic[R]):
    """What becomes of one request to several servers, told in the event loop as it happens."""

    def heard(self, endpoint: str, outcome: Reply[R] | Refused) -> bool:
        """One of them answered or refused. Whether nothing more is waited for."""
        raise NotImplementedError

    def due(self) -> float | None:
        """The moment that was asked for has come. When to be told again; None: it is over."""
        raise NotImplementedError

    def closed(self) -> None:
        """The client is closed: nobody will answer. It is over."""

    def over(self) -> None:
        """Nothing more is waited for, and the request is in flight no longer."""


class _Gathering(FanOut[R]):
    """Answers to one request from several servers, until there are enough or cannot be."""

    def __init__(self, sleeper: greenlet, asked: Collection[str], need: int) -> None:
        self._sleeper = sleeper
        self._need = need
        self.is_awaited = False
        self.is_closed = False
        self.gathered: Gathered[R] = Gathered({}, {}, set(asked))

    @property
    def settled(self) -> bool:
        answers, silent = len(self.gathered.answers), len(self.gathered.silent)
        return answers >= self._need or answers + silent < self._need

    def heard(self, endpoint: str, outcome: Reply[R] | Refused) -> bool:
        gathered = self.gathered
        if endpoint not in gathered.silent:
            return False  # It has answered already, or was not asked.
        gathered.silent.remove(endpoint)
        if isinstance(outcome, Refused):
            gathered.refused[endpoint] = outcome
        else:
            gathered.answers[endpoint] = outcome
        return self.settled

    def due(self) -> None:
        return None

    def closed(self) -> None:
        self.is_closed = True

    def over(self) -> None:
        if self.is_awaited:
            self._sleeper.switch()


class Client:
    """Belongs to the thread that made it: greenlets of its event loop may ask, no others."""

    def __init__(self, pump: Pump, identity: Identity) -> None:
        self._pump = pump
        self._hub = pump.hub
        self._sender = identity.id
        self._incarnation = identity.incarnation
        self._dealers: dict[str, Dealer] = {}
        self._decoders: dict[type[Message], MessageDecoder] = {}
        self._pending: Pending[tuple[greenlet | FanOut[Message], type[Message]]] = Pending()
        self._request_id = 0
        self._sweep_timer = pump.hub.loop.timer(0)
        self._sweep_at = math.inf
        self._closed = False
        self.late_answers = 0
        """Answers that came when nobody waited any more: dropped."""

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def ask(
        self,
        endpoint: str,
        message: Message,
        *,
        expect: type[R],
        timeout_s: float,
        body: Body = b"",
        priority: int = 0,
    ) -> Reply[R] | Refused:
        """Ask one server and wait. Raises `RequestTimeoutError` when nothing came in time."""
        sleeper = getcurrent()
        assert sleeper is not self._hub, "asking would block the event loop itself"
        request_id, header, until = self._begin(
            message, body, timeout_s, priority, (sleeper, expect)
        )
        if request_id == 0:
            return _TOO_MANY
        try:
            self._dealer(endpoint).send(header, body, until)
            outcome = self._hub.switch()
        except SendQueueFullError:
            self._pending.take(request_id)
            return Refused("busy", f"the queue to {endpoint} is full", retry_after_s=timeout_s)
        except BaseException:  # Killed, or the caller's own timeout: it no longer waits.
            self._cancel(request_id, (endpoint,))
            raise
        if outcome is None:
            raise RequestTimeoutError(
                f"{type(message).__name__} to {endpoint}: no answer within {timeout_s:g} s"
            )
        return cast("Reply[R] | Refused", outcome)

    def ask_many(  # noqa: PLR0913 (all but two by name)
        self,
        endpoints: Collection[str],
        message: Message,
        *,
        expect: type[R],
        need: int,
        timeout_s: float,
        body: Body = b"",
        priority: int = 0,
    ) -> Gathered[R]:
        """Ask several servers at once; return at the `need`-th answer, or as soon as that
        cannot be reached, or at the deadline. The others still carry the request out."""
        sleeper = getcurrent()
        assert sleeper is not self._hub, "asking would block the event loop itself"
        gathering: _Gathering[R] = _Gathering(sleeper, endpoints, need)
        request_id = self.spread(
            gathering,
            endpoints,
            message,
            expect=expect,
            timeout_s=timeout_s,
            body=body,
            priority=priority,
        )
        if not gathering.settled:
            gathering.is_awaited = True
            try:
                self._hub.switch()
            except BaseException:
                self._cancel(request_id, endpoints)
                raise
        if gathering.is_closed:
            raise LinkError(_CLOSED)
        return gathering.gathered

    def spread(  # noqa: PLR0913 (all but three by name)
        self,
        fan_out: FanOut[R],
        endpoints: Collection[str],
        message: Message,
        *,
        expect: type[R],
        timeout_s: float,
        body: Body = b"",
        priority: int = 0,
        due_s: float = math.inf,
    ) -> int:
        """Ask several servers at once and go on; `fan_out` hears of each outcome, and is told
        when `due_s` has passed, `timeout_s` at the latest. The number of the request.

        A server that cannot be asked refuses before this returns."""
        request_id, header, until = self._begin(
            message,
            body,
            timeout_s,
            priority,
            (cast("FanOut[Message]", fan_out), expect),
            due_s,
        )
        if request_id == 0:
            for endpoint in endpoints:
                fan_out.heard(endpoint, _TOO_MANY)
            fan_out.over()
            return 0
        is_over = False
        for endpoint in endpoints:
            try:
                self._dealer(endpoint).send(header, body, until)
            except SendQueueFullError:
                detail = f"the queue to {endpoint} is full"
                is_over = fan_out.heard(endpoint, Refused("busy", detail, timeout_s))
            except BaseException:
                self._pending.take(request_id)
                raise
        if is_over:
            self._pending.take(request_id)
            fan_out.over()
        return request_id

    def forget(self, endpoint: str) -> None:
        """Close the connection to a server that is known to be gone."""
        dealer = self._dealers.pop(endpoint, None)
        if dealer is not None:
            dealer.close()

    def close(self) -> None:
        """Whoever still waits gets `LinkError`, soon."""
        if not self._closed and len(self._pending) and not self._pump.forked:
            self._hub.loop.run_callback(self._end_pending)
        self._closed = True
        self._sweep_timer.stop()
        self._sweep_timer.close()
        for endpoint in list(self._dealers):
            self.forget(endpoint)

    def _end_pending(self) -> None:
        """In the event loop: only from there can those who wait be woken."""
        for request_id in self._pending.late(math.inf):
            waiting = self._pending.take(request_id)
            if waiting is None:
                continue  # Killed meanwhile, or ended by one that was just woken.
            waiter, _ = waiting
            if isinstance(waiter, FanOut):
                waiter.closed()
                waiter.over()
            else:
                waiter.throw(LinkError(_CLOSED))

    def _begin(
        self,
        message: Message,
        body: Body,
        timeout_s: float,
        priority: int,
        waiter: "tuple[greenlet | FanOut[Message], type[Message]]",
        due_s: float = math.inf,
    ) -> tuple[int, bytes, float]:
        """Number the request, encode it, expect its answer. Request id 0: there is no room."""
        if self._pump.forked:
            raise LinkError("this client belongs to the parent process; make one after the fork")
        if self._closed:
            raise LinkError(_CLOSED)
        if not 0 < timeout_s <= TIMEOUT_S_MAX:
            raise ValueError(f"timeout_s of {timeout_s}: above 0, at most {TIMEOUT_S_MAX:g}")
        if len(body) > BODY_BYTES_MAX:
            raise ValueError(f"body of {len(body)} bytes: at most {BODY_BYTES_MAX}")
        asked_at = now()
        until = asked_at + timeout_s
        self._request_id = request_id = self._request_id + 1
        header = encode_header(
            Ask(
                request_id,
                self._sender,
                self._incarnation,
                int(timeout_s * 1e6),
                priority,
                int(asked_at * 1e6),
                raw(message),
            )
        )
        due_at = min(until, asked_at + due_s)
        if not self._pending.add(request_id, due_at, waiter):
            return 0, b"", 0.0
        if due_at < self._sweep_at:
            self._plan_sweep(asked_at)
        return request_id, header, until

    def _dealer(self, endpoint: str) -> Dealer:
        dealer = self._dealers.get(endpoint)
        if dealer is None:
            if len(self._dealers) >= SERVERS_MAX:
                self.forget(next(iter(self._dealers)))
            dealer = self._pump.dealer(endpoint, partial(self._heard, endpoint))
            self._dealers[endpoint] = dealer
        return dealer

    def _heard(self, endpoint: str, header: Header, body: Body) -> None:
        """In the event loop: an answer has come. Wake whoever waits for it."""
        kind = type(header)
        if kind is not ReplyHeader and kind is not Refusal:
            self._pump.traffic.malformed += 1
            return
        header = cast("ReplyHeader | Refusal", header)
        waiting = self._pending.find(header.request_id)
        if waiting is None:
            self.late_answers += 1
            return
        waiter, expect = waiting
        outcome = self._outcome(header, body, expect)
        if isinstance(waiter, FanOut):
            if waiter.heard(endpoint, outcome):
                self._pending.take(header.request_id)
                waiter.over()
        else:
            self._pending.take(header.request_id)
            waiter.switch(outcome)

    def _outcome(
        self, header: ReplyHeader | Refusal, body: Body, expect: type[Message]
    ) -> Reply[Message] | Refused:
        if isinstance(header, Refusal):
            retry_after_s = None if header.retry_after_us < 0 else header.retry_after_us / 1e6
            reason = header.reason if header.reason in _REASONS else "failed"
            return Refused(reason, header.detail, retry_after_s)  # type: ignore[arg-type]
        decoder = self._decoders.get(expect)
        if decoder is None:
            decoder = self._decoders[expect] = MessageDecoder(expect)
        try:
            message = decoder.decode(header.message)
        except RemoteProtocolError as error:
            self._pump.traffic.malformed += 1
            return Refused("failed", f"not the answer expected: {error}")
        return Reply(message, body, header.queued_us / 1e6)

    def _plan_sweep(self, asked_at: float) -> None:
        self._sweep_at = self._pending.wake_at
        self._sweep_timer.stop()
        if self._sweep_at < math.inf and not self._closed:
            self._sweep_timer = self._hub.loop.timer(max(SWEEP_S_MIN, self._sweep_at - asked_at))
            self._sweep_timer.start(self._sweep)

    def _sweep(self) -> None:
        try:
            for request_id in self._pending.late(now()):
                waiting = self._pending.take(request_id)
                if waiting is None:
                    continue  # One that was just woken has ended it.
                waiter, _ = waiting
                if not isinstance(waiter, FanOut):
                    waiter.switch(None)
                elif (due_at := waiter.due()) is None:
                    waiter.over()
                else:
                    self._pending.add(request_id, due_at, waiting)
        finally:
            self._plan_sweep(now())

    def _cancel(self, request_id: int, endpoints: Collection[str]) -> None:
        if self._pending.take(request_id) is None:
            return
        header = encode_header(Cancel(request_id))
        for endpoint in endpoints:
            dealer = self._dealers.get(endpoint)
            if dealer is not None:
                dealer.send_if_room(header, b"", now() + CANCEL_S_MAX)


_CLOSED = "the client was closed"
_TOO_MANY = Refused("busy", "too many requests in flight from this process", retry_after_s=0.1)
