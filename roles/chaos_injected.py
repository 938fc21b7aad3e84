"""Make faults, keep those that are not over, and tell of each. Asks, waits, and has no opinion.

`roles.chaos` says what the faults are; here is how one begins and ends, whatever it is.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, TypeVar

import gevent
from gevent.event import Event as Flag

from bus.clock import now, wall_s
from bus.errors import BusError, ConfigError
from bus.member import Member
from bus.messages import InjectFault
from roles.chaos_guard import Undo
from roles.chaos_inside import peer_of, try_to_inject
from roles.chaos_keeper import Keeper
from roles.chaos_record import Record, check_length
from roles.cluster import Cluster

BEGIN_S_MAX = 120.0

Told = Callable[[Record], None]
R = TypeVar("R")


class Injected:
    """One fault that was made: what, to whom, since when, and whether it is over."""

    def __init__(self, verb: str, targets: Sequence[str], detail: str, for_s: float = 0.0) -> None:
        self.verb = verb
        self.targets = tuple(targets)
        self.detail = detail
        self.for_s = for_s
        """0: it has no end but a restart."""
        self.began_at = now()
        self.healed_at: float | None = None
        self.trouble = ""
        """What went wrong while it was healed."""
        self.undo: Callable[[], None] = lambda: None
        self._over = Flag()

    def heal(self) -> None:
        """Undo it now; returns when it is undone."""
        if self.healed_at is None and self.for_s:
            self.undo()
            self.wait()

    def wait(self) -> None:
        """Until it is healed; at once if it has no end."""
        if self.for_s:
            self._over.wait()

    def is_over(self, trouble: str) -> None:
        self.healed_at, self.trouble = now(), trouble
        self._over.set()


class Injector:
    def __init__(self, cluster: Cluster, seed: int, told: Told | None) -> None:
        self._cluster = cluster
        self._seed = seed
        self._told = told
        self._member: Member | None = None
        self._keeper = Keeper()
        self._going_on: list[Injected] = []

    def outside(self, injected: Injected, undo: list[Undo], begin: Callable[[], None]) -> Injected:
        """Make a fault that `begin` begins and the guard knows how to undo."""
        check_length(injected.for_s)
        keeper = self._keeper
        number = keeper.keep(BEGIN_S_MAX, undo, lambda trouble: self._over(injected, trouble))
        injected.undo = lambda: keeper.heal(number)
        try:
            begin()
        except BaseException:
            injected.heal()
            raise
        if injected.healed_at is not None:  # It may have been undone before all of it was done.
            keeper.keep(0.0, undo, lambda trouble: None)
        keeper.heal(number, injected.for_s)
        return self._began(injected)

    def inside(self, injected: Injected, ask: InjectFault) -> Injected:
        """Make a fault that its targets make themselves, and end themselves."""
        check_length(injected.for_s)
        self.ask(injected.targets, ask)
        timer = gevent.spawn_later(injected.for_s, self._over, injected, "")

        def undo() -> None:
            timer.kill()
            trouble = ""
            try:
                self.ask(injected.targets, _healing(ask))
            except BusError as error:
                trouble = f"it heals by itself: {error}"
            self._over(injected, trouble)

        injected.undo = undo
        return self._began(injected)

    def ask(self, ids: Sequence[str], ask: InjectFault) -> None:
        """Ask all of them at once; if one will not, heal the others, and raise what it said."""
        if not ids:
            raise ConfigError("name at least one component")
        if self._member is None:
            self._member = self._cluster.member("chaos")
        member = self._member
        peers = [peer_of(member, component_id) for component_id in dict.fromkeys(ids)]
        troubles = all_of([partial(try_to_inject, member, peer, ask) for peer in peers])
        if any(troubles) and ask.amount:
            all_of([partial(try_to_inject, member, peer, _healing(ask)) for peer in peers])
        for trouble in filter(None, troubles):
            raise trouble

    def done(self, injected: Injected) -> Injected:
        """Tell of one that has no end."""
        self._tell(injected, "done")
        return injected

    def close(self) -> None:
        """Heal what is left, and leave the cluster."""
        try:
            for injected in list(self._going_on):
                injected.heal()
        finally:
            self._keeper.close()
            if self._member is not None:
                self._member = None
                self._cluster.release()

    def _began(self, injected: Injected) -> Injected:
        self._tell(injected, "began")
        if injected.healed_at is None:
            self._going_on.append(injected)
        else:
            self._tell(injected, "healed")  # So short was it.
        return injected

    def _over(self, injected: Injected, trouble: str) -> None:
        injected.is_over(trouble)
        if injected in self._going_on:
            self._going_on.remove(injected)
            self._tell(injected, "healed")

    def _tell(self, injected: Injected, what: Literal["began", "healed", "done"]) -> None:
        if self._told is not None:
            self._told(
                Record(
                    at_s=wall_s(),
                    what=what,
                    verb=injected.verb,
                    targets=injected.targets,
                    detail=injected.detail,
                    for_s=injected.for_s,
                    seed=self._seed,
                    trouble=injected.trouble,
                )
            )


def all_of(calls: Sequence[Callable[[], R]]) -> list[R]:
    """Call them at the same time; what they returned, in order."""
    jobs = [gevent.spawn(call) for call in calls]
    gevent.joinall(jobs)
    return [job.get() for job in jobs]


def _healing(ask: InjectFault) -> InjectFault:
    return InjectFault(ask.fault, 0.0, 1.0)
