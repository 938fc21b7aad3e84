"""One process's membership of the cluster: everything a role is handed. Wiring and one loop.

A member announces itself with a beacon each period, keeps the liveness table by the beacons
it hears, pings whom the table doubts, and answers pings itself. A role adds its handlers and
statistics, says `live()`, and `wait()`s. A program that merely links us joins with `linked`.

What always holds:
  B1  Neither a moment without descriptors nor a mistake in a role's callback ends a loop: it is
      logged and counted. A mistake of our own ends the process (`wait` raises it).
  B2  There is no connection to a life that is over, as far as we know.
"""

import logging
import os
import signal
from collections.abc import Callable
from typing import TypeVar

import gevent
from gevent.event import Event as Flag

from bus.client import Client
from bus.clock import now
from bus.config import Config
from bus.descriptors import connections_allowed
from bus.errors import BusError, ConfigError
from bus.fault_shell import FaultShell
from bus.headers import News as NewsHeader
from bus.identity import Identity
from bus.keys import AllowList, load_security
from bus.liveness import Liveness
from bus.messages import Beacon, Exited, Happening, InjectFault, Message, Ping, Pong, State
from bus.metrics import MetricsServer
from bus.news import HeardNews, News
from bus.peers import (
    Appeared,
    Change,
    Died,
    Forgotten,
    Left,
    Output,
    Peer,
    PingPeer,
    Replaced,
    ResignTo,
    Returned,
)
from bus.process_orders import CONTROL
from bus.pump import Pump
from bus.replies import Reply
from bus.server import Server
from bus.statistics import Statistics
from bus.vitals import Vitals

M = TypeVar("M", bound=Message)

BEACON_TOPIC = "beacon"
EVENT_TOPIC = "event"
EXIT_TOPIC = "exit"

PING_S_MIN = 0.1  # However short the period, a ping gets this long on a busy machine.
KEYS_CHECK_S = 2.0  # A revoked key is cut off within 10 s; this is our part of it.
LOOP_S_MAX = 0.5
LAST_WORDS_S = 1.0  # How long the last answers of a peer may take to come after its goodbye.
REASON_LENGTH_MAX = 1000  # Of an event. Whoever wrote it, it must fit into a message.
SUBJECT_LENGTH_MAX = 200
UNTOLD_EVENTS_MAX = 100  # Events of the first moments, kept until a hub is there to carry them.

log = logging.getLogger(__name__)


class Member:
    """Belongs to the event loop of the thread that joined."""

    def __init__(self, config: Config, identity: Identity, *, linked: bool, restarts: int) -> None:
        self.config = config
        self.identity = identity
        self.state: State = "starting"
        """What the beacon says of us; see `live`."""
        self.linked = linked
        self.restarts = restarts
        self.statistics = Statistics()
        self.resigned = False
        """A later life of our own id is live: this process must end."""
        self.faults: FaultShell | None = None
        """How this process is made sick on purpose, where the configuration allows it."""
        self._joined_at = now()
        self._ended = Flag()
        self._changes: list[Callable[[Change], None]] = []
        self._exits: list[HeardNews[Exited]] = []
        self._keys_changes: list[Callable[[], None]] = []
        self._server: Server | None = None
        self._metrics: MetricsServer | None = None
        self._loops: list[gevent.Greenlet[..., None]] = []
        self._closed = False
        self._heard_ourselves = False
        self._untold: list[Happening] = []
        self._failure: BaseException | None = None
        self._endpoints: dict[str, str] = {}  # Of everyone whose life is not over.
        self._steps_failed = self.statistics.counter(
            "steps_failed", "Steps of our loops that the machine did not let us do"
        )
        self._callbacks_failed = self.statistics.counter(
            "callbacks_failed", "Callbacks of the role that raised"
        )
        beacons = config.beacons
        self.liveness = Liveness(
            identity.id,
            identity.incarnation,
            period_s=beacons.period_s,
            suspect_after=beacons.suspect_after,
            dead_after=beacons.dead_after,
            place=(identity.node, os.getpid()),
            now=self._joined_at,
        )

    @classmethod
    def join(
        cls, config: Config, identity: Identity, *, linked: bool = False, restarts: int = 0
    ) -> "Member":
        """Open the sockets and begin to announce ourselves, as `starting`."""
        member = cls(config, identity, linked=linked, restarts=restarts)
        try:
            member._open()
        except BaseException:
            member.close()
            raise
        return member

    @property
    def server(self) -> Server:
        if self._server is None:
            raise ConfigError(
                "a linked program without the cluster's secret key cannot serve requests"
            )
        return self._server

    def live(self) -> None:
        """The role is ready for work: say so at once."""
        self.state = "live"
        self._announce()
        if not self.linked:
            reason = f"restart {self.restarts}" if self.restarts else "first start"
            self.event("started", self.identity.id, f"{reason}, on {self.identity.node}")

    def drain(self) -> None:
        """The role takes on nothing new: say so at once."""
        self.state = "draining"
        self._announce()

    def leave(self) -> None:
        """The role is done and about to end: say goodbye at once, so that nobody asks any more."""
        self.state = "offline"
        self._announce()

    def publish(self, topic: str, message: Message) -> None:
        self.news.publish(topic, message)

    def subscribe(self, topic: str, kind: type[M], heard: HeardNews[M]) -> None:
        """Hear all news on a topic: see `News.subscribe`."""
        self.news.subscribe(topic, kind, heard)

    def event(self, kind: str, subject: str, reason: str) -> None:
        """Tell people, and the monitor, of something notable. What is too long is cut."""
        subject = _speakable(subject, SUBJECT_LENGTH_MAX)
        reason = _speakable(reason, REASON_LENGTH_MAX)
        log.info("%s %s: %s", kind, subject, reason)
        happening = Happening(kind, subject, reason)
        if self._heard_ourselves:
            self.news.publish(EVENT_TOPIC, happening)
        elif len(self._untold) < UNTOLD_EVENTS_MAX:
            self._untold.append(happening)

    def peers(self, role: str = "") -> list[Peer]:
        """Everyone to rely on now, of that role if one is given."""
        return self.liveness.live(role)

    def on_change(self, heard: Callable[[Change], None]) -> None:
        """Call `heard`, in the event loop, for each change of the liveness table."""
        self._changes.append(heard)

    def off_change(self, heard: Callable[[Change], None]) -> None:
        """Call `heard` no more."""
        self._changes.remove(heard)

    def on_exit(self, heard: HeardNews[Exited]) -> None:
        """Call `heard`, in the event loop, whenever somebody says that a process was reaped; also
        for one that said goodbye or was never heard of, for which there is no change."""
        self._exits.append(heard)

    def on_keys_taken_away(self, heard: Callable[[], None]) -> None:
        """Call `heard` when a key was revoked or may do less than before."""
        self._keys_changes.append(heard)

    def exited(self, exited: Exited) -> None:
        """A node agent reaped that process."""
        life = exited.id, exited.incarnation
        self._perform(self.liveness.exited(*life, exited.reason, now()))

    def fail(self, error: BaseException) -> None:
        """What this process is there for can be done no more: `wait` ends, and raises `error`."""
        self._failure = error
        self._ended.set()

    def wait(self) -> None:
        """Serve until this process is told to end (SIGTERM, SIGINT), resigns, fails, or `close`."""
        handlers = [
            gevent.signal_handler(number, self._ended.set)
            for number in (signal.SIGTERM, signal.SIGINT)
        ]
        try:
            self._ended.wait()
        finally:
            for handler in handlers:
                handler.cancel()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Say goodbye and close every socket."""
        if self._closed:
            return
        self._closed = True
        self._ended.set()
        gevent.killall(self._loops)
        if self.faults is not None:
            self.faults.close()
        if self._metrics is not None:
            self._metrics.close()
        if hasattr(self, "news"):
            if not self.resigned:
                self.leave()
            self.news.close()
        if hasattr(self, "_vitals"):
            self._vitals.close()
        if self._server is not None:
            self._server.close()
        if hasattr(self, "client"):
            self.client.close()
        if hasattr(self, "pump"):
            self.pump.close()

    def _open(self) -> None:
        config, identity = self.config, self.identity
        keys = config.keys
        security = None
        if keys is not None:
            security = load_security(keys.directory, keys.name, connects_only=self.linked)
        self.pump = Pump(
            security,
            send_queue_bytes_max=config.limits.send_queue_bytes_max,
            connections_max=connections_allowed(config.limits.connections_max),
        )
        self.client = Client(self.pump, identity)
        address = config.address_of(identity.node)
        if security is None or security.server_secret:
            self._server = Server(
                self.pump,
                identity,
                f"tcp://{address}:*",
                inbox_max=config.limits.inbox_max,
                workers_max=config.limits.workers_max,
            )
        self.news = News(self.pump, identity, config.hubs)
        self.news.subscribe(BEACON_TOPIC, Beacon, self._heard_beacon)
        self.news.subscribe(EXIT_TOPIC, Exited, self._heard_exit)
        if config.chaos and self._server is not None and not self.linked:
            self.faults = FaultShell(self.pump, self.statistics, identity, self.event)
            self._server.on(InjectFault, self.faults.inject, permission=CONTROL)
        self._vitals = Vitals(self.statistics, self.pump, self.client, self._server, self.liveness)
        if config.metrics.enabled:
            self._metrics = MetricsServer(self.statistics, identity, address)
            self._metrics.start()
        self._loops = [gevent.spawn(self._beat), gevent.spawn(self._judge)]
        if security is not None and isinstance(security.allowed, AllowList):
            self._loops.append(gevent.spawn(self._watch_keys, security.allowed))
        for loop in self._loops:
            loop.link_exception(self._broke)  # B1

    def _broke(self, loop: "gevent.Greenlet[..., None]") -> None:
        assert loop.exception is not None
        self.fail(loop.exception)

    def _try(self, step: Callable[[], object]) -> None:
        """One step of a loop."""
        try:
            step()
        except (OSError, BusError) as error:
            self._steps_failed.add()  # B1
            log.warning("%s: %s", type(error).__name__, error)

    def _tell(self, heard: Callable[..., None], *facts: object) -> None:
        """Call back a role."""
        try:
            heard(*facts)
        except Exception:
            self._callbacks_failed.add()  # B1
            log.exception("a callback of this role failed")

    def _beat(self) -> None:
        period_s = self.config.beacons.period_s
        while True:
            self._try(self._announce)
            due_at = now() + period_s
            gevent.sleep(period_s)
            self._vitals.loop_lag_s = max(0.0, now() - due_at)

    def _announce(self) -> None:
        me = self.identity
        announced_at = now()
        self._vitals.refresh(announced_at)
        beacon = Beacon(
            role=me.role,
            node=me.node,
            pid=os.getpid(),
            endpoint="" if self._server is None else self._server.endpoint,
            state=self.state,
            age_s=announced_at - self._joined_at,
            restarts=self.restarts,
            linked=self.linked,
            period_s=self.config.beacons.period_s,
            metrics_url="" if self._metrics is None else self._metrics.url,
            statistics=self.statistics.sample(announced_at),
        )
        self.news.publish(BEACON_TOPIC, beacon)

    def _judge(self) -> None:
        while True:
            self._try(lambda: self._perform(self.liveness.advance(now())))
            gevent.sleep(min(max(self.liveness.wake_at - now(), 0.005), LOOP_S_MAX))

    def _heard_beacon(self, header: NewsHeader, beacon: Beacon) -> None:
        if not self._heard_ourselves and header.sender == self.identity.id:
            self._heard_ourselves = True  # A hub carries what we say: nothing is said in vain.
            for happening in self._untold:
                self.news.publish(EVENT_TOPIC, happening)
            self._untold.clear()
        outputs = self.liveness.heard(header.sender, header.incarnation, beacon, now())
        if outputs:
            self._perform(outputs)

    def _heard_exit(self, header: NewsHeader, exited: Exited) -> None:
        self.exited(exited)
        for heard in self._exits:
            self._tell(heard, header, exited)

    def _perform(self, outputs: list[Output]) -> None:
        for output in outputs:
            match output:
                case PingPeer():
                    gevent.spawn(self._ping, output)
                case ResignTo():
                    self._resign(output)
                case _:
                    self._keep_connections(output)
                    for heard in tuple(self._changes):
                        self._tell(heard, output)

    def _keep_connections(self, change: Change) -> None:
        match change:
            case Died() | Replaced() | Forgotten():
                self.client.forget(self._endpoints.pop(change.id, ""))  # B2
            case Left():
                endpoint = self._endpoints.pop(change.id, "")
                gevent.spawn_later(LAST_WORDS_S, self.client.forget, endpoint)  # B2
            case _:
                pass
        if isinstance(change, Appeared | Replaced | Returned):
            peer = self.liveness.peer(change.id)
            if peer is not None:
                self._endpoints[peer.id] = peer.endpoint

    def _ping(self, order: PingPeer) -> None:
        timeout_s = max(PING_S_MIN, self.config.beacons.period_s * self.config.beacons.dead_after)
        try:
            reply = self.client.ask(order.endpoint, Ping(), expect=Pong, timeout_s=timeout_s)
        except BusError:  # No answer, or no way to ask: its silence decides.
            return
        if isinstance(reply, Reply):
            pong = reply.message
            self._perform(self.liveness.answered(pong.id, pong.incarnation, now()))

    def _resign(self, order: ResignTo) -> None:
        reason = f"another process is {self.identity.id} now, incarnation {order.incarnation}"
        self.event("resigned", self.identity.id, reason)
        self.resigned = True
        self._ended.set()

    def _watch_keys(self, allowed: AllowList) -> None:
        while True:
            gevent.sleep(KEYS_CHECK_S)
            self._try(lambda: self._look_at_keys(allowed))

    def _look_at_keys(self, allowed: AllowList) -> None:
        if allowed.refresh():
            self.event("revoked", self.identity.id, "keys were taken off the allow-list")
            for heard in self._keys_changes:
                self._tell(heard)


def _speakable(words: str, length_max: int) -> str:
    """As much of it as may be said, in letters that the wire knows: paths may have others."""
    return words[:length_max].encode(errors="replace").decode()
