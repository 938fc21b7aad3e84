"""`softstate bricks`, `bricks roll` and `bricks start` on real clusters, as a person runs them.

Method: bricks are filled without a stub; the commands run as processes. After a roll every value
must be where it was, under the same data incarnation, in a later life.
"""

import json
import subprocess
from pathlib import Path

import gevent
import msgspec
import pytest

from bus.clock import now
from bus.errors import NotReady
from bus.messages import Refused
from bus.replies import Reply
from roles.brick_roll import check_enough, live_bricks
from roles.cluster import Cluster
from roles.hand_over import VALID_S
from roles.hand_over_file import places
from roles.inquiry import event_rows
from roles.invoke import environment, softstate
from roles.session_messages import HandedOver, HandOver
from roles.testing import LocalCluster
from tests.roles.raw_bricks import RawBricks
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE_S = 15.0
COUNT = 700  # More than one turn of a hand-over.


def run(*words: str) -> tuple[int, str, str]:
    """In a thread, so that this process goes on hearing the bricks. Not with gevent's own Popen:
    that takes the ends of children away from everyone who waits for them later."""
    done = gevent.get_hub().threadpool.apply(_run, words)
    return done.returncode, done.stdout, done.stderr


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        softstate(*words),
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def value_of(brick_id: str, number: int) -> bytes:
    return f"{brick_id} {number}".encode() * (1 + number % 50)


def fill(bricks: RawBricks, ids: list[str]) -> None:
    for brick_id in ids:
        for number in range(COUNT):
            bricks.stored(brick_id, number, value_of(brick_id, number), version=1 + number)
        bricks.delete(brick_id, COUNT)


def lost(bricks: RawBricks, brick_id: str) -> int:
    return sum(
        bricks.read(brick_id, number, version=1 + number)[1] != value_of(brick_id, number)
        for number in range(COUNT)
    )


def hand_over(local: LocalCluster, bricks: RawBricks, brick_id: str) -> HandedOver:
    """Have one end; returns when it is reaped."""
    pid = bricks.peer(brick_id).pid
    reply = bricks.member.client.ask(
        bricks.peer(brick_id).endpoint, HandOver(), expect=HandedOver, timeout_s=10.0
    )
    assert isinstance(reply, Reply), reply
    until(lambda: not Path(f"/proc/{pid}").exists(), PATIENCE_S, f"{brick_id} ended")
    rows = {row.id: row for row in local.components()}
    assert rows[brick_id].state in ("offline", "dead")
    return reply.message


def told(bricks: RawBricks, brick_id: str, kind: str) -> list[str]:
    events = event_rows(bricks.member, 200, 5.0).events
    return [each.reason for each in events if (each.subject, each.kind) == (brick_id, kind)]


def test_roll_restarts_every_brick_and_loses_nothing() -> None:
    ids = ["brick-1", "brick-2", "brick-3"]
    with LocalCluster(hubs=1, nodes=2, bricks=3, preset="fast") as local:
        bricks, source = RawBricks(local.cluster), local.cluster.config.source
        fill(bricks, ids)
        before = {brick_id: bricks.peer(brick_id) for brick_id in ids}

        code, out, err = run("bricks", "roll", "--config", source)
        assert (code, out) == (1, "")
        assert err == "softstate: this restarts 3 bricks, one after the other: say --yes\n"

        away: set[tuple[str, ...]] = set()

        def watch() -> None:
            while True:
                live = {peer.id for peer in bricks.member.peers("brick") if peer.state == "live"}
                away.add(tuple(sorted(set(ids) - live)))
                gevent.sleep(0.005)

        watching = gevent.spawn(watch)
        code, out, err = run("bricks", "roll", "--yes", "--json", "--config", source)
        watching.kill()
        assert (code, err) == (0, "")
        assert [(each["id"], each["items"]) for each in json.loads(out)["rolled"]] == [
            (brick_id, COUNT) for brick_id in ids
        ]
        assert away == {(), ("brick-1",), ("brick-2",), ("brick-3",)}  # R2
        for brick_id in ids:
            after = bricks.peer(brick_id, after=before[brick_id].incarnation)
            data = after.statistics["data_incarnation"]
            assert data == before[brick_id].statistics["data_incarnation"]
            assert lost(bricks, brick_id) == 0
            reply = bricks.store(brick_id, COUNT, b"late")
            assert isinstance(reply, Reply)
            assert reply.message.outcome == "deleted"
            assert told(bricks, brick_id, "resumed") == [
                f"with {COUNT} sessions of the life before"
            ]
        assert not any(path.exists() for each in ids for path in places(local.cluster.config, each))

        code, out, err = run("bricks", "--json", "--config", source)
        assert (code, err) == (0, "")
        rows = json.loads(out)["bricks"]
        assert [(row["id"], row["state"], row["items"]) for row in rows] == [
            (brick_id, "live", COUNT) for brick_id in ids
        ]
        assert list(rows[0]) == [
            "id", "node", "state", "items", "memory_bytes", "memory_bytes_max", "reads_per_s",
            "writes_per_s", "refused_per_s", "data_incarnation",
        ]  # fmt: skip
        code, out, err = run("bricks", "list", "--config", source)
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert lines[0].split()[:4] == ["ID", "NODE", "STATE", "SESSIONS"]
        assert lines[1].split()[:4] == ["brick-1", "n1", "live", str(COUNT)]
        bricks.close()


def test_roll_is_refused_when_none_can_be_spared() -> None:  # R1
    with LocalCluster(hubs=1, nodes=1, bricks=2, preset="fast") as local:
        source = local.cluster.config.source
        code, out, err = run("bricks", "roll", "--yes", "--config", source)
        assert (code, out) == (1, "")
        assert err == (
            "softstate: 2 bricks are live; 3 (WQ + 1) must be, so that one can be spared\n"
        )


def test_with_sites_as_many_are_left_at_each_as_a_write_needs_there() -> None:  # R1
    with LocalCluster(hubs=1, nodes=2, bricks=4, preset="fast", heal=False) as local:
        config = local.cluster.config
        nodes = {
            name: msgspec.structs.replace(node, site=f"site-{name}")
            for name, node in config.nodes.items()
        }
        for need in (1, 2):
            terms = msgspec.structs.replace(config.sessions, W_local=2, WQ_local=need)
            cluster = Cluster(msgspec.structs.replace(config, nodes=nodes, sessions=terms))
            member = cluster.member()
            until(lambda: len(live_bricks(member)) == 4, 10.0, "all bricks")  # noqa: B023
            if need == 1:
                check_enough(member, live_bricks(member))
            else:
                with pytest.raises(NotReady, match='2 bricks are live at site "site-n1"; 3'):
                    check_enough(member, live_bricks(member))
            cluster.release()


def test_start_brings_back_what_ended_and_nothing_else() -> None:
    with LocalCluster(hubs=1, nodes=2, bricks=3, preset="fast", heal=False) as local:
        source = local.cluster.config.source
        before = {each.id: each.pid for each in local.components() if each.role == "brick"}
        local.kill("brick-2")
        code, out, err = run("bricks", "roll", "--yes", "--config", source)
        assert (code, out) == (1, "")
        assert err == (
            "softstate: 2 bricks are live; 3 (WQ + 1) must be, so that one can be spared\n"
        )
        code, out, err = run("bricks", "start", "--config", source)
        assert (code, out, err) == (0, "started brick-2\n", "")
        local.wait_live("brick-2")
        after = {each.id: each.pid for each in local.components() if each.role == "brick"}
        assert [each for each in before if before[each] != after[each]] == ["brick-2"]
        code, out, err = run("bricks", "start", "--json", "--config", source)
        assert (code, json.loads(out), err) == (0, {"started": []}, "")


def test_what_cannot_be_trusted_is_a_cold_start() -> None:
    with LocalCluster(hubs=1, nodes=1, bricks=4, preset="fast", heal=False) as local:
        bricks, config = RawBricks(local.cluster), local.cluster.config
        ids = ["brick-1", "brick-2", "brick-3", "brick-4"]
        fill(bricks, ids)
        before = {brick_id: bricks.peer(brick_id) for brick_id in ids}

        handed_over = hand_over(local, bricks, "brick-1")
        assert (handed_over.items, handed_over.valid_s) == (COUNT, VALID_S)
        path = places(config, "brick-1")[0]
        with path.open("r+b") as file:  # One bit of one value.
            file.seek(handed_over.file_bytes // 2)
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
        hand_over(local, bricks, "brick-2")
        path = places(config, "brick-2")[0]
        path.write_bytes(path.read_bytes()[:-100])
        hand_over(local, bricks, "brick-3")
        local.kill("brick-4")
        other = places(config, "brick-4")[0]
        places(config, "brick-3")[0].rename(other)
        for brick_id in ids:
            local.start(brick_id)
        for brick_id in ids:
            after = bricks.peer(brick_id, after=before[brick_id].incarnation)
            data = after.statistics["data_incarnation"]
            assert data != before[brick_id].statistics["data_incarnation"]
            assert after.statistics["items"] == 0
            bricks.stored(brick_id, 1, b"new")
        until(
            lambda: all(told(bricks, each, "degraded") for each in ids if each != "brick-3"),
            PATIENCE_S,
            "told why",
        )
        assert told(bricks, "brick-2", "degraded")[0].endswith("it ends too soon")
        assert told(bricks, "brick-3", "degraded") == []  # There was none.
        assert told(bricks, "brick-4", "degraded")[0].endswith("it is of another brick")
        assert not other.exists()
        bricks.close()


def test_brick_that_cannot_hand_over_goes_on() -> None:  # K2
    with LocalCluster(hubs=1, nodes=1, bricks=3, preset="fast", heal=False) as local:
        bricks, config = RawBricks(local.cluster), local.cluster.config
        bricks.stored("brick-1", 1, b"value")
        for path in places(config, "brick-1"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir()  # Nothing can be put in the place of a directory.
            (path / "x").touch()
        try:
            code, out, err = run("bricks", "roll", "--yes", "--config", config.source)
            assert (code, out) == (1, "")
            assert err.startswith("softstate: brick-1 does not hand over: failed, no hand-over: ")
            until(
                lambda: not isinstance(bricks.store("brick-1", 2, b"two"), Refused),
                PATIENCE_S,
                "serving again",
            )
            assert bricks.read("brick-1", 1)[1] == b"value"
        finally:
            for path in places(config, "brick-1"):
                (path / "x").unlink()
                path.rmdir()
        bricks.close()


def test_a_brick_that_was_handed_over_in_the_middle_of_work_refuses_and_loses_nothing() -> None:
    """K2: whatever was acknowledged before or during a hand-over is there after it."""
    with LocalCluster(hubs=1, nodes=1, bricks=1, preset="fast") as local:
        bricks = RawBricks(local.cluster)
        before = bricks.peer("brick-1")
        acknowledged: list[int] = []
        refused: list[Refused] = []

        def write() -> None:
            number, give_up_at = COUNT, now() + PATIENCE_S
            while not refused and now() < give_up_at:
                number += 1
                outcome = bricks.store("brick-1", number, value_of("brick-1", number))
                if isinstance(outcome, Refused):
                    refused.append(outcome)
                else:
                    assert outcome.message.outcome == "stored"
                    acknowledged.append(number)

        fill(bricks, ["brick-1"])
        writing = gevent.spawn(write)
        until(lambda: len(acknowledged) > 50, PATIENCE_S, "some written")
        hand_over(local, bricks, "brick-1")
        writing.kill()
        local.start("brick-1")
        bricks.peer("brick-1", after=before.incarnation)
        assert [refusal.reason for refusal in refused] == ["busy"]
        values = [bricks.read("brick-1", number)[1] for number in acknowledged]
        assert values == [value_of("brick-1", number) for number in acknowledged]
        bricks.close()
