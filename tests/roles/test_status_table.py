"""How `softstate status` looks: rows in, text out, compared whole."""

from bus.peers import Peer
from roles.messages import Component
from roles.status_table import component, table


def row(component_id: str, node: str = "n1", **fields: object) -> Component:
    usual: dict[str, object] = {
        "role": component_id.rpartition("-")[0],
        "pid": 4711,
        "state": "live",
        "age_s": 75.0,
        "restarts": 0,
        "cpu": 0.124,
        "rss_bytes": 39_600_000,
        "linked": False,
    }
    return Component(id=component_id, node=node, **(usual | fields))  # type: ignore[arg-type]


def test_table_goes_node_by_node_agent_first_and_2_before_10() -> None:
    rows = [
        row("brick-10"),
        row("brick-2", restarts=3),
        row("hub-1", state="suspect", age_s=86400.0 * 3),
        row("node-1", cpu=1.5),
        row("brick-3", "n2", state="dead", pid=0, age_s=0.0),
        row("node-2", "n2"),
        row("shop-4f", "web", linked=True),
    ]
    assert table(rows) == (
        "ID        NODE   PID  STATE      UP  RESTARTS    CPU  MEMORY\n"
        "node-1    n1    4711  live     75 s         0  150 %   40 MB\n"
        "brick-2   n1    4711  live     75 s         3   12 %   40 MB\n"
        "brick-10  n1    4711  live     75 s         0   12 %   40 MB\n"
        "hub-1     n1    4711  suspect   3 d         0   12 %   40 MB\n"
        "node-2    n2    4711  live     75 s         0   12 %   40 MB\n"
        "brick-3   n2       -  dead        -         0      -       -\n"
        "shop-4f   web   4711  live     75 s         0   12 %   40 MB  linked\n"
        "\n"
        "7 processes: 5 live, 1 suspect, 1 dead\n"
    )


def test_names_of_a_peer_cannot_command_the_terminal() -> None:
    text = table([row("brick-\x1b[2J1", node="\n")])
    assert "\x1b" not in text
    assert text.count("\n") == 4


def test_table_of_nothing_says_so() -> None:
    assert table([]).endswith("\nno process\n")


def test_component_of_a_peer_grows_older_since_it_was_heard() -> None:
    peer = Peer(
        id="brick-2",
        incarnation=7,
        state="live",
        heard_at=100.0,
        role="brick",
        node="n1",
        pid=4711,
        endpoint="tcp://127.0.0.1:1",
        linked=False,
        restarts=1,
        age_s=5.0,
        metrics_url="",
        statistics={"cpu": 0.5, "rss_bytes": 1024.0, "reads_per_s": 3.0},
    )
    assert component(peer, now=100.4) == Component(
        "brick-2", "brick", "n1", 4711, "live", 5.0 + 100.4 - 100.0, 1, 0.5, 1024, linked=False
    )
