"""A whole cluster in one thread: seeded chance, virtual time, a bad network, fallible hubs.

A process is an *actor*: production machines behind a few lines that turn frames into calls and
answers into effects. Only clock and wire are replaced, so the same seed gives the same run.

What goes wrong: loss, copies, delays that differ by path and direction, stragglers that come two
minutes late, clocks that start anywhere and run fast or slow (all the time, as `weather` and
`rates` say); and by one verb each, `kill`, `start` (with loss of memory), `pause`, `resume`, `cut`
(one way), `isolate`. A hub is a name as any other: what is published reaches everyone who hears its
topic through each hub that is up, and a hub that is paused holds back what it got and passes it on
late. A process of the same name shares its fate. `hurt` picks harms at random; `heal` ends them
all.

When a check fails, the error ends with the last events. `noted` keeps what actors reported.
"""

import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

HARM_S_MAX = 8.0
STRAGGLER_S_MIN = 0.3
AT_ONCE_MAX = 10_000
"""Events without time passing: more, and somebody wakes for nothing, for ever."""
HEALED_S = 1.0
"""After `heal`, what was under way arrives within this time."""
TRANSCRIPT_LINES = 60
NEVER = float("inf")


class Send(msgspec.Struct, frozen=True):
    """Directly to one process, past the hubs."""

    to: str
    frame: bytes


class Publish(msgspec.Struct, frozen=True):
    """To everyone who hears that topic, the sender too, once through each hub."""

    frame: bytes
    topic: str = ""


class Note(msgspec.Struct, frozen=True):
    """Keep this for the checks and the transcript."""

    what: object


Effect = Send | Publish | Note


class Actor(Protocol):
    """One life of one process. `now` is its own clock."""

    @property
    def wake_at(self) -> float: ...

    def advance(self, now: float) -> list[Effect]: ...

    def receive(self, sender: str, frame: bytes, now: float) -> list[Effect]:
        """A frame sent to this process."""
        ...

    def hear(self, sender: str, frame: bytes, now: float) -> list[Effect]:
        """A published frame, perhaps for the second time."""
        ...


class Weather(msgspec.Struct, frozen=True, kw_only=True):
    """How bad the network is all the time. Published frames cross two paths, sent ones one."""

    loss: float = 0.0
    """Share of frames lost on a path to or from a hub."""
    loss_direct: float = 0.0
    """Share of frames lost on a path between two processes."""
    copies: float = 0.0
    """Share of frames that arrive twice."""
    delay_s: Sequence[float] = (0.001,)
    """Mean delays; each path, in each direction, draws its own."""
    delay_s_max: float = 0.4
    steady: bool = False
    """Delays are near their means; if not, most are shorter and some much longer."""
    stragglers: float = 0.0
    """Share of frames that come much later, up to `straggle_s_max`: most of them not by much."""
    straggle_s_max: float = 120.0


CALM = Weather()


class Node:
    """One process, up or not, with a clock that starts anywhere and runs fast or slow."""

    def __init__(
        self,
        world: "World",
        name: str,
        make: Callable[[float], Actor],
        hears: Callable[[str], bool] = lambda _: True,
        rate: float | None = None,
    ) -> None:
        self.name = name
        self.hears = hears
        self.actor: Actor | None = None
        self.up_since = NEVER
        self._world = world
        self._make = make
        self._offset_s = world.chance.uniform(0, 1e6)
        self._rate = world.chance.uniform(*world.rates) if rate is None else rate
        self._wake_id = 0

    @property
    def now(self) -> float:
        return self._offset_s + self._world.now * self._rate

    def true_time(self, at: float) -> float:
        """When its clock shows `at`, in the world's time."""
        return (at - self._offset_s) / self._rate

    def start(self) -> None:
        """Begin a life that remembers nothing."""
        self.up_since = self._world.now
        self.actor = self._make(self.now)
        self._act(self.actor.advance(self.now))

    def stop(self) -> None:
        self.actor = None
        self.up_since = NEVER

    def do(self, what: Callable[[Actor, float], list[Effect]]) -> None:
        """Hand something to the actor: now, or when its pause ends; never, if it is down."""
        self._world.unless_paused(self.name, lambda: self._do(what))

    def _do(self, what: Callable[[Actor, float], list[Effect]]) -> None:
        if self.actor is not None:
            self._act(what(self.actor, self.now))

    def _act(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._world.perform(self.name, effect)
        self._wake_id += 1  # Only the newest wake counts: each call may move it either way.
        if self.actor is not None and self.actor.wake_at < NEVER:
            wake_id = self._wake_id
            delay_s = max(0.0, (self.actor.wake_at - self.now) / self._rate)
            wake = lambda: self._wake(wake_id)  # noqa: E731
            self._world.after(delay_s, lambda: self._world.unless_paused(self.name, wake))

    def _wake(self, wake_id: int) -> None:
        actor = self.actor
        if wake_id == self._wake_id and actor is not None:
            # At the very least at `wake_at`: rounding must not make it too early for ever.
            self._act(actor.advance(max(self.now, actor.wake_at)))


def news(hub: str) -> str:
    """The end of a path at a hub, as against that of the process of the same name."""
    return f"news:{hub}"


class World:
    """The cluster, its network and its troubles. `now` is true time, which no actor sees."""

    def __init__(
        self,
        seed: int,
        *,
        hubs: Sequence[str] = (),
        weather: Weather = CALM,
        rates: tuple[float, float] = (0.99, 1.01),
        transcript_lines: int | None = TRANSCRIPT_LINES,
    ) -> None:
        """`rates`: the slowest and the fastest clock. `transcript_lines`: None keeps them all."""
        self.seed = seed
        self.chance = random.Random(seed)
        self.now = 0.0
        self.rates = rates
        self.hubs = tuple(hubs)
        self._weather = weather
        self.nodes: dict[str, Node] = {}
        self.noted: list[tuple[float, str, object]] = []
        self.seen: Counter[str] = Counter()
        self._hub_down: set[str] = set()
        self._held: dict[str, list[Callable[[], None]]] = {}  # For whoever is paused.
        self._cut_until: dict[tuple[str, str], float] = {}
        self._delay_mean_s: dict[tuple[str, str], float] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._on_the_way: set[int] = set()  # Of the queue, what is a frame.
        self._scheduled = 0
        self.events = 0
        self._hurting = False
        self.transcript: deque[str] = deque(maxlen=transcript_lines)

    @property
    def weather(self) -> Weather:
        return self._weather

    @weather.setter
    def weather(self, weather: Weather) -> None:
        self._weather = weather
        self._delay_mean_s.clear()  # Each path draws anew.

    # Running.

    def unless_paused(self, name: str, what: Callable[[], None]) -> None:
        """Now, or when the pause ends; never, if it ends with a kill."""
        if name in self._held:
            self._held[name].append(what)
        else:
            what()

    def add(
        self,
        name: str,
        make: Callable[[float], Actor],
        *,
        hears: Callable[[str], bool] = lambda _: True,
        rate: float | None = None,
    ) -> Node:
        """`make(now)` makes the actor, at first and after each `start`. `hears(topic)`: whether it
        wants what is published under that. `rate`: of its clock, if not drawn."""
        node = self.nodes[name] = Node(self, name, make, hears, rate)
        node.start()
        return node

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._queue, (self.now + delay_s, self._scheduled, what))

    def run(self, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        """Let time pass, with `check` after every event; failures are told with the transcript."""
        end = self.now + seconds
        at_once = 0
        try:
            while self._queue and self._queue[0][0] <= end:
                at, number, what = heapq.heappop(self._queue)
                at_once = at_once + 1 if at == self.now else 0
                assert at_once < AT_ONCE_MAX, "time stands still: somebody wakes for nothing"
                self.now = at
                self._on_the_way.discard(number)
                self.events += 1
                what()
                check()
        except AssertionError as error:
            raise AssertionError(self.told(str(error))) from error
        self.now = end

    def told(self, problem: str) -> str:
        """The problem, with the seed and the events that led to it."""
        last = "\n".join(self.transcript)
        return f"seed {self.seed}, t={self.now:.3f}: {problem}\nlast events:\n{last}"

    def log(self, what: str) -> None:
        self.transcript.append(f"  {self.now:9.3f} {what}")

    # The network.

    def perform(self, source: str, effect: Effect) -> None:
        match effect:
            case Send(to, frame):
                receive = self._receiver(source, to, frame)
                self._carry(source, to, self.weather.loss_direct, receive)
            case Publish(frame, topic):
                for hub in self.hubs:
                    relay = self._relay(source, hub, frame, topic)
                    self._carry(source, news(hub), self.weather.loss, relay)
            case Note(what):
                self.noted.append((self.now, source, what))
                self.seen[type(what).__name__] += 1
                self.log(f"{source}: {what}")

    def _receiver(self, source: str, target: str, frame: bytes) -> Callable[[], None]:
        def receive() -> None:
            if target in self.nodes:
                self.nodes[target].do(lambda actor, now: actor.receive(source, frame, now))

        return receive

    def _relay(self, source: str, hub: str, frame: bytes, topic: str) -> Callable[[], None]:
        def relay() -> None:
            if hub in self._hub_down:
                return
            for target in self.nodes.values():
                if not target.hears(topic):
                    continue
                deliver = self._hearer(source, target, frame)
                self._carry(news(hub), target.name, self.weather.loss, deliver)

        return lambda: self.unless_paused(hub, relay)

    def _hearer(self, source: str, target: Node, frame: bytes) -> Callable[[], None]:
        return lambda: target.do(lambda actor, now: actor.hear(source, frame, now))

    def _carry(self, source: str, target: str, loss: float, arrive: Callable[[], None]) -> None:
        copies = 2 if self.chance.random() < self.weather.copies else 1
        for _ in range(copies):
            if not self.is_cut(source, target) and self.chance.random() >= loss:
                self.after(self._delay_s(source, target), arrive)
                self._on_the_way.add(self._scheduled)

    def is_cut(self, source: str, target: str) -> bool:
        return self.now < self._cut_until.get((source, target), 0.0)

    def _delay_s(self, source: str, target: str) -> float:
        path = (source, target)
        if self.weather.stragglers and self.chance.random() < self.weather.stragglers:
            # As often up to one second as from one to ten: most are late by the length of a lease.
            orders = math.log(self.weather.straggle_s_max / STRAGGLER_S_MIN)
            return STRAGGLER_S_MIN * math.exp(self.chance.uniform(0, orders))
        if path not in self._delay_mean_s:
            self._delay_mean_s[path] = self.chance.choice(self.weather.delay_s)
        mean_s = self._delay_mean_s[path]
        if self.weather.steady:
            return min(mean_s * self.chance.uniform(0.6, 1.4), self.weather.delay_s_max)
        return min(self.chance.expovariate(1 / mean_s), self.weather.delay_s_max)

    # Harm, one verb each. A hub's name means the relay, and the process of that name if any.

    def kill(self, name: str) -> None:
        self._harmed("kill", name)
        self._held.pop(name, None)
        if name in self.hubs:
            self._hub_down.add(name)
        if name in self.nodes:
            self.nodes[name].stop()

    def start(self, name: str) -> None:
        """Start again what was killed, or restart what is up: its memory is lost either way."""
        self._harmed("start", name)
        self._hub_down.discard(name)
        self._held.pop(name, None)
        if name in self.nodes:
            self.nodes[name].start()

    def pause(self, name: str, seconds: float) -> None:
        self._harmed("pause", f"{name} for {seconds:.2f} s")
        held = self._held.setdefault(name, [])
        self.after(seconds, lambda: self._resume_if(name, held))

    def resume(self, name: str) -> None:
        """What came meanwhile is taken up in order, as if it had just arrived."""
        for what in self._held.pop(name, []):
            what()

    def _resume_if(self, name: str, held: list[Callable[[], None]]) -> None:
        if self._held.get(name) is held:  # Else that pause ended early.
            self.resume(name)

    def cut(self, source: str, target: str, seconds: float = NEVER) -> None:
        """Nothing passes from source to target; the other way is untouched."""
        self._harmed("cut", f"{source} -> {target} for {seconds:.2f} s")
        self._cut(source, target, seconds)

    def _cut(self, source: str, target: str, seconds: float) -> None:
        self._cut_until[source, target] = self.now + seconds
        self._cut_until[news(source), target] = self.now + seconds
        self._cut_until[source, news(target)] = self.now + seconds

    def cut_news(self, source: str, target: str, seconds: float = NEVER) -> None:
        """As `cut`, for what a hub relays; what is sent to or by the hub's own process passes."""
        self._harmed("cut_news", f"{source} -> {target} for {seconds:.2f} s")
        if target in self.hubs:
            self._cut_until[source, news(target)] = self.now + seconds
        else:
            self._cut_until[news(source), target] = self.now + seconds

    def isolate(self, name: str, seconds: float = NEVER) -> None:
        """Cut it off from everyone and every hub, both ways."""
        self._harmed("isolate", f"{name} for {seconds:.2f} s")
        for other in sorted({*self.nodes, *self.hubs} - {name}):
            self._cut(name, other, seconds)
            self._cut(other, name, seconds)

    def slow_down(self, source: str, target: str, delay_s: float) -> None:
        """Until `heal`, the mean delay from source to target; the other way is untouched."""
        self._delay_mean_s[source, target] = delay_s

    def hurt(self, every_s: float, harm: Callable[[], None] | None = None) -> None:
        """One random harm to one random process or hub, again and again until `heal`; or `harm`."""
        self._hurting = True

        def again() -> None:
            if self._hurting:
                (harm or self._harm_at_random)()
                self.after(self.chance.expovariate(1 / every_s), again)

        again()

    def _harm_at_random(self) -> None:
        names = sorted({*self.nodes, *self.hubs})
        name, other = self.chance.sample(names, 2)
        seconds = self.chance.uniform(0, HARM_S_MAX)
        match self.chance.choice(["restart", "kill", "pause", "cut", "isolate"]):
            case "restart":
                self.start(name)
            case "kill":
                self.kill(name)
                self.after(seconds, lambda: self._start_if_down(name))
            case "pause":
                self.pause(name, seconds)
            case "cut":
                self.cut(name, other, seconds)
            case _:
                self.isolate(name, seconds)

    def _start_if_down(self, name: str) -> None:
        if name in self._hub_down or (name in self.nodes and self.nodes[name].actor is None):
            self.start(name)

    def heal(self, *, start: bool = True) -> None:
        """From here on nothing goes wrong, so everything must come right. Starts who is down, but
        where that is the business of processes themselves (`start`)."""
        self.log("heal")
        self._hurting = False
        self.weather = CALM
        self._cut_until.clear()
        self._hurry()
        for name in sorted({*self.nodes, *self.hubs}):
            self.resume(name)
            if start:
                self._start_if_down(name)

    def _hurry(self) -> None:
        """What is on the way arrives soon: the last fault is over when it has."""
        soon = self.now + HEALED_S
        self._queue = [
            (min(at, soon) if number in self._on_the_way else at, number, what)
            for at, number, what in self._queue
        ]
        heapq.heapify(self._queue)

    def _harmed(self, verb: str, whom: str) -> None:
        self.seen[verb] += 1
        self.log(f"{verb} {whom}")
