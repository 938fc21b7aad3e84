"""What leases promise, as checkers by name: for after each event of a cluster, and for its end.

A ledger keeps its own record of who believed what, and when, from what owners hold at each moment
by their own clocks; it does not look into the manager. Each promise that is broken raises an
AssertionError that begins with its name:

  one_owner     At no instant do two owners believe that they hold one key.
  continuous    `check_lease_continuous` is not true again once the key was lost, if for an instant.
  numbers       A grant of a key has a greater number than anyone has seen for it; in the store, new
                numbers are greater than all before.
  losses        Every lookup hears of every loss; no loss is told twice, or without being one.
  find_right    When nothing changes, a lookup names the owner that believes, for every key.
  owned         When nothing goes wrong, no key stays without an owner.
  kept          Races alone take nothing from an owner.
  diffs         Upcalls, replayed, give exactly what is held, at every moment.
  single_trust  At no instant do two managers trust their terms; who does not trust its own says
                nothing.
  failover      The death of a leader moves nothing and loses nothing, and another leads in time.
  clock         An owner whose clock is too slow is refused.
"""

import math
from collections import deque
from itertools import pairwise
from typing import TypeVar

import msgspec

from roles.key_range import KEYS_END, KeyRange
from roles.lease_rows import LIFE, NAMESPACE, LifeRow, NamespaceRow, decode
from roles.lookup_machine import SILENT_POLLS, Entry, LookupMachine, Lost
from roles.owner_machine import Changed, Held, Lease, OwnerMachine
from roles.range_map import Piece, RangeMap
from tests.simulation.lease_cluster import Cluster, Program, shown
from tests.simulation.lease_store import Rows
from tests.world import Node

GHOSTS_MAX = 12
GHOSTS_TAKEN = 2
"""Leases that are kept from each change, to be checked for continuity ever after."""
NEVER = -math.inf

V = TypeVar("V")


class Ghost:
    """A lease that a program took once."""

    def __init__(self, at: int, lease: Lease) -> None:
        self.at = at
        self.lease = lease
        self.is_lost = False


class Tracked:
    """One owner in one life of a program, as it was after the last event."""

    def __init__(self, node: Node, program: Program, machine: OwnerMachine) -> None:
        self.node = node
        self.program = program
        self.machine = machine
        self.namespace = machine.name.namespace
        self.held: Held = machine.held
        self.until = machine.held.until
        self.replayed: RangeMap[int | None] = RangeMap(None)
        self.ghosts: deque[Ghost] = deque(maxlen=GHOSTS_MAX)

    @property
    def is_up(self) -> bool:
        return self.node.actor is self.program

    @property
    def believes_until(self) -> float:
        """In the world's time; what it held after the last event."""
        return self.node.true_time(self.until) if math.isfinite(self.until) else self.until

    def believed(self) -> list[Lease]:
        """What it believes to hold at this instant, by its own clock."""
        held = self.machine.held
        return held.pieces() if self.is_up and self.node.now < held.until else []

    def __str__(self) -> str:
        return f"{self.machine.name.owner} (life {self.program.incarnation})"


class Holding(msgspec.Struct, frozen=True, eq=False):
    """Who believed last, under which grant, and since when no longer."""

    by: Tracked
    since: int
    ended_at: float = math.inf

    @property
    def end(self) -> float:
        return min(self.ended_at, self.by.believes_until)


class Looking:
    """One lookup in one life of a program."""

    def __init__(self, node: Node, program: Program, machine: LookupMachine) -> None:
        self.node = node
        self.program = program
        self.machine = machine
        self.maps = 0
        self.first_map_at = math.inf
        self.view: RangeMap[Entry] = machine.view
        self.view_before = self.view
        self.heard_at = math.inf  # By its own clock; -inf: its silence was told.
        self.reported_at: RangeMap[float] = RangeMap(NEVER)
        self.reported_born: RangeMap[int] = RangeMap(0)


class Book:
    """What is known of the keys of one namespace."""

    def __init__(self) -> None:
        self.last: RangeMap[Holding | None] = RangeMap(None)
        self.lost_at: RangeMap[float] = RangeMap(NEVER)
        self.committed: set[int] = set()
        self.number_owned: RangeMap[int] = RangeMap(0)
        self.number_looked: RangeMap[tuple[int, str]] = RangeMap((0, ""))


class Ledger:
    def __init__(self, cluster: Cluster, only: frozenset[str] = frozenset()) -> None:
        """`only`: names of promises; all of them, if empty."""
        self.changes = 0
        self.losses = 0
        self._cluster = cluster
        self.only = only
        self._owners: list[Tracked] = []
        self._by_machine: dict[int, Tracked] = {}
        self._lookups: dict[int, Looking] = {}
        self._books: dict[str, Book] = {}
        self._is_strict = True
        self._trusts_store = True

    def _wants(self, promise: str) -> bool:
        return not self.only or promise in self.only

    def _must(self, promise: str, condition: object, problem: str) -> None:
        if not condition and self._wants(promise):
            raise AssertionError(f"{promise}: {problem}")

    def book(self, namespace: str) -> Book:
        return self._books.setdefault(namespace, Book())

    # What the cluster tells.

    def began(self, node: Node, program: Program) -> None:
        for machine in program.owners.values():
            tracked = Tracked(node, program, machine)
            self._owners.append(tracked)
            self._by_machine[id(machine)] = tracked
        for lookup in program.lookups.values():
            self._lookups[id(lookup)] = Looking(node, program, lookup)

    def changed(self, machine: OwnerMachine, change: Changed) -> None:
        """diffs: what was held is revoked, what was not is granted."""
        self.changes += 1
        tracked = self._by_machine[id(machine)]
        self._must("diffs", change.granted or change.revoked, f"{tracked} was told of nothing")
        replayed = tracked.replayed
        for gone in change.revoked:
            held = all(since is not None for *_, since in replayed.pieces(gone.start, gone.end))
            self._must("diffs", held, f"{tracked}: {shown([gone])} revoked, but not held")
            replayed = replayed.updated([(gone.start, gone.end, None)])
            for ghost in tracked.ghosts:
                ghost.is_lost = ghost.is_lost or ghost.at in gone
        now = _since(machine.held)
        for new in change.granted:
            free = all(since is None for *_, since in replayed.pieces(new.start, new.end))
            self._must("diffs", free, f"{tracked}: {shown([new])} granted, but held already")
            replayed = replayed.updated(now.pieces(new.start, new.end))
        tracked.replayed = replayed

    def mapped(self, machine: LookupMachine) -> None:
        looking = self._lookups[id(machine)]
        looking.maps += 1
        looking.view_before, looking.view = looking.view, machine.view
        looking.first_map_at = min(looking.first_map_at, self._cluster.world.now)
        book = self.book(machine.namespace)
        seen = book.number_looked
        newer = [
            (start, end, (entry.number, entry.owner))
            for from_, until, entry in machine.view.pieces()
            for start, end, known in seen.pieces(from_, until)
            if entry.number > known[0]
        ]
        if newer:
            book.number_looked = seen.updated(newer)

    def heard(self, machine: LookupMachine, now: float) -> None:
        self._lookups[id(machine)].heard_at = now

    def lost(self, machine: LookupMachine, loss: Lost, now: float) -> None:
        self.losses += 1
        looking = self._lookups[id(machine)]
        name = looking.program.name
        for lost in loss.ranges:
            told = (lost.start, lost.end, self._cluster.world.now)
            looking.reported_at = looking.reported_at.updated([told])
        if loss.reason.startswith("no manager"):
            silent_s = SILENT_POLLS * self._cluster.timing.poll_s
            is_silent = looking.heard_at + silent_s <= now + 1e-6
            self._must("losses", is_silent, f"{name} heard at {looking.heard_at} and says {loss}")
            looking.heard_at = math.inf  # Once.
            return
        self._must("losses", looking.maps > 1, f"{name}'s first map told of a loss")
        for lost in loss.ranges:
            born = [(s, e, entry.born) for s, e, entry in machine.view.pieces(lost.start, lost.end)]
            if self._is_strict and self._trusts_store:
                for start, end, number in born:
                    self._lost_once(looking, KeyRange(start, end), number)
            looking.reported_born = looking.reported_born.updated(born)

    def _lost_once(self, looking: Looking, lost: KeyRange, born: int) -> None:
        told = f"{looking.program.name} was told of {shown([lost])}, lost as of {born}"
        before = max(each for *_, each in looking.reported_born.pieces(lost.start, lost.end))
        self._must("losses", born > before, f"{told}, a second time")
        for *_, known in looking.view_before.pieces(lost.start, lost.end):
            fine = born > known.number
            self._must("losses", fine, f"{told}; it knew {known.number} of {known.owner}")

    def forgive_store(self) -> None:
        """It was rolled back: it may say that something is lost before its owner knows."""
        self._trusts_store = False

    def rolled_back(self) -> None:
        """The store forgot: what only the dead or the silent know is out of anyone's reach."""
        self._is_strict = False
        for book in self._books.values():
            book.number_owned, book.number_looked = RangeMap(0), RangeMap((0, ""))

    def recovered(self) -> None:
        """Everyone alive has been heard: from here on all is as before."""
        self._is_strict = True
        for looking in self._lookups.values():
            looking.reported_born = RangeMap(0)

    def spoke(self, manager: str, *, is_trusted: bool) -> None:
        self._must("single_trust", is_trusted, f"{manager} speaks as a leader that it may not be")

    # What the store holds.

    def landed(self, before: Rows, after: Rows) -> None:
        changed = [key for key in after if before.get(key) is not after[key]]
        for key in changed:
            if key.startswith(NAMESPACE):
                self._landed(decode(NamespaceRow, key, after[key]), before, after)

    def _landed(self, row: NamespaceRow, before: Rows, after: Rows) -> None:
        key = NAMESPACE + row.name
        was = decode(NamespaceRow, key, before[key]) if key in before else None
        number = 0 if was is None else was.number
        self._must(
            "numbers", row.number >= number, f"the store's went from {number} to {row.number}"
        )
        then, now = _stored(row.name, was, before), _stored(row.name, row, after)
        known = {each.number for each in then.values}
        new = {each.number for each in now.values} - known
        self.book(row.name).committed |= new
        in_order = all(number < each <= row.number for each in new)
        self._must("numbers", in_order, f"new in the store: {new}, after {number}")
        if self._wants("losses") and self._is_strict and self._trusts_store:
            for from_, until, is_now in now.pieces():
                for start, end, was_then in then.pieces(from_, until):
                    if is_now.born > was_then.born:
                        self._lost_in_store(row.name, KeyRange(start, end), was_then)

    def _lost_in_store(self, namespace: str, lost: KeyRange, was: "Stored") -> None:
        """Somebody had it, and nobody has it any more."""
        where = f"{namespace} {shown([lost])}"
        self._must("losses", was.owner, f"{where} is said to be lost, and nobody had it")
        for tracked in self._owners:
            if tracked.namespace == namespace:
                for lease in tracked.believed():
                    apart = lease.range.end <= lost.start or lost.end <= lease.range.start
                    self._must(
                        "losses", apart, f"{where} is said to be lost: {tracked} has {lease}"
                    )

    # After each event.

    def check(self) -> None:
        leaders = self._cluster.leaders()
        self._must("single_trust", len(leaders) <= 1, f"{leaders} lead")
        ended = False
        for tracked in self._owners:
            held = tracked.machine.held
            if not tracked.is_up:
                self._ended(tracked)
                ended = True
            elif held is not tracked.held or held.until != tracked.until:
                self._moved(tracked, held)
        if ended:
            self._owners = [tracked for tracked in self._owners if tracked.is_up]

    def _ended(self, tracked: Tracked) -> None:
        """Its process is no more."""
        self._gave_up(tracked, [lease.range for lease in tracked.held.pieces()])
        tracked.until = NEVER

    def _moved(self, tracked: Tracked, held: Held) -> None:
        lapsed = tracked.until <= tracked.node.now  # Before this event, or in it.
        if held is not tracked.held:
            given_up, taken = _difference(tracked.held, held)
            self._gave_up(tracked, given_up)
        else:
            taken = []
        had, tracked.held, tracked.until = tracked.held, held, held.until
        for lease in taken:
            self._took(tracked, lease)
        went_on = had is held and lapsed and held.pieces()
        self._must("continuous", not went_on, f"{tracked} lapsed, and went on as if it had not")
        same = list(tracked.replayed.pieces()) == list(_since(held).pieces())
        self._must("diffs", same, f"{tracked} holds what its upcalls do not say")
        self._one_owner(tracked.namespace)
        self._continuous(tracked, lapsed)

    def _gave_up(self, tracked: Tracked, ranges: list[KeyRange]) -> None:
        book, now = self.book(tracked.namespace), self._cluster.world.now
        end = min(now, tracked.believes_until)
        for each in ranges:
            book.last = book.last.updated(
                (start, until, Holding(tracked, last.since, min(end, last.end)))
                if last is not None and last.by is tracked
                else (start, until, last)
                for start, until, last in list(book.last.pieces(each.start, each.end))
            )

    def _took(self, tracked: Tracked, lease: Lease) -> None:
        book, where = self.book(tracked.namespace), lease.range
        lost: list[tuple[int, int, float]] = []
        for start, end, last in book.last.pieces(where.start, where.end):
            if last is None or (last.by is tracked and last.since == lease.since):
                continue
            lost.append((start, end, last.end))
            for ghost in last.by.ghosts:
                ghost.is_lost = ghost.is_lost or start <= ghost.at < end
        book.lost_at = book.lost_at.updated(lost)
        holding = Holding(tracked, lease.since)
        book.last = book.last.updated([(where.start, where.end, holding)])
        self._numbers(tracked, lease, book)

    def _numbers(self, tracked: Tracked, lease: Lease, book: Book) -> None:
        where, number = lease.range, lease.number
        owned = max(known for *_, known in book.number_owned.pieces(where.start, where.end))
        told = f"{tracked} is granted {shown([where])} under {number}"
        self._must("numbers", number in book.committed, f"{told}, which no store has")
        strict = self._is_strict
        self._must("numbers", number > owned or not strict, f"{told}; an owner had {owned}")
        for *_, (known, owner) in book.number_looked.pieces(where.start, where.end):
            same = number == known and owner == tracked.machine.name.owner
            fine = number > known or same or not strict
            self._must("numbers", fine, f"{told}; a lookup knows {known}, of {owner or 'nobody'}")
        book.number_owned = book.number_owned.updated([(where.start, where.end, number)])

    def _one_owner(self, namespace: str) -> None:
        if not self._wants("one_owner"):
            return
        believed = [
            (lease.range.start, lease.range.end, lease.number, str(tracked))
            for tracked in self._owners
            if tracked.namespace == namespace
            for lease in tracked.believed()
        ]
        believed.sort()
        for one, other in pairwise(believed):
            if one[1] > other[0]:
                where = shown([KeyRange(other[0], min(one[1], other[1]))])
                raise AssertionError(
                    f"one_owner: {namespace} {where} is held by {one[3]} under {one[2]} "
                    f"and by {other[3]} under {other[2]}",
                )

    def _continuous(self, tracked: Tracked, lapsed: bool) -> None:  # noqa: FBT001
        if not self._wants("continuous"):
            return
        held = tracked.held
        is_current = tracked.node.now < held.until
        for ghost in tracked.ghosts:
            current = held.at(ghost.at) if is_current else None
            ghost.is_lost = ghost.is_lost or lapsed or current is None
            if ghost.is_lost and current is not None:
                broken = current.since <= ghost.lease.number <= current.number
                self._must(
                    "continuous",
                    not broken,
                    f"{tracked} lost {ghost.lease} and has {current}, as if it had not",
                )
        pieces = held.pieces()
        if pieces and is_current:
            for _ in range(GHOSTS_TAKEN):
                lease = self._cluster.world.chance.choice(pieces)
                tracked.ghosts.append(Ghost(lease.range.start, lease))

    # At the end, when nothing has gone wrong for long enough.

    def check_losses(self) -> None:
        """Every lookup has been told of every loss since its first map."""
        rolled_back_at = self._cluster.store.rolled_back_at
        for looking in self._lookups.values():
            if looking.node.actor is not looking.program:
                continue
            for start, end, lost_at in self.book(looking.machine.namespace).lost_at.pieces():
                # What a rolled back store forgot may be told before its owner knows.
                due_at = max([at for at in rolled_back_at if at <= lost_at], default=lost_at)
                if due_at <= looking.first_map_at:
                    continue
                told_at = min(at for *_, at in looking.reported_at.pieces(start, end))
                self._must(
                    "losses",
                    told_at >= due_at,
                    f"{looking.program.name} was not told of the loss of "
                    f"{shown([KeyRange(start, end)])} at {lost_at:.3f}",
                )

    def owned(self, namespace: str) -> RangeMap[Lease | None]:
        """What all owners together believe."""
        pieces = sorted(
            (lease.range.start, lease.range.end, lease)
            for tracked in self._owners
            if tracked.namespace == namespace
            for lease in tracked.believed()
        )
        nothing: RangeMap[Lease | None] = RangeMap(None)
        return nothing.updated(pieces)

    def owner_names(self, namespace: str) -> RangeMap[tuple[str, int]]:
        """Owner and number for each key; nobody and 0 where nobody believes."""
        pieces = sorted(
            (lease.range.start, lease.range.end, (tracked.machine.name.owner, lease.number))
            for tracked in self._owners
            if tracked.namespace == namespace
            for lease in tracked.believed()
        )
        return RangeMap(("", 0)).updated(pieces)

    def unowned(self, namespace: str) -> list[KeyRange]:
        pieces = self.owner_names(namespace).pieces()
        return [KeyRange(start, end) for start, end, (_, number) in pieces if not number]

    def check_owned(self) -> None:
        for namespace in self.namespaces_with_owners():
            free = self.unowned(namespace)
            self._must("owned", not free, f"{namespace}: nobody has {shown(free)}")

    def check_find(self) -> None:
        for looking in self._lookups.values():
            if looking.node.actor is not looking.program:
                continue
            namespace = looking.machine.namespace
            view = looking.machine.view
            for start, end, (owner, number) in self.owner_names(namespace).pieces():
                for from_, until, entry in view.pieces(start, end):
                    found = (
                        ("", 0) if entry.route is None else (entry.route.url, entry.route.number)
                    )
                    self._must(
                        "find_right",
                        found == (owner, number),
                        f"{looking.program.name} finds {found} for {namespace} "
                        f"{shown([KeyRange(from_, until)])}, which {owner or 'nobody'} has "
                        f"under {number}",
                    )

    def views(self) -> list[list[Piece[Entry]]]:
        """What each lookup that is up would answer."""
        return [
            list(looking.machine.view.pieces())
            for looking in self._lookups.values()
            if looking.node.actor is looking.program
        ]

    def namespaces_with_owners(self) -> list[str]:
        return sorted({tracked.namespace for tracked in self._owners if tracked.is_up})


def _since(held: Held) -> RangeMap[int | None]:
    nothing: RangeMap[int | None] = RangeMap(None)
    return nothing.updated(
        (lease.range.start, lease.range.end, lease.since) for lease in held.pieces()
    )


def _difference(before: Held, after: Held) -> tuple[list[KeyRange], list[Lease]]:
    """Ranges given up, and leases taken on (as far as they are new, or have another number)."""
    then, now = _leases(before), _leases(after)
    given_up: list[KeyRange] = []
    taken: list[Lease] = []
    for start, end, lease in now.pieces():
        for from_, until, was in then.pieces(start, end):
            if lease is not None and was is not None and lease.since == was.since:
                assert lease.number >= was.number, f"numbers: {was} became {lease}"
                continue
            if was is not None:
                given_up.append(KeyRange(from_, until))
            if lease is not None:
                part = KeyRange(from_, until)
                taken.append(Lease(part, lease.number, lease.born, lease.since))
    return given_up, taken


def _leases(held: Held) -> RangeMap[Lease | None]:
    nothing: RangeMap[Lease | None] = RangeMap(None)
    return nothing.updated((lease.range.start, lease.range.end, lease) for lease in held.pieces())


class Stored(msgspec.Struct, frozen=True):
    number: int
    born: int
    owner: str


def _stored(name: str, row: NamespaceRow | None, rows: Rows) -> RangeMap[Stored]:
    """What the store says of each key."""
    found: RangeMap[Stored] = RangeMap(Stored(0, 0, ""))
    if row is None:
        return found
    spans = [(span, "") for span in row.unowned]
    prefix = f"{LIFE}{name}/"
    for key, value in rows.items():
        if key.startswith(prefix):
            spans += [(span, key) for span in decode(LifeRow, key, value).spans]
    spans.sort(key=lambda each: each[0].start)
    assert sum(span.last + 1 - span.start for span, _ in spans) == KEYS_END, "the store has holes"
    return found.updated(
        (span.start, span.last + 1, Stored(span.number, span.born, owner)) for span, owner in spans
    )
