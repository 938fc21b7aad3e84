"""Whatever is killed or stopped comes back, by its peers, and the events say who saw to it.

Method: one cluster of real processes, to which things happen one after the other; each test leaves
it whole. What runs is read from the operating system, so that nothing can be live twice unseen.
"""

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

from bus.clock import now
from bus.config import NODE
from bus.errors import ConfigError
from roles.inquiry import event_rows
from roles.messages import PastEvent
from roles.process_control import check, restart
from roles.testing import LocalCluster, processes_of
from tests.roles.test_status_and_events import run
from tests.waiting import until

pytestmark = pytest.mark.slow

WHOLE_S_MAX = 10.0
BUSY_S = 5.0  # What a machine with other things to do may take beyond a bound.
PAIRS = 2
EVENTS_MAX = 500


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    with LocalCluster(
        nodes=3,
        hubs=2,
        managers=2,
        bricks=4,
        greeters=1,
        preset="fast",
        roles={"greeter": "examples.hello_role:main"},
    ) as cluster:
        cluster.cluster.member()
        yield cluster
        cluster.cluster.release()


def running(local: LocalCluster) -> list[tuple[str, int]]:
    """Every process of the plan, by id, as the operating system has it."""
    agents = {each.node: each.id for each in local.cluster.config.components() if each.role == NODE}
    found = []
    for process in processes_of(local._directory):
        try:
            words = process.cmdline()
        except psutil.Error:
            continue  # It has just ended.
        if "--id" in words:
            found.append((words[words.index("--id") + 1], process.pid))
        elif "--agent" in words:
            found.append((agents[words[words.index("node") + 1]], process.pid))
    return sorted(found)


def whole(local: LocalCluster, not_these: set[int]) -> bool:
    """Everything planned runs once, in none of `not_these` processes, and is live."""
    planned = sorted(each.id for each in local.cluster.config.components())
    there = running(local)
    if [each for each, _ in there] != planned or {pid for _, pid in there} & not_these:
        return False
    pids = dict(there)
    rows = local.components()
    return all(row.linked or (row.state, row.pid) == ("live", pids[row.id]) for row in rows)


def wait_whole(local: LocalCluster, *not_these: int) -> None:
    until(lambda: whole(local, set(not_these)), WHOLE_S_MAX + BUSY_S, "all is whole again")


def events(local: LocalCluster) -> list[PastEvent]:
    return event_rows(local.cluster.member(), EVENTS_MAX, BUSY_S).events


def told(local: LocalCluster, kind: str, subject: str) -> list[tuple[str, str]]:
    """Who said so, and why."""
    rows = [each for each in events(local) if (each.kind, each.subject) == (kind, subject)]
    return [(each.by, each.reason) for each in rows]


def strike(local: LocalCluster, component_id: str, number: signal.Signals) -> int:
    [pid] = strike_all(local, [component_id], number)
    return pid


def strike_all(local: LocalCluster, ids: list[str], number: signal.Signals) -> list[int]:
    there = dict(running(local))
    pids = [there[component_id] for component_id in ids]
    for pid in pids:
        with suppress(ProcessLookupError):  # It died with its agent.
            os.kill(pid, number)
    return pids


def test_what_was_on_a_node_that_is_gone_runs_elsewhere_and_stays_there(
    local: LocalCluster,
) -> None:
    assert local._up is not None
    assert local.wait_live("brick-4").node == "n3"
    os.kill(local._up.pid, signal.SIGSTOP)  # The watchdog: it would bring the agent back.
    try:
        lost = strike(local, "node-3", signal.SIGKILL)

        def moved() -> bool:
            row = next(row for row in local.components() if row.id == "brick-4")
            return row.state == "live" and row.node != "n3"

        until(moved, WHOLE_S_MAX + BUSY_S, "brick-4 is live elsewhere")
        pid = dict(running(local))["brick-4"]
    finally:
        os.kill(local._up.pid, signal.SIGCONT)
    wait_whole(local, lost)
    assert dict(running(local))["brick-4"] == pid
    assert told(local, "resigned", "brick-4") == []
    assert told(local, "restarted", "brick-4")[-1][1].startswith("noticed dead")


def test_each_kind_of_process_that_is_killed_comes_back_and_events_say_who_saw_to_it(
    local: LocalCluster,
) -> None:
    agents = {"hub-1": "node-1", "manager-1": "node-1", "brick-3": "node-2", "greeter-1": "node-1"}
    for victim, agent in agents.items():
        wait_whole(local, strike(local, victim, signal.SIGKILL))
        restarted = told(local, "restarted", victim)
        assert [by for by, _ in restarted] == [agent]
        assert restarted[0][1].startswith("noticed dead (killed by SIGKILL); ")
    node = strike(local, "node-2", signal.SIGKILL)
    wait_whole(local, node)
    assert [by for by, _ in told(local, "restarted", "node-2")] == ["node-2"]


def test_random_pairs_that_are_killed_together_come_back(local: LocalCluster) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(PAIRS):
        victims = chance.sample([each.id for each in local.cluster.config.components()], 2)
        print(f"killed: {victims}")
        wait_whole(local, *strike_all(local, victims, signal.SIGKILL))


@pytest.mark.parametrize("victim", ["brick-1", "hub-2", "node-3"])
def test_what_is_stopped_is_replaced(local: LocalCluster, victim: str) -> None:
    wait_whole(local, strike(local, victim, signal.SIGSTOP))
    last = told(local, "restarted", victim)[-1]
    assert last[1].startswith("noticed dead")


def test_what_fails_again_after_each_restart_is_offline_until_a_person_starts_it(
    local: LocalCluster,
) -> None:
    others = [each for each in running(local) if each[0] != "brick-2"]

    def state() -> str:
        return next(row.state for row in local.components() if row.id == "brick-2")

    for _ in range(4):  # Its first life, and three restarts.
        local.wait_live("brick-2", timeout_s=WHOLE_S_MAX + BUSY_S)
        local.kill("brick-2")
    until(lambda: state() == "offline", BUSY_S, "it is offline")
    until(lambda: told(local, "alert", "brick-2"), BUSY_S, "an alert")
    [(by, alert)] = told(local, "alert", "brick-2")
    assert by == "node-1"
    assert alert.endswith("at once with `softstate start brick-2`")
    assert running(local) == others

    config = ("--config", local.cluster.config.source)
    code, out, err = run("start", "brick-2", *config)
    assert (code, out, err) == (0, "brick-2 is live\n", "")
    wait_whole(local)


def test_what_a_person_stops_stays_so_and_is_restarted_and_started_by_hand(
    local: LocalCluster,
) -> None:
    config = ("--config", local.cluster.config.source)
    before = dict(running(local))
    assert run("stop", "greeter-1", "brick-3", *config) == (
        0,
        "greeter-1 has ended\nbrick-3 has ended\n",
        "",
    )
    stopped_at = now()

    def states() -> set[str]:
        return {row.state for row in local.components() if row.id in ("greeter-1", "brick-3")}

    until(lambda: states() == {"disabled"}, BUSY_S, "both are disabled")
    until(lambda: now() > stopped_at + 1.5, BUSY_S, "a healer's turns and more")
    assert "greeter-1" not in dict(running(local))
    code, out, _ = run("start", "greeter-1", "brick-3", "--json", *config)
    assert code == 0
    assert [each["id"] for each in json.loads(out)["processes"]] == ["greeter-1", "brick-3"]
    member = local.cluster.member()
    restart(member, "manager-2")
    wait_whole(local, before["greeter-1"], before["brick-3"], before["manager-2"])
    for component_id, sentence in {
        "node-1": "node-1 is a node's agent, which its watchdog looks after",
        "brick-9": "there is no brick-9; `softstate status` lists all",
    }.items():
        with pytest.raises(ConfigError, match=sentence):
            check(member, [component_id])
    local.cluster.release()
