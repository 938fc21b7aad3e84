"""Who is a process of a cluster, by its command line, and who never is; what histories say.

Method: command lines are written out, some by the very function that agents use.
"""

from random import Random

import pytest

from bus.config import Config, parse
from bus.errors import ConfigError
from roles.chaos_record import FOR_S_MAX, Record, check_length, line
from roles.chaos_targets import Life, agent_of, chosen, life_of
from roles.invoke import softstate

CONFIG = parse(
    'hubs = ["tcp://127.0.0.1:7000"]\n[nodes.a]\nrun = {hub = 1}\n[nodes.b]\nrun = {brick = 2}\n',
    "/here/cluster.toml",
    {"hub", "brick"},
)
OURS = ("--id", "brick-2", "--node", "b", "--config", "/here/cluster.toml")


def life(words: list[str], config: Config = CONFIG) -> Life | None:
    return life_of(words, config, lambda path: path == config.source)


def test_what_an_agent_starts_is_known_by_its_id_and_life() -> None:
    words = softstate("brick", *OURS, "--incarnation", "17", "--restarts", "0")
    assert life(words) == Life("brick-2", 17)


def test_what_a_watchdog_starts_is_the_agent_of_its_node() -> None:
    words = softstate("node", "b", "--config", "/here/cluster.toml", "--agent", "--restarts", "3")
    assert life(words) == Life("node-2", 0)
    agent = agent_of(CONFIG, "a")
    assert agent is not None
    assert agent.id == "node-1"
    assert agent_of(CONFIG, "c") is None


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["python"],
        softstate(),
        softstate("status"),
        softstate("up", "--config", "/here/cluster.toml"),
        softstate("node", "b", "--config", "/here/cluster.toml"),  # A watchdog.
        softstate("node", "c", "--config", "/here/cluster.toml", "--agent", "--restarts", "0"),
        softstate("node", "b", "--config", "/there/cluster.toml", "--agent", "--restarts", "0"),
        softstate("brick", *OURS[:-1], "/there/cluster.toml", "--incarnation", "1"),
        softstate("brick", *OURS),  # Nobody's child: started by hand.
        softstate("hub", *OURS, "--incarnation", "1"),
        softstate("brick", *OURS, "--incarnation", "one"),
        softstate("", "--id", "-1", "--config", "/here/cluster.toml", "--incarnation", "1"),
        ["vim", "-P", "-m", "bus", "brick", *OURS, "--incarnation", "1"],
        ["python", "service.py", "--id", "brick-2", "--config", "/here/cluster.toml"],
    ],
    ids=" ".join,
)
def test_anybody_else_is_not_ours(words: list[str]) -> None:  # T1
    assert life(words) is None


def test_chance_is_the_same_for_the_same_seed_and_chooses_of_one_role() -> None:
    ids = ["brick-3", "hub-1", "brick-1", "brick-2", "brick-10", "my-brick-1"]
    first = chosen(ids, "brick", 2, Random(7))
    assert first == chosen(list(reversed(ids)), "brick", 2, Random(7))
    assert set(chosen(ids, "brick", 99, Random(7))) == {"brick-1", "brick-2", "brick-3", "brick-10"}
    assert {tuple(chosen(ids, "brick", 1, Random(seed))) for seed in range(50)} == {
        ("brick-1",),
        ("brick-2",),
        ("brick-3",),
        ("brick-10",),
    }
    assert chosen(ids, "manager", 1, Random(7)) == []


@pytest.mark.parametrize("for_s", [0.0, -1.0, FOR_S_MAX + 1, float("nan"), float("inf")])
def test_fault_has_an_end_that_is_near(for_s: float) -> None:
    with pytest.raises(ConfigError, match="at most 3600 s"):
        check_length(for_s)
    check_length(FOR_S_MAX)


def test_people_read_what_was_done_to_whom() -> None:
    record = Record(
        at_s=0.0,
        what="began",
        verb="hang",
        targets=["brick-1", "brick-2"],
        detail="stopped",
        for_s=10.0,
        seed=7,
    )
    assert line(record, "12:03:44") == (
        "12:03:44  began   hang        brick-1 brick-2  stopped, for 10 s"
    )
