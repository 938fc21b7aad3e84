"""`softstate status` and `softstate events` on real clusters, as a person or a script runs them.

Method: a local cluster of real processes, shared by the tests that only look at it; the commands
run as processes, and what they print is compared with what the cluster itself says.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bus.config import dump, local
from roles.invoke import environment, softstate
from roles.testing import LocalCluster
from tests.waiting import until

pytestmark = pytest.mark.slow

FIELDS = ["id", "role", "node", "pid", "state", "age_s", "restarts", "cpu", "rss_bytes", "linked"]
EVENT_FIELDS = ["at", "kind", "subject", "reason", "by", "incarnation", "sequence"]
PLANNED = ["greeter-1", "greeter-2", "hub-1", "hub-2", "node-1", "node-2"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    roles = {"greeter": "examples.hello_role:main"}
    with LocalCluster(nodes=2, hubs=2, greeters=2, preset="fast", roles=roles) as running:
        yield running


@contextmanager
def started(*words: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        softstate(*words),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(*words: str) -> tuple[int, str, str]:
    with started(*words) as process:
        out, err = process.communicate(timeout=30)
        return process.returncode, out, err


def source(cluster: LocalCluster) -> str:
    return cluster.cluster.config.source


def status(config: str) -> list[dict[str, object]]:
    code, out, err = run("status", "--json", "--config", config)
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert list(answer) == ["components"]
    components: list[dict[str, object]] = answer["components"]
    return components


def test_status_json_lists_every_process_with_exactly_the_fields(cluster: LocalCluster) -> None:
    rows = status(source(cluster))
    assert [list(row) for row in rows] == [FIELDS] * len(rows)
    ours = [row for row in rows if not row["linked"]]
    assert [row["id"] for row in ours] == PLANNED
    assert {row["state"] for row in ours} == {"live"}
    known = {each.id: (each.pid, each.node) for each in cluster.components()}
    assert {row["id"]: (row["pid"], row["node"]) for row in rows} == known
    assert all(isinstance(row["rss_bytes"], int) and row["rss_bytes"] > 1e6 for row in ours)


def counts(cluster: LocalCluster) -> str:
    return run("status", "--config", source(cluster))[1].splitlines()[-1]


def test_status_shows_a_table_and_counts(cluster: LocalCluster) -> None:
    code, out, err = run("status", "--config", source(cluster))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["ID", "NODE", "PID", "STATE", "UP", "RESTARTS", "CPU", "MEMORY"]
    assert lines[1].startswith("node-1 ")
    # The test itself is one: it is linked, and silent while it waits for a command that takes long.
    until(lambda: counts(cluster) == "7 processes: 7 live", 30.0, "all of them live")


def test_commands_leave_no_trace_in_the_cluster(cluster: LocalCluster) -> None:
    before = {each.id for each in cluster.components()}
    for words in (("status",), ("events",)):
        assert run(*words, "--config", source(cluster))[0] == 0
    assert {each.id for each in cluster.components()} == before


def test_events_are_told_once_as_many_as_asked_for_and_followed_until_interrupted() -> None:
    roles = {"greeter": "examples.hello_role:main"}
    with LocalCluster(
        nodes=2, hubs=2, greeters=2, preset="fast", heal=False, roles=roles
    ) as cluster:
        config = ("--config", source(cluster))
        with started("events", "--follow", *config) as process:
            cluster.kill("greeter-1")
            line = first_with(process, "greeter-1 ")
            while " exited " not in line:  # That it started may have been told before.
                line = first_with(process, "greeter-1 ")
            assert line.rstrip().endswith("  killed by SIGKILL (by node-1)")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=10)
            assert (process.returncode, err) == (130, "")
        states = {row["id"]: row["state"] for row in status(source(cluster))}
        assert (states["greeter-1"], states["greeter-2"]) == ("dead", "live")

        code, out, err = run("events", "--json", *config)
        assert (code, err) == (0, "")
        events = [json.loads(line) for line in out.splitlines()]
        assert [list(event) for event in events] == [EVENT_FIELDS] * len(events)
        names = [(event["by"], event["incarnation"], event["sequence"]) for event in events]
        assert len(set(names)) == len(names)  # Both agents remember each, and it is shown once.
        exits = [(e["subject"], e["reason"], e["by"]) for e in events if e["kind"] == "exited"]
        assert exits == [("greeter-1", "killed by SIGKILL", "node-1")]

        assert len(run("events", "--json", "--count", "1", *config)[1].splitlines()) == 1
        assert run("events", "--count", "0", *config) == (0, "", "")


def first_with(process: "subprocess.Popen[str]", word: str) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return line
    raise AssertionError(f"it ended without {word}")


@pytest.mark.parametrize("command", ["status", "events"])
def test_silent_cluster_is_told_in_a_sentence_that_says_what_to_do(
    command: str, tmp_path: Path
) -> None:
    path = write_config(tmp_path)
    assert run(command, "--config", path) == (
        1,
        "",
        f"softstate: nothing was heard of the cluster in {path} within 1.6 s. Is it running? "
        "`softstate up` starts one, and `softstate doctor` says what may be in the way\n",
    )


def test_without_an_agent_status_shows_what_it_heard_itself(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    with ExitStack() as stack:
        words = ("--node", "n1", "--config", path)
        hub = stack.enter_context(started("hub", "--id", "hub-1", *words))
        assert hub.stderr is not None
        assert "started hub-1" in hub.stderr.readline()

        def heard() -> bool:
            return run("status", "--config", path)[0] == 0

        until(heard, 20, "the hub hears its own beacons")
        code, out, err = run("status", "--json", "--config", path)
        assert code == 0
        assert err == "softstate: no node agent told; this is what we heard ourselves\n"
        rows = json.loads(out)["components"]
        assert [(row["id"], row["pid"], row["state"]) for row in rows] == [
            ("hub-1", hub.pid, "live")
        ]
        code, out, err = run("events", "--config", path)
        told = "softstate: no node agent told what it remembers; --follow shows what comes\n"
        assert (code, out, err) == (1, "", told)


def write_config(directory: Path) -> str:
    path = directory / "cluster.toml"
    path.write_text(dump(local(directory, nodes=1, run={"hub": 1}, preset="fast")))
    return str(path)


@pytest.mark.parametrize("words", [("up",), ("node", "n1")], ids=" ".join)
def test_second_start_of_the_same_cluster_is_refused_and_harms_nobody(
    cluster: LocalCluster, words: tuple[str, ...]
) -> None:
    before = {row.id: row.pid for row in cluster.components() if not row.linked}
    code, out, err = run(*words, "--config", source(cluster))
    hub = cluster.cluster.config.hubs[0]
    assert (code, out, err) == (
        1,
        "",
        f"softstate: {hub} is taken: this cluster is already up (`softstate status` shows it), or "
        "another program has the port\n",
    )
    after = {row.id: row.pid for row in cluster.components() if not row.linked}
    assert (after, list(before)) == (before, PLANNED)
