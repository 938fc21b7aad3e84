"""Each verb of chaos on a real cluster: its effect is seen, it heals, and nothing is left behind.

Method: one small cluster without healing, so that nobody else brings back what is hurt; each test
leaves it whole. What a process is doing is read from the kernel. Verbs that need network namespaces
are in test_chaos_hosts.py.
"""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from bus.clock import now
from bus.config import local as local_config
from bus.errors import BusError, ConfigError, NotReady, RequestTimeoutError
from bus.messages import Ping, Pong
from roles import chaos_guard
from roles.chaos import Chaos
from roles.chaos_processes import Found, file_limits, find, is_running, watchdog_of
from roles.chaos_record import Record
from roles.cluster import Cluster
from roles.commands.chaos import main
from roles.inquiry import event_rows
from roles.invoke import environment, softstate
from roles.messages import PastEvent
from roles.session_messages import ReadSession
from roles.testing import LocalCluster
from tests.roles.raw_bricks import RawBricks, sid_of
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE_S = 15.0
SOON_S = 0.5
SETTINGS = {"chaos": True, "sessions": {"W": 1, "WQ": 1, "R": 1}}


@pytest.fixture(scope="module")
def local() -> Iterator[LocalCluster]:
    with LocalCluster(
        hubs=2, nodes=2, managers=2, bricks=2, preset="fast", heal=False, settings=SETTINGS
    ) as made:
        yield made
        assert left_behind(made) == []


@pytest.fixture(scope="module")
def bricks(local: LocalCluster) -> Iterator[RawBricks]:
    made = RawBricks(local.cluster)
    yield made
    made.close()


@pytest.fixture
def told() -> list[Record]:
    return []


@pytest.fixture
def chaos(local: LocalCluster, told: list[Record]) -> Iterator[Chaos]:
    with Chaos(local.cluster, seed=7, told=told.append) as made:
        yield made


def process(local: LocalCluster, component_id: str) -> Found:
    return find(local.cluster.config)[component_id]


def is_stopped(found: Found) -> bool:
    return Path(f"/proc/{found.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def left_behind(local: LocalCluster) -> list[str]:
    """What chaos should have undone, and its guards."""
    found = find(local.cluster.config)
    dogs = [watchdog_of(each) for each in found.values() if each.life.id.startswith("node-")]
    stopped = [each for each in (*found.values(), *dogs) if each is None or is_stopped(each)]
    limited = [
        each
        for each in found.values()
        if file_limits(each) != resource.getrlimit(resource.RLIMIT_FSIZE)
    ]
    return [str(each) for each in (*stopped, *limited, *guards())]


def guards() -> list[str]:
    """Guards that this process has started."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    lines = [Path(f"/proc/{child}/cmdline").read_bytes().decode() for child in children]
    return [line for line in lines if chaos_guard.__file__ in line]


def events(local: LocalCluster) -> list[PastEvent]:
    return event_rows(local.cluster.member(), 1000, PATIENCE_S).events


def has_happened(local: LocalCluster, kind: str, subject: str, reason: str) -> bool:
    try:
        return any(
            (each.kind, each.subject) == (kind, subject) and reason in each.reason
            for each in events(local)
        )
    finally:
        local.cluster.release()


def bring_back(bricks: RawBricks, local: LocalCluster, component_id: str, after: int) -> None:
    def is_back() -> bool:
        local.start(component_id)
        peer = bricks.member.liveness.peer(component_id)
        return peer is not None and peer.state == "live" and peer.incarnation > after

    until(is_back, PATIENCE_S, f"{component_id} back")


def answers(bricks: RawBricks, component_id: str, timeout_s: float) -> bool:
    peer = bricks.member.liveness.peer(component_id)
    assert peer is not None
    try:
        bricks.member.client.ask(peer.endpoint, Ping(), expect=Pong, timeout_s=timeout_s)
    except RequestTimeoutError:
        return False
    return True


# From outside.


def test_crash_kills_and_returns_when_that_is_done(
    local: LocalCluster, bricks: RawBricks, chaos: Chaos, told: list[Record]
) -> None:
    before = bricks.peer("brick-1").incarnation
    victim = process(local, "brick-1")
    injected = chaos.crash("brick-1")
    assert not is_running(victim)
    assert "brick-1" not in find(local.cluster.config)
    assert (injected.for_s, injected.healed_at) == (0.0, None)
    assert [(each.what, each.verb, each.targets) for each in told] == [
        ("done", "crash", ("brick-1",))
    ]
    bring_back(bricks, local, "brick-1", before)


def test_hang_stops_all_of_them_until_its_time(
    local: LocalCluster, bricks: RawBricks, chaos: Chaos, told: list[Record]
) -> None:
    victims = [process(local, each) for each in ("brick-1", "brick-2")]
    began_at = now()
    injected = chaos.hang("brick-1", "brick-2", for_s=SOON_S)
    assert all(map(is_stopped, victims))
    assert not answers(bricks, "brick-1", 0.1)
    injected.wait()
    assert now() - began_at >= SOON_S
    assert injected.trouble == ""
    until(lambda: not any(map(is_stopped, victims)), PATIENCE_S, "going on")
    until(lambda: answers(bricks, "brick-1", 1.0), PATIENCE_S, "an answer")
    assert [(each.what, each.verb) for each in told] == [("began", "hang"), ("healed", "hang")]
    assert told[0].targets == ("brick-1", "brick-2")


def test_hang_is_over_when_it_is_healed_or_chaos_is_closed(local: LocalCluster) -> None:
    victim = process(local, "brick-2")
    with Chaos(local.cluster) as chaos:
        injected = chaos.hang("brick-2", for_s=1000)
        injected.heal()
        until(lambda: not is_stopped(victim), PATIENCE_S, "going on")
        injected.heal()
        chaos.hang("brick-2", for_s=1000)
        assert is_stopped(victim)
    until(lambda: not is_stopped(victim), PATIENCE_S, "going on")
    assert guards() == []


def test_fault_that_is_shorter_than_its_beginning_is_over_all_the_same(
    local: LocalCluster, chaos: Chaos
) -> None:
    victims = [process(local, each) for each in ("brick-1", "brick-2")]
    chaos.hang("brick-1", "brick-2", for_s=0.0001).wait()
    until(lambda: not any(map(is_stopped, victims)), PATIENCE_S, "going on")


def test_same_fault_of_the_same_process_is_refused_until_it_is_over(  # C4
    local: LocalCluster, chaos: Chaos, told: list[Record]
) -> None:
    first, second = (process(local, each) for each in ("brick-1", "brick-2"))
    hung = chaos.hang("brick-1", for_s=1000)
    with pytest.raises(NotReady, match="brick-1 is stopped as it is"):
        chaos.hang("brick-2", "brick-1", for_s=0.01)
    assert (is_stopped(first), is_stopped(second)) == (True, False)
    hung.heal()
    until(lambda: not is_stopped(first), PATIENCE_S, "going on")

    before = file_limits(process(local, "manager-2"))
    full = chaos.disk("manager-2", for_s=1000)
    with pytest.raises(NotReady, match="manager-2 cannot write as it is"):
        chaos.disk(for_s=0.01)
    full.heal()
    assert [file_limits(process(local, f"manager-{each}")) for each in (1, 2)] == [before, before]
    assert [each.verb for each in told] == ["hang", "hang", "disk", "disk"]


def test_hung_process_goes_on_when_the_command_is_killed(local: LocalCluster) -> None:
    victim = process(local, "brick-2")
    command = subprocess.Popen(
        softstate("chaos", "hang", "brick-2", "--for", "1000", *of(local)),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        until(lambda: is_stopped(victim), PATIENCE_S, "stopped")
    finally:
        command.kill()
        command.wait()
    until(lambda: not is_stopped(victim), PATIENCE_S, "going on")


def test_image_with_flipped_bits_ends(local: LocalCluster, bricks: RawBricks, chaos: Chaos) -> None:
    before = bricks.peer("brick-2").incarnation
    victim = process(local, "brick-2")
    injected = chaos.flip_image("brick-2")
    assert "flipped" in injected.detail
    if injected.detail.endswith("lived on"):  # As damaged memory may: then it stays damaged.
        chaos.crash("brick-2")
    until(lambda: not is_running(victim), PATIENCE_S, "its end")
    bring_back(bricks, local, "brick-2", before)


def test_full_disk_costs_the_lead_and_is_over_when_it_is_healed(
    local: LocalCluster, bricks: RawBricks, chaos: Chaos
) -> None:
    ids = ("manager-1", "manager-2")

    def leading_term() -> float:
        managers = [peer.statistics for peer in bricks.member.peers("manager")]
        return max((each["term"] for each in managers if each.get("leading")), default=0.0)

    until(leading_term, PATIENCE_S, "a leader")
    term = leading_term()
    before = {each: file_limits(process(local, each)) for each in ids}
    injected = chaos.disk(for_s=1000)
    assert injected.targets == ids
    assert {file_limits(process(local, each))[0] for each in ids} == {0}
    full = "its disk fails or is full"
    until(
        lambda: any(has_happened(local, "degraded", each, full) for each in ids),
        PATIENCE_S,
        "a manager that says so",
    )
    injected.heal()
    assert {each: file_limits(process(local, each)) for each in ids} == before
    until(lambda: leading_term() > term, PATIENCE_S, "a leader of a later term")


def test_lost_node_is_gone_until_it_is_healed_and_comes_back(
    local: LocalCluster, bricks: RawBricks, chaos: Chaos
) -> None:
    before = bricks.peer("brick-2").incarnation
    on_node = {"node-2", "hub-2", "manager-2", "brick-2"}
    dog = watchdog_of(process(local, "node-2"))
    assert dog is not None
    injected = chaos.node("n2", for_s=1000)
    until(lambda: not on_node & find(local.cluster.config).keys(), PATIENCE_S, "all of it gone")
    assert is_stopped(dog)
    with pytest.raises(NotReady, match="the watchdog of node-1 is stopped as it is"):  # C4
        chaos.node("n1")
    injected.heal()
    until(lambda: on_node <= find(local.cluster.config).keys(), PATIENCE_S, "all of it back")
    bring_back(bricks, local, "brick-2", before)
    assert not has_happened(local, "exited", "brick-2", "SIGKILL"), "a dead node vouches for nobody"


def test_hub_is_lost_and_comes_back_when_asked_to(
    local: LocalCluster, bricks: RawBricks, chaos: Chaos
) -> None:
    before = bricks.peer("hub-1").incarnation
    victim = process(local, "hub-1")
    chaos.hub("hub-1")
    assert not is_running(victim)
    bring_back(bricks, local, "hub-1", before)
    stopped = chaos.hub(for_s=SOON_S, hang=True)
    assert stopped.targets[0] in ("hub-1", "hub-2")
    stopped.wait()
    until(lambda: answers(bricks, "brick-1", 1.0), PATIENCE_S, "an answer")


# From inside.


def test_slow_process_takes_its_time_for_each_message(bricks: RawBricks, chaos: Chaos) -> None:
    injected = chaos.slow("brick-1", for_s=SOON_S, seconds=0.15)
    assert not answers(bricks, "brick-1", 0.1)
    injected.heal()
    until(lambda: answers(bricks, "brick-1", 0.1), PATIENCE_S, "a quick answer")
    assert injected.trouble == ""


def test_process_that_loses_what_it_sends_is_missed_until_it_heals(
    bricks: RawBricks, chaos: Chaos
) -> None:
    chaos.drop("brick-1", "brick-2", for_s=2.0, share=1.0)
    for brick_id in ("brick-1", "brick-2"):
        until(lambda each=brick_id: state(bricks, each) != "live", PATIENCE_S, "missed")  # type: ignore[misc]
    for brick_id in ("brick-1", "brick-2"):
        until(lambda each=brick_id: state(bricks, each) == "live", PATIENCE_S, "back")  # type: ignore[misc]


def state(bricks: RawBricks, component_id: str) -> str:
    peer = bricks.member.liveness.peer(component_id)
    return "" if peer is None else peer.state


def test_leak_and_clock_are_told_by_who_suffers_them(
    local: LocalCluster, bricks: RawBricks, chaos: Chaos
) -> None:
    before = bricks.peer("brick-1").statistics["rss_bytes"]

    def leaked() -> float:
        return bricks.peer("brick-1").statistics["rss_bytes"] - before

    leak = chaos.leak("brick-1", for_s=1000, bytes_per_s=200e6)
    chaos.clock("brick-1", for_s=SOON_S, ahead_s=-60.0).wait()
    until(lambda: leaked() > 100e6, PATIENCE_S, "100 MB more")
    leak.heal()
    until(lambda: leaked() < 50e6, PATIENCE_S, "as before")
    for reason in ("leak, 2e+08 B/s, for 1000 s", "clock, -60 s ahead", "clock is over"):
        until(
            lambda each=reason: has_happened(local, "chaos", "brick-1", each),  # type: ignore[misc]
            PATIENCE_S,
            reason,
        )


def test_flipped_value_is_found_out_when_it_is_read(
    local: LocalCluster, bricks: RawBricks, chaos: Chaos
) -> None:
    before = bricks.peer("brick-1").incarnation
    victim = process(local, "brick-1")
    with pytest.raises(NotReady, match="brick-1 holds no value yet"):
        chaos.flip_value("brick-1")
    bricks.stored("brick-1", 1, b"a value")
    assert chaos.flip_value("brick-1").detail == "a bit in 1 value"
    bricks.ask("brick-1", ReadSession(sid_of(1), 1))
    until(lambda: not is_running(victim), PATIENCE_S, "its end")
    assert has_happened(local, "damaged", "brick-1", "does not match its checksum")
    bring_back(bricks, local, "brick-1", before)


# What is refused.


def test_cluster_that_does_not_say_so_is_not_touched(tmp_path: Path) -> None:
    config = msgspec.structs.replace(local_config(tmp_path), source="cluster.toml")
    with pytest.raises(ConfigError, match=r"cluster\.toml does not say `chaos = true`"):
        Chaos(Cluster(config))


def test_program_that_merely_links_is_never_touched(local: LocalCluster, chaos: Chaos) -> None:
    linked = Cluster(local.cluster.config)
    name = linked.member().identity.id
    try:
        for verb in (chaos.crash, chaos.hang, chaos.flip_image):
            with pytest.raises(NotReady, match=f"{name} is no process that the agents"):
                verb(name)
        for verb in (chaos.slow, chaos.drop, chaos.leak, chaos.clock, chaos.flip_value):
            with pytest.raises(ConfigError, match=f"{name} merely links the cluster"):
                verb(name)
    finally:
        linked.release()


def test_process_of_another_cluster_with_the_same_id_is_never_touched(
    tmp_path: Path, local: LocalCluster
) -> None:
    """It looks just like one of ours, but for the file of its configuration."""
    (tmp_path / "bus").mkdir()
    (tmp_path / "bus" / "__init__.py").touch()
    (tmp_path / "bus" / "cli.py").write_text("import signal; signal.pause()")
    theirs = tmp_path / "cluster.toml"
    theirs.touch()
    words = ("brick", "--id", "brick-9", "--node", "n1", "--config", str(theirs))
    other = subprocess.Popen(
        softstate(*words, "--incarnation", "1"),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        executable=sys.executable,
    )
    elsewhere = Cluster(msgspec.structs.replace(local.cluster.config, source=str(theirs)))
    try:
        with Chaos(elsewhere) as theirs_chaos, Chaos(local.cluster) as ours:
            until(lambda: theirs_chaos.pick("brick") == ["brick-9"], PATIENCE_S, "theirs seen")
            with pytest.raises(NotReady, match="brick-9 is no process"):
                ours.crash("brick-9")
            assert other.poll() is None
            theirs_chaos.crash("brick-9")
            assert other.wait(PATIENCE_S) == -signal.SIGKILL
    finally:
        other.kill()
        other.wait()


def test_what_cannot_be_done_is_said_and_leaves_nothing(chaos: Chaos, told: list[Record]) -> None:
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: chaos.hang("brick-1", for_s=4000), "at most 3600 s"),
        (lambda: chaos.hang(), "name at least one"),
        (lambda: chaos.slow(), "name at least one"),
        (lambda: chaos.disk("brick-1"), "brick-1 has no store"),
        (lambda: chaos.hub("brick-1"), "brick-1 is no hub"),
        (lambda: chaos.node("n9"), "no node n9; there are n1, n2"),
        (lambda: chaos.partition("n1", "n1"), "cut off from itself"),
        (lambda: chaos.partition("n1", "n2"), "no network namespace of its own"),
        (lambda: chaos.packets("n1", share=2.0), "at most 1"),
        (lambda: chaos.drop("brick-1", share=2.0), "drop of 2: from 0 to 1"),
        (lambda: chaos.flip_value("manager-1"), "a manager holds no values"),
        (lambda: chaos.pick("greeter"), "no greeter of"),
    ]
    for verb, sentence in refused:
        with pytest.raises(BusError, match=sentence):
            verb()
    assert told == []


# The command.


def of(local: LocalCluster) -> tuple[str, str]:
    return "--config", local.cluster.config.source


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        softstate("chaos", *words),
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_command_tells_what_it_does_and_keeps_a_history(
    local: LocalCluster, tmp_path: Path
) -> None:
    history = tmp_path / "history"
    done = run(
        *("hang", "random", "brick", "--for", "0.2", "--seed", "5"),
        *("--history", str(history), *of(local)),
    )
    assert (done.returncode, done.stderr) == (0, "")
    seed, began, healed = done.stdout.splitlines()
    assert seed == "seed 5"
    brick_id = began.split()[3]
    assert began.split()[1:] == ["began", "hang", brick_id, "stopped,", "for", "0.2", "s"]
    assert healed.split()[1:] == ["healed", "hang", brick_id, "stopped"]
    records = [msgspec.json.decode(each, type=Record) for each in history.read_bytes().splitlines()]
    assert [(each.what, each.targets, each.seed) for each in records] == [
        ("began", [brick_id], 5),
        ("healed", [brick_id], 5),
    ]


def test_command_does_it_to_all_of_a_role_and_tells_programs(local: LocalCluster) -> None:
    done = run("slow", "--all", "brick", "--amount=2", "--for", "0.2", "--json", *of(local))
    told = msgspec.json.decode(done.stdout)
    assert [(each["what"], each["targets"], each["detail"]) for each in told["records"]] == [
        (what, ["brick-1", "brick-2"], "0.002 s before each message")
        for what in ("began", "healed")
    ]
    assert told["seed"] == told["records"][0]["seed"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("crash --all brick brick-1", "--all ROLE goes with crash, drop, hang, slow"),
        ("leak --all brick", "--all ROLE goes with"),
        ("crash random", "one word belongs to `random`"),
        ("partition n1", "between two nodes"),
        ("hang brick-1 --history /no/such/file", "/no/such/file: No such file"),
    ],
)
def test_command_that_makes_no_sense_is_refused(
    local: LocalCluster, words: str, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        main([*words.split(), *of(local)])
