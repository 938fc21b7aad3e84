"""The store of the lease managers in virtual time: rows that change all together or not at all.

It keeps what `roles.store` says of every store (S1 to S4), however badly it serves: slow, failing,
locked, full, out of reach of one manager, or silent about a commit that was made, was not, or is
made long after (`InDoubt`). One thing breaks those promises, as an old backup does: `roll_back`.
"""

from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from roles.lease_rows import LEADER
from roles.manager import Commit, Done, Failed, InDoubt, Outcome, ReadAll, ReadLeader, StoreOp
from roles.store import check_commit
from tests.world import World

STORE = "store"
TIMEOUT_S = 1.0
"""How long a manager's shell waits for the store."""
LATE_S_MAX = 20.0
KEPT_S = 60.0

Rows = dict[str, bytes]
Landed = Callable[[Rows, Rows], None]
"""Called with the rows before and after a commit."""


class StoreWeather(msgspec.Struct, frozen=True, kw_only=True):
    """How badly the store serves all the time."""

    delay_s: float = 0.002
    """Mean; at most `TIMEOUT_S`, but for what is slow."""
    slow: float = 0.0
    """Share of operations that take up to twice as long as anyone waits."""
    slow_reads: float = 0.0
    """Share of reads that get through late, and in time all the same."""
    failing: float = 0.0
    """Share of operations that fail, and do nothing."""
    in_doubt: float = 0.0
    """Share of commits whose outcome is not told: made, not made, or made late."""


FINE = StoreWeather()


class SimStore:
    def __init__(self, world: World, landed: Landed = lambda before, after: None) -> None:
        self.rows: Rows = {}
        self.weather = FINE
        self.rolled_back_at: list[float] = []
        self._world = world
        self._landed = landed
        self._until = {"locked": 0.0, "full": 0.0, "down": 0.0}
        self._history: deque[tuple[float, Rows]] = deque()

    def ask(self, manager: str, op: StoreOp, reply: Callable[[Outcome], None]) -> None:
        """`reply` is called once, within `TIMEOUT_S`."""
        if isinstance(op, Commit):
            check_commit(op.expect, op.put, op.delete)
        said = self._refused(manager, op)
        delay_s = self._delay_s()
        if said is None and self._is_slow_read(op):
            self._world.after(TIMEOUT_S * self._chance(), lambda: reply(self._done(op)))
        elif said is not None:
            self._world.after(min(delay_s, TIMEOUT_S), lambda: reply(said))
        elif isinstance(op, Commit) and self._chance() < self.weather.in_doubt:
            self._leave_in_doubt(op, delay_s, reply)
        elif delay_s <= TIMEOUT_S:
            self._serve(op, delay_s, reply)
        else:
            self._time_out(op, delay_s, reply)

    def _refused(self, manager: str, op: StoreOp) -> Outcome | None:
        """Why nothing is done, if so."""
        commits = isinstance(op, Commit)
        away = self._world.is_cut(manager, STORE) or self._world.is_cut(STORE, manager)
        if away or self._is("down"):
            return InDoubt() if commits and self._chance() < 0.5 else Failed("out of reach")
        if commits and self._is("locked"):
            return Failed("locked", locked=True)
        if commits and self._is("full"):
            return Failed("full")
        return Failed("an error") if self._chance() < self.weather.failing else None

    def _is_slow_read(self, op: StoreOp) -> bool:
        return not isinstance(op, Commit) and self._chance() < self.weather.slow_reads

    def _serve(self, op: StoreOp, delay_s: float, reply: Callable[[Outcome], None]) -> None:
        done_s = delay_s * self._chance()

        def serve() -> None:
            outcome = self._done(op)
            self._world.after(delay_s - done_s, lambda: reply(outcome))

        self._world.after(done_s, serve)

    def _time_out(self, op: StoreOp, delay_s: float, reply: Callable[[Outcome], None]) -> None:
        """The shell no longer waits; a commit is made all the same."""
        if isinstance(op, Commit):
            self._world.after(delay_s, lambda: self._make(op))
            self._world.after(TIMEOUT_S, lambda: reply(InDoubt()))
        else:
            self._world.after(TIMEOUT_S, lambda: reply(Failed("no answer in time")))

    def _leave_in_doubt(self, op: Commit, delay_s: float, reply: Callable[[Outcome], None]) -> None:
        made = self._world.chance.choice(["made", "not made", "late"])
        self._world.log(f"{STORE}: a commit is in doubt, and {made}")
        self._world.seen["in_doubt"] += 1
        done_s = min(delay_s, TIMEOUT_S) * self._chance()
        # An answer that is lost is waited for; a connection that breaks is noticed at once.
        reply_s = self._world.chance.choice([min(delay_s, TIMEOUT_S), TIMEOUT_S])
        if made == "made":
            self._world.after(done_s, lambda: self._make(op))
        elif made == "late":
            late_s = LATE_S_MAX * self._chance() ** 3
            self._world.after(reply_s + late_s, lambda: self._make(op))
        self._world.after(reply_s, lambda: reply(InDoubt()))

    def _done(self, op: StoreOp) -> Done:
        match op:
            case ReadLeader():
                return Done(row=self.rows.get(LEADER))
            case ReadAll():
                return Done(rows=dict(self.rows))
            case Commit(expect=expect, put=put, delete=delete):
                return Done(committed=self._commit(expect, put, delete))

    def _make(self, commit: Commit) -> None:
        """Nobody hears whether it was made."""
        self._commit(commit.expect, commit.put, commit.delete)

    def _commit(
        self, expect: Mapping[str, bytes | None], put: Mapping[str, bytes], delete: list[str]
    ) -> bool:
        if any(self.rows.get(key) != value for key, value in expect.items()):
            return False
        before = self.rows
        kept = {key: value for key, value in before.items() if key not in delete}
        self.rows = {**kept, **put}
        self._remember()
        self._landed(before, self.rows)
        return True

    def _remember(self) -> None:
        now = self._world.now
        self._history.append((now, self.rows))
        while len(self._history) > 1 and self._history[1][0] < now - KEPT_S:
            self._history.popleft()

    def _delay_s(self) -> float:
        if self._chance() < self.weather.slow:
            return self._world.chance.uniform(0, 2 * TIMEOUT_S)
        return min(self._world.chance.expovariate(1 / self.weather.delay_s), TIMEOUT_S)

    def _chance(self) -> float:
        return self._world.chance.random()

    def _is(self, trouble: str) -> bool:
        return self._world.now < self._until[trouble]

    # Harm.

    def trouble(self, kind: str, seconds: float) -> None:
        """Make it `locked`, `full` or `down` for a while."""
        self._world.log(f"{STORE} is {kind} for {seconds:.2f} s")
        self._world.seen[kind] += 1
        self._until[kind] = self._world.now + seconds

    def roll_back(self, seconds: float) -> None:
        """To what it was `seconds` ago, as if a backup had been put in its place. A backup of an
        empty store is none."""
        then = self._world.now - seconds
        _, rows = next((each for each in reversed(self._history) if each[0] <= then), (0.0, {}))
        if not rows:
            return
        self._world.log(f"{STORE} is rolled back by {seconds:.2f} s")
        self._world.seen["rolled_back"] += 1
        self.rolled_back_at.append(self._world.now)
        self.rows = rows
        self._remember()

    def map_rows(self) -> Rows:
        """All but who leads."""
        return {key: value for key, value in self.rows.items() if key != LEADER}

    def heal(self) -> None:
        self.weather = FINE
        self._until = dict.fromkeys(self._until, 0.0)
