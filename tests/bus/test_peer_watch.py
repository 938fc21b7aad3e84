"""Orders that go wrong, and who counts as an agent. The rest is in `tests/roles/test_healing.py`.

Method: a member that has joined nothing: what it says is kept untold, its table is told by hand."""

import msgspec
import pytest

from bus.config import Config, local
from bus.errors import LinkError
from bus.headers import News
from bus.identity import Identity
from bus.member import Member
from bus.messages import Beacon, Refused
from bus.peer_watch import PeerWatch
from bus.process_orders import ProcessDescribed, RestartProcess
from bus.process_peers import Restart

ORDER = Restart("n1", "brick-1", 5, "noticed dead")


def apart() -> Member:
    config = local("/tmp", nodes=2, run={"hub": 1, "brick": 2}, preset="fast")
    config = msgspec.structs.replace(config, heal=False)
    assert isinstance(config, Config)
    return Member(config, Identity("node-1", "node", "n1", 9), linked=False, restarts=0)


@pytest.mark.parametrize("error", [ValueError("message of 30000 bytes"), LinkError("closed")])
def test_an_order_that_cannot_be_asked_for_is_counted_and_said(error: Exception) -> None:
    def ourselves(order: RestartProcess) -> ProcessDescribed | Refused:
        raise error

    member = apart()
    watch = PeerWatch(member, ourselves)
    for _ in range(2):
        watch._order(ORDER)
    assert [(each.kind, each.subject, each.reason) for each in member._untold] == [
        (
            "degraded",
            "brick-1",
            "noticed dead, but the agent of n1 did not restart it: "
            f"failed, {type(error).__name__}: {error}",
        )
    ]
    assert watch._unasked.value == 2


def test_a_long_refusal_is_cut() -> None:
    member = apart()
    PeerWatch(member, lambda _: Refused("busy", 30_000 * "x"))._order(ORDER)
    (event,) = member._untold
    assert len(event.reason) < 500


def test_only_agents_that_are_planned_and_not_linked_are_believed() -> None:
    member = apart()
    watch = PeerWatch(member)

    def is_believed(sender: str, role: str, *, linked: bool = False) -> bool:
        beacon = Beacon(role, "n2", 1, "", "live", 1.0, 0, linked, 0.5, "", {})
        member.liveness.heard(sender, 5, beacon, 1.0)
        return watch._is_agent(News(sender, 5, 1, 1, msgspec.Raw(b"")))

    assert is_believed("node-2", "node")
    assert not is_believed("node-99", "node")
    assert not is_believed("brick-2", "brick")
    assert not watch._is_agent(News("node-3", 5, 1, 1, msgspec.Raw(b"")))

    member = apart()
    watch = PeerWatch(member)
    assert not is_believed("node-2", "node", linked=True)
    assert watch._is_agent(News("node-1", 9, 1, 1, msgspec.Raw(b"")))
