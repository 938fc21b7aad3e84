"""A whole cluster in one thread: seeded chance, virtual time, a bad network, fallible hubs.

A process is an *actor*: production machines behind a few lines that turn frames into calls and
answers into effects. Only clock and wire are replaced, so the same seed gives the same run.

What goes wrong: loss, copies, delays that differ by path and direction, clocks that start
anywhere and run fast or slow (all the time, as `weather` says); and by one verb each, `kill`,
`start` (with loss of memory), `pause`, `resume`, `cut` (one way), `isolate`. A hub is a name as
any other: what is published reaches everyone through each hub that is up, and a hub that is
paused holds back what it got and passes it on late. A process of the same name shares its fate.
`hurt` picks harms at random; `heal` ends them all.

When a check fails, the error ends with the last events. `noted` keeps what actors reported.
"""

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

HARM_S_MAX = 8.0
TRANSCRIPT_LINES = 60
NEVER = float("inf")


class Send(msgspec.Struct, frozen=True):
    """Directly to one process, past the hubs."""

    to: str
    frame: bytes


class Publish(msgspec.Struct, frozen=True):
    """To everyone, the sender too, once through each hub."""

    frame: bytes


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


CALM = Weather()


class Node:
    """One process, up or not, with a clock that starts anywhere and runs fast or slow."""

    def __init__(self, world: "World", name: str, make: Callable[[float], Actor]) -> None:
        self.name = name
        self.actor: Actor | None = None
        self.up_since = NEVER
        self._world = world
        self._make = make
        self._offset_s = world.chance.uniform(0, 1e6)
        self._rate = world.chance.uniform(0.99, 1.01)
        self._wake_id = 0

    @property
    def now(self) -> float:
        return self._offset_s + self._world.now * self._rate

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

    def __init__(self, seed: int, *, hubs: Sequence[str] = (), weather: Weather = CALM) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.now = 0.0
        self.hubs = tuple(hubs)
        self.weather = weather
        self.nodes: dict[str, Node] = {}
        self.noted: list[tuple[float, str, object]] = []
        self.seen: Counter[str] = Counter()
        self._hub_down: set[str] = set()
        self._held: dict[str, list[Callable[[], None]]] = {}  # For whoever is paused.
        self._cut_until: dict[tuple[str, str], float] = {}
        self._delay_mean_s: dict[tuple[str, str], float] = {}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._events = 0
        self._hurting = False
        self._transcript: deque[str] = deque(maxlen=TRANSCRIPT_LINES)

    # Running.

    def unless_paused(self, name: str, what: Callable[[], None]) -> None:
        """Now, or when the pause ends; never, if it ends with a kill."""
        if name in self._held:
            self._held[name].append(what)
        else:
            what()

    def add(self, name: str, make: Callable[[float], Actor]) -> Node:
        """`make(now)` makes the actor, at first and after each `start`."""
        node = self.nodes[name] = Node(self, name, make)
        node.start()
        return node

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        self._events += 1
        heapq.heappush(self._queue, (self.now + delay_s, self._events, what))

    def run(self, seconds: float, check: Callable[[], None] = lambda: None) -> None:
        """Let time pass, with `check` after every event; failures are told with the transcript."""
        end = self.now + seconds
        try:
            while self._queue and self._queue[0][0] <= end:
                self.now, _, what = heapq.heappop(self._queue)
                what()
                check()
        except AssertionError as error:
            raise AssertionError(self.told(str(error))) from error
        self.now = end

    def told(self, problem: str) -> str:
        """The problem, with the seed and the events that led to it."""
        last = "\n".join(self._transcript)
        return f"seed {self.seed}, t={self.now:.3f}: {problem}\nlast events:\n{last}"

    def log(self, what: str) -> None:
        self._transcript.append(f"  {self.now:9.3f} {what}")

    # The network.

    def perform(self, source: str, effect: Effect) -> None:
        match effect:
            case Send(to, frame):
                receive = self._receiver(source, to, frame)
                self._carry(source, to, self.weather.loss_direct, receive)
            case Publish(frame):
                for hub in self.hubs:
                    relay = self._relay(source, hub, frame)
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

    def _relay(self, source: str, hub: str, frame: bytes) -> Callable[[], None]:
        def relay() -> None:
            if hub in self._hub_down:
                return
            for target in self.nodes.values():
                deliver = self._hearer(source, target, frame)
                self._carry(news(hub), target.name, self.weather.loss, deliver)

        return lambda: self.unless_paused(hub, relay)

    def _hearer(self, source: str, target: Node, frame: bytes) -> Callable[[], None]:
        return lambda: target.do(lambda actor, now: actor.hear(source, frame, now))

    def _carry(self, source: str, target: str, loss: float, arrive: Callable[[], None]) -> None:
        copies = 2 if self.chance.random() < self.weather.copies else 1
        for _ in range(copies):
            cut = self.now < self._cut_until.get((source, target), 0.0)
            if not cut and self.chance.random() >= loss:
                self.after(self._delay_s(source, target), arrive)

    def _delay_s(self, source: str, target: str) -> float:
        path = (source, target)
        if path not in self._delay_mean_s:
            self._delay_mean_s[path] = self.chance.choice(self.weather.delay_s)
        drawn_s = self.chance.expovariate(1 / self._delay_mean_s[path])
        return min(drawn_s, self.weather.delay_s_max)

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
        for other in sorted({*self.nodes, *self.hubs} - {name}):
            self.cut(name, other, seconds)
            self.cut(other, name, seconds)

    def hurt(self, every_s: float) -> None:
        """One random harm to one random process or hub, again and again until `heal`."""
        self._hurting = True

        def harm() -> None:
            if self._hurting:
                self._harm_at_random()
                self.after(self.chance.expovariate(1 / every_s), harm)

        harm()

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

    def heal(self) -> None:
        """From here on nothing goes wrong, so everything must come right. Starts who is down."""
        self.log("heal")
        self._hurting = False
        self.weather = CALM
        self._delay_mean_s.clear()
        self._cut_until.clear()
        for name in sorted({*self.nodes, *self.hubs}):
            self.resume(name)
            self._start_if_down(name)

    def _harmed(self, verb: str, whom: str) -> None:
        self.seen[verb] += 1
        self.log(f"{verb} {whom}")
