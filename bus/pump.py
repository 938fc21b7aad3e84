"""Drive plain ZeroMQ sockets from gevent. The only file that imports `zmq`; decides nothing.

A ZeroMQ socket has a file descriptor that says "look", not "there is a message": it is
edge-triggered and shared by both directions. Each `Port` below owns one socket and looks
at it from the event loop. `zmq.green` does this per call and is some twenty times slower.

The rules, each with a test that fails without it (tests/sockets/test_pump_rules.py):
  P1  A look receives until nothing is left, or else asks for another look.
  P2  A look stops after `LOOK_S_MAX`, to be fair to others, and goes on in a later round of
      the loop: what gevent runs in the same round keeps timers from their turn.
  P3  A send can swallow the edge of an arrival: sends happen inside a turn, and every
      turn ends with a look.
  P4  A descriptor that is readable without an event for us is cleared by looking, so a
      peer that vanishes does not make the loop spin.
  P5  A slow safety check looks anyway and counts what it rescued; the count stays 0.
  P6  What waits to be sent is bounded in bytes, per peer and for all peers of a `Router`; past
      that a send is refused, not queued, and of all peers the one that has most waiting loses it.
  P7  Whatever a peer sends is received whole and counted; it never stops the port.
  P8  Whatever is raised in a port's turn harms one record, or one turn; the port goes on. gevent
      stops for good a watcher whose callback raises.
  P9  What listeners want is bounded: past `TOPICS_BYTES_MAX` a hub cuts everybody off, and
      keeps out for a while the key that wanted most.

Records for one peer are joined (see `frames`) until the end of the loop turn.
"""

import errno
import itertools
import logging
import math
import os
import select
import struct
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

import gevent
import zmq
from gevent.hub import Hub
from gevent.monkey import get_original
from zmq.utils import z85

from bus.clock import now
from bus.errors import ConfigError, RemoteProtocolError, SendQueueFullError
from bus.frames import BODY_BYTES_MAX, FRAME_BYTES_MAX, Body, Record, unjoin
from bus.headers import Header
from bus.outbox import RECORD_COST_BYTES, SEND_QUEUE_BYTES_MAX, Outbox
from bus.security import Security

T = TypeVar("T")

LOOK_S_MAX = 0.01  # One look receives for so long; then others have their turn (P2).
FLUSH_RECORDS = 64  # So many in one turn leave at once: 1.7 times as fast as all at its end.
SAFETY_CHECK_S = 2.0
HANDSHAKE_MS_MAX = 2000  # A peer told "not now" tries again after this, not after 30 s.
FAILED_PAUSE_S = 0.1  # A turn that raised is followed by another, if nothing else brings one.
FAILURES_TOLD_MAX = 100  # Different ones that are logged; all are counted.
REBIND_S_MAX = 5.0
HIGH_WATER_FRAMES = 64  # Small, so that waiting happens where it is seen: in our own queues.
NEWS_HIGH_WATER_FRAMES = 10_000  # News has no second try at one hub; bursts of beacons must fit.
BLOCKED_RETRY_S = 0.005
NEWS_PACE_S = 0.02  # Beacons trickle in one by one; at most this often do they wake us.
SEND_QUEUES_BYTES_MAX = 256 * 1024 * 1024  # What waits for all peers of one `Router` together.
CONNECTIONS_MAX = 4096
TOPIC_BYTES_MAX = 200
TOPICS_MAX = 256  # Of one `Subscriber`.
TOPICS_BYTES_MAX = 256 * 1024  # Of a hub; ZeroMQ needs some 60 times as much for them.
TOPIC_COST_BYTES = 64  # What each topic counts for besides its length.
SUBSCRIPTION_BYTES_MAX = 1024  # A longer one ends its connection; a CURVE handshake fits.
BARRED_S = 60.0
LISTEN = "listen"
ASK = "ask"  # What every key on the allow-list may do: connect to servers. They check the rest.
LINGER_MS = 200  # How long the last words of a closing process may take to leave.
SOCKETS_MAX = 16_384
_READ = 1
_NOBLOCK = int(zmq.NOBLOCK)
_SEND_MORE_NOBLOCK = int(zmq.SNDMORE | zmq.NOBLOCK)
_POLLOUT = int(zmq.POLLOUT)
_RECV_MORE = int(zmq.RCVMORE)
_EVENTS = int(zmq.EVENTS)
_poll = get_original("select", "poll")  # Not gevent's: it would wait, in the loop itself.
_SCHEMES = ("tcp://", "ipc://")  # Not inproc: that is how libzmq asks our own doorkeeper.
_MONITOR_EVENT = struct.Struct("=HI")
_UNREACHABLE = {zmq.EHOSTUNREACH, zmq.ENOTCONN}
_BIND_TROUBLE = {
    zmq.EADDRINUSE: "is taken: end the process that has it, or choose another port",
    zmq.EADDRNOTAVAIL: "is not an address of this machine: set the node's `address`",
    errno.ENODEV: "is not an address of this machine: set the node's `address`",
    errno.EACCES: "is not permitted: choose a port above 1023",
}

log = logging.getLogger(__name__)


class Meddler(Protocol):
    """A test's or chaos experiment's hand in the traffic of this process, record by record."""

    def __call__(self, *, outgoing: bool, peer: str) -> float:
        """How long to hold the record back, in seconds: 0 lets it pass, infinity drops it."""
        ...


class Traffic:
    """Plain integers that ports bump and anyone may read."""

    def __init__(self) -> None:
        self.frames_in: int = 0
        self.frames_out: int = 0
        self.records_in: int = 0
        self.records_out: int = 0
        self.malformed: int = 0
        """Frames or records that broke the protocol: dropped."""
        self.denied: int = 0
        """Frames of a key that is not, or no longer, on the allow-list: dropped."""
        self.failed: int = 0
        """What was raised by those who hear records, or in a turn: a bug (P8)."""
        self.crowded: int = 0
        """Connections turned away because there were too many, and hubs' listeners cut off
        because they wanted too many topics (P9)."""
        self.overflowed: int = 0
        """Records not sent because the queue to that peer was full (P6)."""
        self.unreachable: int = 0
        """Frames for a peer that has gone: dropped."""
        self.rescued: int = 0
        """Frames found by the safety check that no look had found (P5)."""


def _interpreted(kind: type[T]) -> type[T]:
    """Leave a class out of what is compiled: only then can it be referred to weakly."""
    return kind


@_interpreted
class Pump:
    """All sockets of one event loop. Belongs to the thread and process that made it."""

    def __init__(
        self,
        security: Security | None = None,
        *,
        send_queue_bytes_max: int = SEND_QUEUE_BYTES_MAX,
        send_queues_bytes_max: int = SEND_QUEUES_BYTES_MAX,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self.security = security
        self.send_queue_bytes_max = send_queue_bytes_max
        self.send_queues_bytes_max = send_queues_bytes_max
        self.connections_max = connections_max
        self.connections: Counter[str] = Counter()
        """Peers connected to what we have bound, by the permission it takes to connect."""
        self.barred: dict[str, float] = {}
        """Keys that may not listen until then (P9)."""
        self.forked = False
        """This is the child of the process that made it: its sockets are not ours to touch."""
        self.traffic = Traffic()
        self.meddler: Meddler | None = None
        self.hub: Hub = gevent.get_hub()
        self._context: zmq.Context[Any] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
        # When all processors are busy ZeroMQ's thread must not push ours aside for every packet:
        # a sixth less processor time for a write to three bricks. Idle ones it takes at once.
        self._context.set(zmq.THREAD_SCHED_POLICY, os.SCHED_BATCH)
        self._ports: list[Port] = []
        self._doorkeeper: _Doorkeeper | None = None
        self._told: set[str] = set()
        self._safety = self.hub.loop.timer(SAFETY_CHECK_S, SAFETY_CHECK_S, ref=False)
        self._safety.start(self._check)
        _pumps.add(self)

    def dealer(self, endpoint: str, heard: "Heard") -> "Dealer":
        return Dealer(self, endpoint, heard)

    def router(self, address: str, heard: "HeardFrom") -> "Router":
        return Router(self, address, heard)

    def publisher(self, endpoints: list[str]) -> "Publisher":
        return Publisher(self, endpoints)

    def subscriber(self, endpoints: list[str], heard: "HeardNews") -> "Subscriber":
        return Subscriber(self, endpoints, heard)

    def close(self) -> None:
        """Close every port; what was handed over has `LINGER_MS` to leave."""
        if self.forked:
            return
        _pumps.discard(self)  # Its loop may end before it is collected, and can be asked no more.
        self._safety.stop()
        for port in list(self._ports):
            port.close()
        self._context.destroy(linger=LINGER_MS)

    def disown(self) -> None:
        """In a forked child: to look at the parent's sockets there would spin for ever."""
        self.forked = True
        self._safety.stop()
        for port in self._ports:
            port.disown()

    def socket(self, kind: int) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.set(zmq.LINGER, LINGER_MS)
        socket.set(zmq.MAXMSGSIZE, BODY_BYTES_MAX + FRAME_BYTES_MAX)
        socket.set(zmq.SNDHWM, HIGH_WATER_FRAMES)
        socket.set(zmq.RCVHWM, HIGH_WATER_FRAMES)
        socket.set(zmq.TCP_KEEPALIVE, 1)
        socket.set(zmq.TCP_KEEPALIVE_IDLE, 30)
        socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS_MAX)
        socket.set(zmq.RECONNECT_IVL, 50)
        socket.set(zmq.RECONNECT_IVL_MAX, 1000)
        return socket

    def connect(self, socket: "zmq.Socket[bytes]", endpoint: str) -> None:
        if not endpoint.startswith(_SCHEMES):
            socket.close(0)
            raise ConfigError(f"{endpoint!r}: an endpoint begins with tcp:// or ipc://")
        if self.security is not None:
            socket.set(zmq.CURVE_SERVERKEY, self.security.server_public.encode())
            socket.set(zmq.CURVE_PUBLICKEY, self.security.public.encode())
            socket.set(zmq.CURVE_SECRETKEY, self.security.secret.encode())
        socket.set(zmq.IPV6, "[" in endpoint)
        try:
            socket.connect(endpoint)
        except zmq.ZMQError as error:
            socket.close(0)
            raise ConfigError(
                f"{endpoint}: not an endpoint that can be reached: {error}"
            ) from error

    def bind(self, socket: "zmq.Socket[bytes]", address: str, permission: str) -> str:
        """Bind, with the keys if there are any; whoever connects must have `permission`."""
        if self._doorkeeper is None:
            self._doorkeeper = _Doorkeeper(self)
        socket.set(zmq.ZAP_DOMAIN, permission.encode())
        if self.security is not None:
            socket.set(zmq.CURVE_SERVER, 1)
            socket.set(zmq.CURVE_SECRETKEY, self.security.server_secret.encode())
        _ConnectionCount(self, socket, permission)
        socket.set(zmq.IPV6, "[" in address)
        try:
            socket.bind(address)
        except zmq.ZMQError as error:
            socket.close(0)
            why = _BIND_TROUBLE.get(error.errno or 0, f"cannot be bound: {error}")
            raise ConfigError(f"{address} {why}") from error
        return cast(bytes, socket.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()

    def failed(self) -> None:
        """Count what was just raised, tell of it once, and go on (P8)."""
        self.traffic.failed += 1
        kind, error, traceback = sys.exc_info()
        assert error is not None
        if not isinstance(error, Exception):  # To end the process, above all.
            self.hub.handle_error(self, kind, error, traceback)
        elif (text := told(error)) not in self._told and len(self._told) < FAILURES_TOLD_MAX:
            self._told.add(text)
            # By a greenlet: a lock in there, or a slow disk, must not hold up the loop.
            gevent.spawn(log.error, "in a port's turn: %s", text, exc_info=error)

    def add(self, port: "Port") -> None:
        self._ports.append(port)

    def remove(self, port: "Port") -> None:
        self._ports.remove(port)

    def _check(self) -> None:
        for port in list(self._ports):
            port.rescue()


def told(error: BaseException) -> str:
    """What was raised, in a text that can be sent and logged whatever is in it."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 (to tell of it fails as well)
        text = type(error).__name__
    return text.encode(errors="backslashreplace").decode()


def bind_again(bind: Callable[[], T]) -> T:
    """Bind what was just closed. libzmq closes in the background: it is not free at once."""
    deadline = now() + REBIND_S_MAX
    while True:
        try:
            return bind()
        except ConfigError:
            if now() >= deadline:
                raise
        gevent.sleep(0.01)


Heard = Callable[[Header, Body], None]
"""What a port calls, in the event loop, for each record: it must be short and not wait."""
HeardFrom = Callable[[bytes, str, Header, Body], None]
"""The same with the routing id to answer to, and the public key it came with ('' if plain)."""
HeardNews = Callable[[str, Header], None]
"""The same with the topic; news has no body."""


class Port:
    """One socket and its place in the event loop: turns, looks, rescue."""

    def __init__(self, pump: Pump, socket: "zmq.Socket[bytes]") -> None:
        self._pump = pump
        self._traffic = pump.traffic
        self._socket = socket
        # The sugar layer over these calls costs as much as the calls themselves.
        self._send = zmq.backend.Socket.send.__get__(socket)
        self._recv = zmq.backend.Socket.recv.__get__(socket)
        self._get = zmq.backend.Socket.get.__get__(socket)
        self._loop = pump.hub.loop
        self._run_callback = self._loop.run_callback
        self._turn_is_due = False
        self._queued = 0
        self._blocked = False
        self._closed = False
        self._watcher = self._loop.io(socket.fileno(), _READ)
        self._later = self._loop.timer(0)
        self._resting = False
        pump.add(self)

    def start(self) -> None:
        self._watcher.start(self._turn)
        self._ask_for_turn()  # Whatever arrived before we watched raised its edge unseen.

    def close(self) -> None:
        """What was handed over has `LINGER_MS` to leave."""
        if self._closed:
            return
        self._closed = True
        self._flush()
        for watcher in (self._watcher, self._later):
            watcher.stop()
            watcher.close()
        self._pump.remove(self)
        self._socket.close(LINGER_MS)

    def disown(self) -> None:
        self._closed = True
        self._watcher.stop()
        self._later.stop()

    def rescue(self) -> None:
        """The safety check: look, although nobody said so, and count what that found (P5)."""
        if self._closed or self._turn_is_due or self._edge_is_up():
            return  # A look is on its way.
        before = self._traffic.frames_in
        self._turn()
        self._traffic.rescued += self._traffic.frames_in - before

    def _edge_is_up(self) -> bool:
        poll = _poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def _ask_for_turn(self) -> None:
        if not self._turn_is_due:
            self._turn_is_due = True
            self._run_callback(self._turn)

    def _ask_for_turn_later(self, after_s: float) -> None:
        """In another round of the loop, so that timers and other ports come first."""
        if not self._closed:
            self._later.stop()
            self._later = self._loop.timer(after_s)
            self._later.start(self._turn_rested)

    def _turn_rested(self) -> None:
        self._resting = False
        self._turn()

    def _turn(self) -> None:
        self._turn_is_due = False
        if self._closed:
            return
        try:
            self._flush()
            self._look()  # P3: after every send, and P4: also when nothing is there for us.
            if self._blocked and not self._closed:
                self._unblock()
        except BaseException:  # noqa: BLE001 (P8)
            self._pump.failed()
            self._ask_for_turn_later(FAILED_PAUSE_S)
            self._skip_rest()

    def _flush(self) -> None:
        """Send what waits, as far as the socket takes it; `_blocked` says if some is left."""

    def _unblock(self) -> None:
        """Make sure that a turn comes when there is room again."""

    def _look(self) -> None:
        if self._resting:
            return  # P2: a turn of this round, to send; the look comes in another.
        receive_one = self._receive_one
        until = now() + LOOK_S_MAX
        while True:
            try:
                receive_one()
            except zmq.Again:  # P1: until nothing is left.
                return
            if self._closed:  # By what it heard; or we are a child that was forked there.
                return
            if now() >= until:
                self._resting = True
                self._ask_for_turn_later(0)  # P2
                return

    def _receive_one(self) -> None:
        """Receive one message and hand on its records; `zmq.Again` if there is none."""
        raise zmq.Again

    def _skip_rest(self) -> None:
        """The rest of a message of which no more is wanted; the next one is then read whole."""
        if not self._closed:
            while self._get(_RECV_MORE):
                self._recv(_NOBLOCK)

    def _receive_rest(self) -> Body | None:
        """The part after the first, if there is one, uncopied. More parts than that are no
        message of ours; they are read all the same, so that the next message is read whole."""
        if not self._get(_RECV_MORE):
            return None
        following = cast(zmq.Frame, self._recv(_NOBLOCK, copy=False))
        if self._get(_RECV_MORE):
            self._skip_rest()
            raise RemoteProtocolError("more than two parts")
        return following.buffer

    def _records(self, frame: bytes) -> list[Record]:
        """What a frame holds; nothing, and a count, if it breaks the protocol (P7)."""
        traffic = self._traffic
        traffic.frames_in += 1
        try:
            records, unreadable = unjoin(frame, self._receive_rest())
        except RemoteProtocolError:
            traffic.malformed += 1
            return []
        traffic.malformed += unreadable
        traffic.records_in += len(records)
        return records

    def _meddled(
        self, *, outgoing: bool, peer: str, deliver: Callable[..., object], args: tuple[object, ...]
    ) -> bool:
        """Whether a meddler took this record away; it may hand it back later."""
        meddler = self._pump.meddler
        if meddler is None:
            return False
        held_s = meddler(outgoing=outgoing, peer=peer)
        if held_s <= 0:
            return False
        if held_s != math.inf:
            gevent.spawn_later(held_s, deliver, *args)
        return True

    def _send_frame(self, frame: bytes, following: Body | None) -> None:
        if following is None:
            self._send(frame, _NOBLOCK)
        else:
            self._send(frame, _SEND_MORE_NOBLOCK)
            self._send(following, _NOBLOCK, copy=False)


class Dealer(Port):
    """Requests to one server, and its answers."""

    def __init__(self, pump: Pump, endpoint: str, heard: Heard) -> None:
        socket = pump.socket(zmq.DEALER)
        socket.set(zmq.IMMEDIATE, 1)  # What waits for a connection waits in our queue (see outbox).
        pump.connect(socket, endpoint)
        super().__init__(pump, socket)
        self.endpoint = endpoint
        self._heard = heard
        self._outbox = Outbox(pump.send_queue_bytes_max)
        self.start()

    def send(self, header: bytes, body: Body, until: float) -> None:
        """Queue a record; it leaves at the end of this loop turn. Raises when the queue is full."""
        if self._pump.meddler is not None and self._meddled(
            outgoing=True, peer=self.endpoint, deliver=self.send_if_room, args=(header, body, until)
        ):
            return
        if not self.send_if_room(header, body, until):
            raise SendQueueFullError(self.endpoint)

    def send_if_room(self, header: bytes, body: Body, until: float) -> bool:
        """Queue a record, unless that many wait already that there is no room for it (P6)."""
        if not self._outbox.add(header, body, until):
            self._traffic.overflowed += 1
            return False
        self._traffic.records_out += 1
        if not self._turn_is_due:
            self._turn_is_due = True
            self._queued = 0
            self._run_callback(self._turn)
        self._queued += 1
        if self._queued % FLUSH_RECORDS == 0:
            self._flush()  # The peer need not idle until we are done; the turn ends with a look.
        return True

    def _flush(self) -> None:
        outbox = self._outbox
        self._blocked = False
        if not outbox.waiting_bytes:
            return
        flushed_at = now()
        while (waiting := outbox.next(flushed_at)) is not None:
            try:
                self._send_frame(*waiting)
            except zmq.Again:
                self._blocked = True
                return
            outbox.sent()
            self._traffic.frames_out += 1

    def _unblock(self) -> None:
        # The look may itself have taken in that there is room, and with it the edge that
        # would have said so. Reading EVENTS takes in all that is known now; later news of
        # room raises the descriptor.
        if self._get(_EVENTS) & _POLLOUT:
            self._ask_for_turn()

    def _receive_one(self) -> None:
        heard = self._heard
        for record in self._records(self._recv(_NOBLOCK)):
            try:
                if self._pump.meddler is None or not self._meddled(
                    outgoing=False, peer=self.endpoint, deliver=heard, args=record
                ):
                    heard(*record)
            except Exception:  # noqa: BLE001 (P8)
                self._pump.failed()


class Router(Port):
    """Requests from any number of peers, and the answers to them."""

    def __init__(self, pump: Pump, address: str, heard: HeardFrom) -> None:
        socket = pump.socket(zmq.ROUTER)
        socket.set(zmq.ROUTER_MANDATORY, 1)  # A peer that has gone is an error we can count.
        socket.set(zmq.ROUTER_HANDOVER, 0)
        self.endpoint = pump.bind(socket, address, ASK)
        super().__init__(pump, socket)
        self._heard = heard
        self._outboxes: dict[bytes, Outbox] = {}
        self._waiting_bytes = 0
        self._retry = self._loop.timer(BLOCKED_RETRY_S, BLOCKED_RETRY_S)
        self._allowed = None if pump.security is None else pump.security.allowed
        self.start()

    def send(self, routing_id: bytes, header: bytes, body: Body, until: float) -> None:
        """Queue a record; dropped, and counted, when the peer takes nothing or has gone."""
        if self._pump.meddler is not None and self._meddled(
            outgoing=True,
            peer=routing_id.hex(),
            deliver=self._queue,
            args=(routing_id, header, body, until),
        ):
            return
        self._queue(routing_id, header, body, until)

    def _queue(self, routing_id: bytes, header: bytes, body: Body, until: float) -> None:
        outbox = self._outboxes.get(routing_id)
        if outbox is None:
            outbox = Outbox(self._pump.send_queue_bytes_max)
            self._outboxes[routing_id] = outbox
        if not outbox.add(header, body, until):
            self._traffic.overflowed += 1
            return
        self._waiting_bytes += RECORD_COST_BYTES + len(header) + len(body)
        if self._waiting_bytes > self._pump.send_queues_bytes_max:
            self._make_room()
        self._traffic.records_out += 1
        if not self._turn_is_due:
            self._turn_is_due = True
            self._queued = 0
            self._run_callback(self._turn)
        self._queued += 1
        if self._queued % FLUSH_RECORDS == 0:
            self._flush()  # The peer need not idle until we are done; the turn ends with a look.

    def _make_room(self) -> None:
        """Nothing more for the peer that has most waiting: it takes nothing (P6)."""
        outboxes = self._outboxes
        slowest = max(outboxes, key=lambda routing_id: outboxes[routing_id].waiting_bytes)
        outbox = outboxes.pop(slowest)
        self._traffic.overflowed += len(outbox)
        self._waiting_bytes -= outbox.waiting_bytes

    def _flush(self) -> None:
        if not self._outboxes:
            return
        flushed_at = now()
        if self._blocked:
            self._blocked = False
            self._retry.stop()
        outboxes, self._outboxes = self._outboxes, {}
        for routing_id, outbox in outboxes.items():
            if not self._flush_to(routing_id, outbox, flushed_at):
                self._outboxes[routing_id] = outbox
                self._blocked = True
        self._waiting_bytes = sum(outbox.waiting_bytes for outbox in self._outboxes.values())

    def _unblock(self) -> None:
        # A ROUTER does not say which of its peers has room again; while one has none, try.
        self._retry.again(self._turn)

    def close(self) -> None:
        if not self._closed:
            self._retry.stop()
            self._retry.close()
        super().close()

    def _flush_to(self, routing_id: bytes, outbox: Outbox, flushed_at: float) -> bool:
        """Whether all of it has left, or never will."""
        while (waiting := outbox.next(flushed_at)) is not None:
            try:
                self._send(routing_id, _SEND_MORE_NOBLOCK)
                self._send_frame(*waiting)
            except zmq.Again:
                return False
            except zmq.ZMQError as error:
                if error.errno not in _UNREACHABLE:
                    raise
                self._traffic.unreachable += 1
                return True
            outbox.sent()
            self._traffic.frames_out += 1
        return True

    def _receive_one(self) -> None:
        routing_id = self._recv(_NOBLOCK)
        key = ""
        if self._allowed is None:
            frame = self._recv(_NOBLOCK)
        else:
            part = cast(zmq.Frame, self._recv(_NOBLOCK, copy=False))
            key, frame = str(part.get("User-Id")), part.bytes
            if not self._allowed.may(key, ""):  # Revoked since it connected.
                self._traffic.denied += 1
                return self._skip_rest()
        heard = self._heard
        for header, body in self._records(frame):
            try:
                if self._pump.meddler is None or not self._meddled(
                    outgoing=False,
                    peer=routing_id.hex(),
                    deliver=heard,
                    args=(routing_id, key, header, body),
                ):
                    heard(routing_id, key, header, body)
            except Exception:  # noqa: BLE001 (P8)
                self._pump.failed()


class Publisher(Port):
    """News to all hubs at once. What no hub takes is gone: that is what news is."""

    def __init__(self, pump: Pump, endpoints: list[str]) -> None:
        socket = pump.socket(zmq.PUB)
        socket.set(zmq.SNDHWM, NEWS_HIGH_WATER_FRAMES)
        for endpoint in endpoints:
            pump.connect(socket, endpoint)
        super().__init__(pump, socket)
        self._outboxes: dict[bytes, Outbox] = {}
        # Not watched: a PUB receives nothing but subscriptions, and takes them in when it sends.

    def send(self, topic: str, header: bytes) -> None:
        if self._pump.meddler is not None and self._meddled(
            outgoing=True, peer=topic, deliver=self._queue, args=(_on_wire(topic), header)
        ):
            return
        self._queue(_on_wire(topic), header)

    def _queue(self, topic: bytes, header: bytes) -> None:
        if self._closed:
            return
        outbox = self._outboxes.get(topic)
        if outbox is None:
            outbox = self._outboxes[topic] = Outbox()
        if not outbox.add(header, b"", math.inf):
            self._traffic.overflowed += 1
            return
        self._traffic.records_out += 1
        self._ask_for_turn()

    def _flush(self) -> None:
        outboxes, self._outboxes = self._outboxes, {}
        for topic, outbox in outboxes.items():
            while (waiting := outbox.next(0.0)) is not None:
                self._send(topic + waiting[0], _NOBLOCK)
                outbox.sent()
                self._traffic.frames_out += 1


def _on_wire(topic: str) -> bytes:
    """A topic with the zero byte that ends it; ValueError if it is none."""
    encoded = topic.encode()
    if len(encoded) > TOPIC_BYTES_MAX or b"\0" in encoded:
        raise ValueError(f"topic {topic!r}: at most {TOPIC_BYTES_MAX} bytes, none of them zero")
    return encoded + b"\0"


class Subscriber(Port):
    """News from all hubs. Looks at once when idle, then at most every `NEWS_PACE_S`:
    a thousand beacons a second must not be a thousand wake-ups."""

    def __init__(self, pump: Pump, endpoints: list[str], heard: HeardNews) -> None:
        socket = pump.socket(zmq.SUB)
        socket.set(zmq.RCVHWM, NEWS_HIGH_WATER_FRAMES)
        socket.set(zmq.SNDHWM, 4 * TOPICS_MAX)  # Past it ZeroMQ loses subscriptions, silently.
        for endpoint in endpoints:
            pump.connect(socket, endpoint)
        super().__init__(pump, socket)
        self._heard = heard
        self._pace = self._loop.timer(NEWS_PACE_S, NEWS_PACE_S)
        self._watching = True
        self._topics: set[bytes] = set()
        self.start()

    def subscribe(self, topic: str) -> None:
        self._topics.add(_on_wire(topic))
        if len(self._topics) > TOPICS_MAX:
            raise ValueError(f"more than {TOPICS_MAX} topics")
        self._socket.set(zmq.SUBSCRIBE, _on_wire(topic))
        self._ask_for_turn()

    def close(self) -> None:
        if not self._closed:
            self._pace.stop()
            self._pace.close()
        super().close()

    def _turn(self) -> None:
        if self._closed:
            return
        before = self._traffic.frames_in
        super()._turn()
        if self._closed:  # By what it heard.
            return
        if self._traffic.frames_in > before:
            if self._watching:
                self._watching = False
                self._watcher.stop()
                self._pace.again(self._turn)
        elif not self._watching:
            self._watching = True
            self._pace.stop()
            self._watcher.start(self._turn)
            self._ask_for_turn()  # An edge between the look and the start would be lost.

    def _receive_one(self) -> None:
        topic_bytes, _, frame = self._recv(_NOBLOCK).partition(b"\0")
        topic, heard = topic_bytes.decode(errors="replace"), self._heard
        for header, _ in self._records(frame):
            try:
                if self._pump.meddler is None or not self._meddled(
                    outgoing=False, peer=topic, deliver=heard, args=(topic, header)
                ):
                    heard(topic, header)
            except Exception:  # noqa: BLE001 (P8)
                self._pump.failed()


class Relay:
    """A hub: what publishers send to one address goes to all subscribers at another."""

    def __init__(
        self,
        pump: Pump,
        subscribe_at: str,
        publish_at: str,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`failed` is told when it could not bind again of its own accord, and is deaf."""
        self._pump = pump
        self._addresses = subscribe_at, publish_at
        self._failed = failed
        self._binding = False
        self._bind()

    def rebind(self) -> None:
        """Cut everyone off; who still may comes back by itself, who was revoked does not."""
        self.close()
        if not self._binding:
            self._binding = True
            try:
                bind_again(self._bind)
            finally:
                self._binding = False

    def close(self) -> None:
        self._inlet.close()
        self._outlet.close()

    def _bind(self) -> None:
        subscribe_at, publish_at = self._addresses
        self._outlet = _Outlet(self._pump, subscribe_at, self._crowded)
        try:
            self._inlet = _Inlet(self._pump, publish_at, self._outlet)
        except ConfigError:
            self._outlet.close()
            raise

    def _crowded(self, key: str) -> None:
        """ZeroMQ keeps every subscription, and ends no single connection: begin anew (P9)."""
        self._pump.traffic.crowded += 1
        if self._pump.barred.get(key, 0.0) <= now():
            self._pump.barred[key] = now() + BARRED_S
            log.error("listeners want too many topics, most of them the key %r", key)
        self.close()
        gevent.spawn(self._begin_anew)

    def _begin_anew(self) -> None:
        try:
            self.rebind()
        except ConfigError as error:
            log.warning("the hub is deaf: %s", error)
            if self._failed is not None:
                self._failed(error)


class _Outlet(Port):
    """The end of a hub that listeners connect to. What they want goes no further: a hub takes
    in all news, and ZeroMQ passes on what each wants. Here it is only measured (P9)."""

    def __init__(self, pump: Pump, address: str, crowded: Callable[[str], None]) -> None:
        socket = pump.socket(zmq.XPUB)
        socket.set(zmq.SNDHWM, NEWS_HIGH_WATER_FRAMES)
        socket.set(zmq.MAXMSGSIZE, SUBSCRIPTION_BYTES_MAX)
        pump.bind(socket, address, LISTEN)
        super().__init__(pump, socket)
        self._crowded = crowded
        self._wanted_by: dict[bytes, str] = {}
        self._wanted_bytes = 0
        self.start()

    def pass_on(self, frame: bytes) -> None:
        self._send(frame, _NOBLOCK)
        self._ask_for_turn()  # P3

    def _receive_one(self) -> None:
        """ZeroMQ tells when the first listener wants a topic, and when nobody does any more."""
        part = cast(zmq.Frame, self._recv(_NOBLOCK, copy=False))
        wanted, topic = part.bytes[:1], part.bytes[1:]
        self._skip_rest()
        self._traffic.frames_in += 1
        if wanted == b"\1" and topic not in self._wanted_by:
            key = "" if self._pump.security is None else str(part.get("User-Id"))
            self._wanted_by[topic] = key
            self._wanted_bytes += TOPIC_COST_BYTES + len(topic)
            if self._wanted_bytes > TOPICS_BYTES_MAX:
                self._crowded(self._greediest())
        elif wanted == b"\0" and self._wanted_by.pop(topic, None) is not None:
            self._wanted_bytes -= TOPIC_COST_BYTES + len(topic)
        elif wanted not in (b"\0", b"\1"):
            self._traffic.malformed += 1

    def _greediest(self) -> str:
        wanted: Counter[str] = Counter()
        for topic, key in self._wanted_by.items():
            wanted[key] += TOPIC_COST_BYTES + len(topic)
        return wanted.most_common(1)[0][0]


class _Inlet(Port):
    """The end of a hub that publishers connect to. Passes frames on as they are: whoever
    listens checks them anyway."""

    def __init__(self, pump: Pump, address: str, outlet: _Outlet) -> None:
        socket = pump.socket(zmq.SUB)
        socket.set(zmq.RCVHWM, NEWS_HIGH_WATER_FRAMES)
        socket.set(zmq.MAXMSGSIZE, 2 * FRAME_BYTES_MAX)
        socket.set(zmq.SUBSCRIBE, b"")
        pump.bind(socket, address, "publish")
        super().__init__(pump, socket)
        self._outlet = outlet
        self.start()

    def _receive_one(self) -> None:
        frame = self._recv(_NOBLOCK)
        self._traffic.frames_in += 1
        if self._get(_RECV_MORE):
            self._skip_rest()
            self._traffic.malformed += 1
            return
        self._outlet.pass_on(frame)


class _Doorkeeper(Port):
    """Answers libzmq's question, for each new connection, whether it may come in (ZAP)."""

    def __init__(self, pump: Pump) -> None:
        socket: zmq.Socket[bytes] = pump.socket(zmq.ROUTER)
        socket.bind("inproc://zeromq.zap.01")
        super().__init__(pump, socket)
        self.start()

    def _receive_one(self) -> None:
        parts = [self._recv(_NOBLOCK)]
        while self._get(_RECV_MORE):
            parts.append(self._recv(_NOBLOCK))
        try:
            routing_id, _, version, request_id, domain, _, _, mechanism, *credentials = parts
            key = z85.encode(credentials[0]).decode() if mechanism == b"CURVE" else ""
            permission = domain.decode()
        except (ValueError, IndexError):  # Not libzmq: nobody gets in by that.
            self._traffic.malformed += 1
            return
        # "300" is "not now": the peer tries again, and a key that is added to the list later,
        # or a peer that found us full, gets in without a restart.
        status = (b"200", b"OK") if self._may_enter(key, permission) else (b"300", b"denied")
        answer = [routing_id, b"", version, request_id, *status, key.encode(), b""]
        self._socket.send_multipart(answer, _NOBLOCK)
        self._ask_for_turn()

    def _may_enter(self, key: str, permission: str) -> bool:
        security = self._pump.security
        if self._pump.connections[permission] > self._pump.connections_max:
            self._traffic.crowded += 1
            return False
        if security is None:
            return True
        barred = permission == LISTEN and self._pump.barred.get(key, 0.0) > now()  # P9
        if (
            key
            and not barred
            and security.allowed.may(key, "" if permission == ASK else permission)
        ):
            return True
        self._traffic.denied += 1
        return False


class _ConnectionCount(Port):
    """Counts who is connected to a bound socket, by what libzmq tells of its connections."""

    def __init__(self, pump: Pump, bound: "zmq.Socket[bytes]", permission: str) -> None:
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | zmq.EVENT_MONITOR_STOPPED
        # An address of our own: pyzmq's has the descriptor in it, which comes again at once
        # when a socket is bound anew, and then is still taken.
        monitor = bound.get_monitor_socket(events, f"inproc://monitor-{next(_monitors)}")
        super().__init__(pump, monitor)
        self._permission = permission
        self._counted = 0
        self.start()

    def _receive_one(self) -> None:
        event = _MONITOR_EVENT.unpack_from(self._recv(_NOBLOCK))[0]
        self._skip_rest()
        if event == zmq.EVENT_MONITOR_STOPPED:
            self._pump.connections[self._permission] -= self._counted
            self.close()
            raise zmq.Again
        change = 1 if event == zmq.EVENT_ACCEPTED else -1
        self._counted += change
        self._pump.connections[self._permission] += change


_monitors = itertools.count()
_pumps: "weakref.WeakSet[Pump]" = weakref.WeakSet()


def _disown_after_fork() -> None:
    for pump in _pumps:
        pump.disown()


os.register_at_fork(after_in_child=_disown_after_fork)


def new_keypair() -> tuple[str, str]:
    """A fresh public and secret key, in z85 text."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def zmq_features() -> dict[str, object]:
    """What the ZeroMQ library of this machine is and can do, for `softstate doctor`."""
    return {
        "version": zmq.zmq_version(),
        "curve": zmq.has("curve"),
        "max_sockets": SOCKETS_MAX,
    }
