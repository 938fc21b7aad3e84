"""What leases promise, as scenarios: one function a promise, run for many seeds.

Each raises AssertionError, with the transcript, if a promise is broken (`lease_checks` has them by
name, and checks them after each event of each scenario). They take the classes under test, so that
planted faults can be shown to be caught (`lease_sabotage.py`).

Under trouble nothing must ever be wrong, and all must be right when it has ended; bounds (how long
a key may have no owner) are for one fault at a time, and have scenarios of their own.
"""

from collections.abc import Callable

from roles.key_range import KeyRange
from roles.lookup_machine import SILENT_POLLS
from tests.simulation import lease_trouble
from tests.simulation.lease_checks import Ledger
from tests.simulation.lease_cluster import (
    ASSIGNMENTS,
    HUBS,
    PRODUCTION,
    TIMINGS,
    VOUCH_S_MAX,
    Cluster,
    Parts,
    Said,
    planted,
    shown,
)
from tests.simulation.lease_store import StoreWeather
from tests.simulation.lease_trouble import Trouble, Troubles, drawn_cluster
from tests.world import CALM, Weather

TROUBLE_S = 50.0
LEADERS_STOPPED = 15
STEP_S = 0.02
"""How closely bounds are looked at."""


class Options:
    """How a scenario is run: what is under test, what is looked at, how much is remembered."""

    def __init__(
        self,
        parts: Parts = PRODUCTION,
        only: frozenset[str] = frozenset(),
        transcript_lines: int | None = 60,
    ) -> None:
        self.parts = parts
        self.only = only
        self.transcript_lines = transcript_lines


class Run:
    """One cluster, and the ledger that watches it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.timing = cluster.timing
        assert isinstance(cluster.watch, Ledger)
        self.ledger = cluster.watch

    def run(self, seconds: float) -> None:
        self.world.run(seconds, self.ledger.check)

    def until(self, condition: Callable[[], bool], seconds: float, promise: str) -> float:
        """How long that took; or the promise is broken."""
        began = self.world.now
        while not condition():
            waited = self.world.now - began
            self.must(promise, waited <= seconds, f"not within {seconds:.3f} s")
            self.run(STEP_S)
        return self.world.now - began

    def must(self, promise: str, condition: object, problem: str) -> None:
        if not self.ledger.only or promise in self.ledger.only:
            self.cluster.must(condition, f"{promise}: {problem}")

    def said(self, kind: str, since: float) -> list[str]:
        return [
            f"{source}: {what.text}"
            for at, source, what in self.world.noted
            if isinstance(what, Said) and what.kind == kind and at > since
        ]

    def is_owned(self) -> bool:
        spaces = self.ledger.namespaces_with_owners()
        return bool(spaces) and not any(self.ledger.unowned(space) for space in spaces)

    def calm(self) -> None:
        """Nothing changes any more, and everything is right."""
        for _ in range(3):
            self.run(1.0)
            try:
                self.ledger.check_owned()
                self.ledger.check_find()
                self.ledger.check_losses()
            except AssertionError as error:
                raise AssertionError(self.world.told(str(error))) from error

    @property
    def settled_s(self) -> float:
        """By when all is well: the last to leave is back, a leader is found, lives that were heard
        of late and what a rolled back store left in doubt have run out, all is granted and told."""
        timing = self.timing
        return 4.0 + 2 * timing.takeover_s + 2.1 * timing.manager_ttl_s + 3 * timing.renew_s + 4.0


Promise = Callable[[int, Options], Run]


# Under trouble.


def _troubled(seed: int, options: Options, kind: Callable[[Cluster], Trouble]) -> Run:
    """What must never happen does not; and when nothing more goes wrong, every key is owned, found,
    and every loss told."""
    with planted(options.parts):
        watch = lambda cluster: Ledger(cluster, options.only)  # noqa: E731
        run = Run(drawn_cluster(seed, watch, options.parts, options.transcript_lines))
        run.run(run.world.chance.uniform(0, 8))
        troubles = Troubles(run.cluster, kind(run.cluster), run.ledger.rolled_back)
        troubles.begin()
        run.run(TROUBLE_S)
        troubles.end()
        run.run(run.settled_s)
        run.ledger.recovered()
        run.calm()
    return run


def all_is_well_after_any_trouble(seed: int, options: Options) -> Run:
    return _troubled(seed, options, lease_trouble.any_kind)


def no_race_of_slow_answers_is_lost(seed: int, options: Options) -> Run:
    return _troubled(seed, options, lease_trouble.slow_answers)


def no_straggler_does_harm(seed: int, options: Options) -> Run:
    return _troubled(seed, options, lease_trouble.stragglers)


def no_trouble_of_the_store_does_harm(seed: int, options: Options) -> Run:
    return _troubled(seed, options, lease_trouble.store_trouble)


def no_store_rolled_back_does_harm(seed: int, options: Options) -> Run:
    return _troubled(seed, options, lease_trouble.rolled_back)


# One fault in calm weather.


def _calm(
    seed: int, options: Options, *, owners: int = 3, rate: float | None = None, timing: str = ""
) -> Run:
    """A small cluster, all of it at work for a while. `rate`: of the first owner's clock."""
    if options.parts.slow_clock < 1:
        rate = options.parts.slow_clock
    cluster = Cluster(
        seed,
        lambda cluster: Ledger(cluster, options.only),
        parts=options.parts,
        # Not by the remainder, which says what goes wrong.
        timing=timing or list(TIMINGS)[seed // 6 % len(TIMINGS)],
        managers=3,
        assignment=ASSIGNMENTS[seed // 2 % 2],
        transcript_lines=options.transcript_lines,
    )
    run = Run(cluster)
    for number in range(owners):
        name = f"owner-{number + 1}"
        cluster.add_program(name, {"red": name}, rate=rate if number == 0 else None)
    for number in range(3):
        cluster.add_program(f"lookup-{number + 1}", {}, ["red", "new"])
    run.run(cluster.world.chance.uniform(3, 6))
    run.calm()
    return run


def _told_and_found(run: Run, seconds: float) -> None:
    """Within that time every lookup has been told of what was lost, and finds what is owned."""

    def is_right() -> bool:
        try:
            run.ledger.check_losses()
            run.ledger.check_find()
        except AssertionError:
            return False
        return True

    run.until(is_right, seconds, "losses")


def keys_of_the_dead_are_owned_again_in_time(seed: int, options: Options) -> Run:
    """Within `manager_ttl` + 1 s; 0.5 s if it was vouched dead; a failover and a `manager_ttl` more
    if the leader dies too. A second later every lookup knows."""
    with planted(options.parts):
        run = _calm(seed, options)
        timing, slow = run.timing, 1 + run.timing.skew
        vouched, leaderless = seed % 3 == 1, seed % 3 == 2
        bound_s = timing.manager_ttl_s * slow + 1.0
        if vouched:
            bound_s = 0.5 + VOUCH_S_MAX
        if leaderless:
            run.cluster.kill(run.cluster.leaders()[0])
            bound_s += timing.takeover_s * slow + 1.0 + timing.manager_ttl_s * slow
        run.cluster.kill("owner-1", vouched=vouched)
        run.run(STEP_S)
        took_s = run.until(run.is_owned, bound_s, "owned")
        run.must("owned", vouched or took_s > 1.0, f"owned again {took_s:.3f} s after a crash")
        _told_and_found(run, 1.0)
    return run


def a_failover_moves_nothing(seed: int, options: Options) -> Run:
    """The leader is killed, stopped, told to end, or loses the store: no range changes, no lease is
    lost, nothing is told to be lost."""
    with planted(options.parts):
        run = _calm(seed, options)
        began, chance = run.world.now, run.world.chance
        version = run.cluster.store.map_rows()
        for _ in range(2):
            leader = run.cluster.leaders()[0]
            match seed % 5:
                case 0:
                    run.cluster.kill(leader)
                case 1:
                    run.cluster.kill(leader, vouched=True)
                case 2:
                    run.world.pause(leader, run.timing.takeover_s * chance.uniform(1.2, 3))
                case 3:
                    run.cluster.resign(leader)
                case _:
                    run.cluster.cut_store(leader, 10.0)
            took_s = run.until(
                lambda: run.cluster.leaders() not in ([], [leader]),  # noqa: B023
                run.timing.takeover_s * (1 + run.timing.skew) + 1.5,
                "failover",
            )
            run.must("failover", took_s > 0, "the leader led on")
            run.run(chance.uniform(2, 12))
            run.cluster.start(leader)
            run.run(2.0)
        moved = run.said("holds", began) + run.said("lost", began)
        run.must("failover", not moved, f"moved by a failover: {moved}")
        same = run.cluster.store.map_rows() == version
        run.must("failover", same, "the store says something else")
        run.calm()
    return run


def keys_of_who_leaves_are_owned_again_within_a_second(seed: int, options: Options) -> Run:
    with planted(options.parts):
        run = _calm(seed, options)
        run.cluster.leave("owner-2", 5.0)
        run.run(STEP_S)
        others = lambda: run.cluster.program("owner-2") is None and run.is_owned()  # noqa: E731
        run.until(others, 1.0, "owned")
        _told_and_found(run, 1.0)
        run.calm()
    return run


def hubs_are_not_needed(seed: int, options: Options) -> Run:
    """Both hubs are down: no lease is lost, and lookups learn by their polls."""
    with planted(options.parts):
        run = _calm(seed, options)
        began = run.world.now
        for hub in HUBS:
            run.world.kill(hub)
        run.run(2 * run.timing.owner_ttl_s)
        gone = run.said("holds", began) + run.said("lost", began)
        run.must("owned", not gone, f"changed without hubs: {gone}")
        run.cluster.kill("owner-1")
        run.run(STEP_S)
        slow = 1 + run.timing.skew
        bound_s = run.timing.manager_ttl_s * slow + run.timing.renew_s * slow + 1.0
        run.until(run.is_owned, bound_s, "owned")
        _told_and_found(run, run.timing.poll_s * slow + 1.0)
    return run


def a_former_life_is_waited_for(seed: int, options: Options) -> Run:
    """An owner is killed, or stopped, and started again under its id at once: what the former life
    held is free when that was vouched dead, and else when its lease has run out."""
    with planted(options.parts):
        run = _calm(seed, options)
        vouched = seed % 2 == 0
        former = [
            KeyRange(start, end)
            for start, end, (owner, _) in run.ledger.owner_names("red").pieces()
            if owner == "owner-1"
        ]
        life = run.cluster.life("owner-1")
        run.cluster.kill("owner-1", vouched=vouched)
        run.cluster.start("owner-1")
        run.run(STEP_S)
        slow = 1 + run.timing.skew
        bound_s = 0.5 + VOUCH_S_MAX if vouched else run.timing.manager_ttl_s * slow + 1.0
        took_s = run.until(run.is_owned, bound_s, "owned")
        early = not vouched and took_s < run.timing.owner_ttl_s - run.timing.renew_s - 1.0
        run.must("one_owner", not early, f"{shown(former)} was free {took_s:.3f} s after a crash")
        if not vouched:
            run.cluster.vouch("owner-1", life)  # So late that the next one has taken its place.
        run.calm()
    return run


def who_is_cut_off_gives_up_in_time(seed: int, options: Options) -> Run:
    """An owner is stopped, or cut off, one way or both, for as long as it takes to give its keys to
    others: it has given them up before, however late its last answers came."""
    with planted(options.parts):
        run = _calm(seed, options)
        seconds = run.timing.manager_ttl_s * 1.5
        if seed // 4 % 2:
            run.world.weather = Weather(delay_s_max=120.0, steady=True)
            for manager in run.cluster.managers:
                run.world.slow_down(manager, "owner-1", 0.6 * run.timing.owner_ttl_s)
            run.run(run.timing.owner_ttl_s)
        match seed % 4:
            case 0:
                run.world.pause("owner-1", seconds)
            case 1:
                run.world.isolate("owner-1", seconds)
            case 2:
                for manager in run.cluster.managers:
                    run.world.cut("owner-1", manager, seconds)
            case _:
                for manager in run.cluster.managers:
                    run.world.cut(manager, "owner-1", seconds)
        run.run(seconds)
        run.world.weather = CALM
        run.run(run.settled_s)
        run.calm()
    return run


def no_two_managers_lead_at_once(seed: int, options: Options) -> Run:
    """The store takes its time, and is silent about commits that it has made; and each leader in
    turn is stopped, or loses the store, again and again."""
    with planted(options.parts):
        run = _calm(seed, options, owners=1, timing=("lan", "tight")[seed % 2])
        chance, ttl_s = run.world.chance, run.timing.leader_ttl_s
        run.cluster.store.weather = chance.choice(
            [StoreWeather(delay_s=0.05, in_doubt=0.5), StoreWeather(slow_reads=0.4, in_doubt=0.1)]
        )
        for _ in range(LEADERS_STOPPED):
            run.run(chance.uniform(0, 2 * ttl_s))
            rows = run.cluster.store.rows
            run.until(lambda: run.cluster.store.rows is not rows, 60.0, "failover")  # noqa: B023
            run.run(chance.uniform(0, 0.6 * ttl_s))  # Before the next beat, mostly.
            for leader in run.cluster.leaders():
                harm = chance.choice([run.world.pause, run.cluster.cut_store])
                harm(leader, chance.uniform(1, 3) * ttl_s)
        run.cluster.store.heal()
        run.world.heal()
        run.run(run.settled_s)
        run.calm()
    return run


def a_backup_loses_no_number_and_no_loss(seed: int, options: Options) -> Run:
    """Owners come and go, then an old copy of the store is put in its place, and managers are
    started again: numbers go on as if nothing had been forgotten, and every loss is told."""
    with planted(options.parts):
        run = _calm(seed, options, owners=2)
        chance = run.world.chance
        age_s = chance.uniform(4, 8)
        run.run(age_s - 2.0)
        run.cluster.add_program("owner-9", {"red": "owner-9", "new": "owner-9"}, ["red", "new"])
        run.run(2.0)
        run.cluster.kill("owner-1", vouched=True)
        run.run(chance.uniform(0.5, 4))
        match seed % 5:
            case 0:
                run.cluster.kill("owner-9")  # Who knows most is gone: lookups know as much.
            case 1:
                run.world.isolate("owner-9", run.timing.owner_ttl_s - 2.0)
            case 2:
                for _ in range(2):  # So that a term is forgotten that others know of.
                    _fail_over(run)
            case 3:
                _fail_over(run)  # So that the dead one is back in the row.
            case _:
                pass
        managers = run.cluster.managers if seed % 2 else run.cluster.leaders()
        if seed % 5 == 3:
            managers = []
        for name in managers:
            run.cluster.kill(name)
        run.cluster.store.roll_back(age_s)
        run.ledger.forgive_store()
        for name in managers:
            run.cluster.start(name)
        run.run(chance.uniform(0, 10))
        for name in ("owner-1", "owner-9"):
            run.cluster.start(name)
        run.run(run.settled_s)
        run.calm()
    return run


def _fail_over(run: Run) -> None:
    leader = run.cluster.leaders()[0]
    run.cluster.kill(leader, vouched=True)
    run.until(lambda: run.cluster.leaders() not in ([], [leader]), 5.0, "failover")
    run.cluster.start(leader)
    run.run(1.0)


def a_race_costs_nothing(seed: int, options: Options) -> Run:
    """An owner joins while frames come twice and out of order, and perhaps the leader changes: what
    it is given it keeps."""
    with planted(options.parts):
        run = _calm(seed, options, owners=2)
        began = run.world.now
        run.cluster.drops_late = False
        run.world.weather = Weather(copies=0.3, delay_s=(0.02, 0.1, 0.5), delay_s_max=1.5)
        if seed % 3 == 0:
            run.cluster.resign(run.cluster.leaders()[0])
            run.run(run.world.chance.uniform(0, 1))
        run.cluster.add_program("owner-9", {"red": "owner-9"})
        if seed % 3 == 1:
            run.run(run.world.chance.uniform(0, 2))
            run.cluster.resign(run.cluster.leaders()[0])
        run.run(2 * run.timing.manager_ttl_s)
        joined = [each for each in run.said("holds", began) if "owner-9" in each]
        lost = [each for each in joined if "-[]%" not in each]
        run.must("kept", joined and not lost, f"what an owner was given it lost: {lost}")
        run.world.weather = CALM
        run.run(2.0)
        run.calm()
    return run


def a_clock_beyond_the_bound_is_refused(seed: int, options: Options) -> Run:
    """An owner whose clock loses a third is found out, and told so."""
    with planted(options.parts):
        run = _calm(seed, options, rate=0.65)
        began = run.world.now
        bound_s = 60.0 + 30 * run.timing.renew_s
        run.until(
            lambda: any("its clock lost" in each for each in run.said("refused", began)),
            bound_s,
            "clock",
        )
    return run


def silence_of_all_managers_is_told_once(seed: int, options: Options) -> Run:
    """No manager is up: after three polls every lookup says that all may be lost, once, and goes on
    with the map that it has; when they are back, all comes right."""
    with planted(options.parts):
        run = _calm(seed, options)
        began = run.world.now
        views = run.ledger.views()
        for manager in run.cluster.managers:
            run.cluster.kill(manager)
        polls_s = SILENT_POLLS * run.timing.poll_s
        run.run(polls_s * (1 - run.timing.skew) - run.timing.poll_s)
        run.must("losses", not run.said("lost", began), "silence was told too soon")
        run.run(polls_s * 2 * run.timing.skew + run.timing.poll_s + 1.0)
        told = run.said("lost", began)
        lookups = len(run.cluster.plans["lookup-1"].looks) * 3
        run.must("losses", len(told) == lookups, f"told of the silence: {told}")
        run.run(2 * polls_s)
        run.must("losses", run.said("lost", began) == told, "silence was told twice")
        run.must("find_right", run.ledger.views() == views, "a map changed without a manager")
        for manager in run.cluster.managers:
            run.cluster.start(manager)
        run.run(run.settled_s)
        run.calm()
    return run


UNDER_TROUBLE: list[Promise] = [
    all_is_well_after_any_trouble,
    no_race_of_slow_answers_is_lost,
    no_straggler_does_harm,
    no_trouble_of_the_store_does_harm,
    no_store_rolled_back_does_harm,
]
AT_ONE_FAULT: list[Promise] = [
    keys_of_the_dead_are_owned_again_in_time,
    a_failover_moves_nothing,
    keys_of_who_leaves_are_owned_again_within_a_second,
    hubs_are_not_needed,
    a_former_life_is_waited_for,
    a_backup_loses_no_number_and_no_loss,
    a_clock_beyond_the_bound_is_refused,
    silence_of_all_managers_is_told_once,
    a_race_costs_nothing,
    who_is_cut_off_gives_up_in_time,
    no_two_managers_lead_at_once,
]
PROMISES = {promise.__name__: promise for promise in [*UNDER_TROUBLE, *AT_ONE_FAULT]}


def promises_of(seed: int) -> list[Promise]:
    """What a seed is run for: one kind of trouble and one fault, in turn."""
    # Not by the remainder, which says what kind of cluster it is.
    return [
        UNDER_TROUBLE[seed % len(UNDER_TROUBLE)],
        AT_ONE_FAULT[(seed // 30 + seed) % len(AT_ONE_FAULT)],
    ]
