"""`softstate leases` and `softstate why` on a real cluster, as a person or a script runs them.

Method: one local cluster with raw owners in two namespaces, shared by all tests that only look at
it; the commands run as processes. How text looks is compared whole in `test_lease_table`.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.config import dump, local
from roles.invoke import environment, softstate
from roles.key_range import KEYS_END, position
from roles.testing import LocalCluster
from tests.roles.raw_leases import Managers, RawOwner

pytestmark = pytest.mark.slow

HALF = KEYS_END // 2
SETTINGS = {"namespaces": {"presence": {"policy": "fixed"}}, "leases": {"poll_s": 2}}


@pytest.fixture(scope="module")
def config() -> Iterator[str]:
    """In `presence`, u1 has the lower half and u2 the upper; in `queues`, u1 has everything."""
    with LocalCluster(hubs=2, nodes=2, managers=2, preset="paper", settings=SETTINGS) as cluster:
        managers = Managers(cluster)
        first, second = RawOwner(managers, "u1"), RawOwner(managers, "u2")
        for owner in (first, second, first, first, second):  # Asked back, given up, granted.
            owner.renew()
        assert [(span.start, span.end) for span in second.ranges] == [(HALF, KEYS_END)]
        RawOwner(managers, "u1", namespace="queues").renew()
        yield cluster.cluster.config.source
        cluster.cluster.release()


def run(*words: str) -> tuple[int, str, str]:
    done = subprocess.run(
        softstate(*words),
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_leases_json_has_leader_owners_and_map(config: str) -> None:
    code, out, err = run("leases", "--json", "--config", config)
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert list(told) == ["leader", "term", "leading_s", "namespaces", "cut"]
    assert (told["leader"].rpartition("-")[0], told["term"], told["cut"]) == ("manager", 1, False)
    presence, queues = told["namespaces"]
    assert (presence["name"], presence["recalls"], presence["unowned"]) == ("presence", 0, 0.0)
    assert [(row["id"], row["url"], row["share"]) for row in presence["owners"]] == [
        ("u1", "tcp://u1", 0.5),
        ("u2", "tcp://u2", 0.5),
    ]
    assert all(0 < row["expires_in_s"] <= 65 for row in presence["owners"])
    rows = [(row["start"], row["end"], row["owner"]) for row in presence["map"]]
    assert rows == [(0, HALF, "u1"), (HALF, KEYS_END, "u2")]
    assert [(row["owner"], row["number"]) for row in queues["map"]] == [("u1", 1)]


def test_leases_shows_one_namespace_if_it_is_named(config: str) -> None:
    code, out, err = run("leases", "presence", "--config", config)
    assert (code, err) == (0, "")
    assert " leads in term 1, for " in out.splitlines()[0]
    assert "presence: 2 owners, 2 ranges, 0.0 % unowned, version 1." in out
    assert "queues" not in out
    assert "0000000000000000  7fffffffffffffff" in out


def test_unknown_namespace_is_told_with_the_nearest(config: str) -> None:
    said = "softstate: no namespace `presense`; did you mean `presence`?\n"
    assert run("leases", "presense", "--config", config) == (1, "", said)
    assert run("why", "alice", "--namespace", "presense", "--config", config) == (1, "", said)
    others = run("leases", "zzz", "--config", config)
    assert others == (1, "", "softstate: no namespace `zzz`; there are presence, queues\n")


def test_why_tells_owner_age_and_decision_of_a_key(config: str) -> None:
    words = ("why", "alice", "--namespace", "presence", "--config", config)
    code, out, err = run(*words, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    at = position("alice")
    owner, start = ("u1", 0) if at < HALF else ("u2", HALF)
    assert told["position"] == at
    assert (told["owner"], told["url"], told["start"]) == (owner, f"tcp://{owner}", start)
    assert told["decision"].startswith(f"granted to {owner}: ")
    assert 0 < told["since_s"] == told["since_s_min"] < 120
    code, out, err = run(*words)
    assert (code, err) == (0, "")
    assert f"owner     {owner}, at tcp://{owner}\n" in out


def test_why_takes_whole_numbers_as_they_are(config: str) -> None:
    words = ("why", "--int", "--json", "--namespace", "presence", "--config", config)
    owners = [json.loads(run(*words, str(key))[1])["owner"] for key in (HALF - 1, HALF)]
    assert owners == ["u1", "u2"]
    code, out, err = run(*words, str(KEYS_END))
    assert (code, out) == (2, "")
    assert err.endswith(f"--int: '{KEYS_END}' is no whole number from 0 to 2**64 - 1\n")


@pytest.mark.parametrize("key", ["0" * 21 + "9" * 23, "1" * 5000, "-1", "1.5", "\u0663"])
def test_why_refuses_what_is_no_position(config: str, key: str) -> None:
    code, out, err = run("why", "--int", "--config", config, "--", key)
    assert (code, out) == (2, "")
    assert len(err.splitlines()[-1]) < 200
    assert "is no whole number" in err


def test_why_takes_leading_zeros(config: str) -> None:
    code, out, _ = run("why", "--int", "--namespace", "presence", "--config", config, "0" * 5000)
    assert (code, "owner" in out) == (0, True)


def test_why_wants_a_namespace_named_if_there_are_several(config: str) -> None:
    said = "softstate: name one with --namespace: there are presence, queues\n"
    assert run("why", "alice", "--config", config) == (1, "", said)


def test_cluster_without_managers_is_told_in_a_sentence(tmp_path: Path) -> None:
    with LocalCluster(hubs=1, nodes=1, preset="fast") as cluster:
        source = cluster.cluster.config.source
        said = (
            f"softstate: no lease manager was heard of; does {source} run one? Write "
            "`manager = 1` into the `run` of a node\n"
        )
        assert run("leases", "--config", source) == (1, "", said)


def test_silent_cluster_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(dump(local(tmp_path, nodes=1, run={"hub": 1}, preset="fast")))
    code, out, err = run("leases", "--config", str(path))
    assert (code, out) == (1, "")
    assert err.startswith(f"softstate: nothing was heard of the cluster in {path} within ")
