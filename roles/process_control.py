"""Have processes started, ended and restarted by hand, and see it done. Waits and asks only.

A person's orders, as against those of the process peers: a start releases whatever is held back,
and what was ended stays ended. They go to the agent of the node where the process is.
"""

from collections.abc import Sequence

import gevent

from bus.agents import agents, order
from bus.clock import now
from bus.config import HUB, NODE
from bus.errors import ConfigError, NotReady
from bus.member import Member
from bus.messages import Refused
from bus.process_orders import EndProcess, ProcessDescribed, StartProcess
from roles.observer import CONNECT_S, PERIODS_MAX

ANSWER_S_MAX = 5.0
LIVE_S_MAX = 20.0
END_S_MAX = 10.0  # Longer than an agent grants before it kills.
LOOK_S = 0.02


def settle(member: Member) -> None:
    """Hear who is there: a newcomer knows nobody."""
    planned = {each.id for each in member.config.components()}
    deadline = now() + CONNECT_S + PERIODS_MAX * member.config.beacons.period_s
    while now() < deadline and not planned <= {peer.id for peer in member.liveness.peers()}:
        gevent.sleep(LOOK_S)
    if not agents(member):
        raise NotReady(
            f"no node agent of the cluster in {member.config.source} was heard of. Is it running? "
            "`softstate doctor` says what may be in the way"
        )


def check(member: Member, component_ids: Sequence[str]) -> None:
    """Raises `ConfigError`, before anything is done, if one of them is not for agents to run."""
    planned = {each.id: each.role for each in member.config.components()}
    for component_id in component_ids:
        peer = member.liveness.peer(component_id)
        if peer is not None and peer.linked:
            raise ConfigError(f"{component_id} merely links the cluster: it is never touched")
        role = planned.get(component_id, "" if peer is None else peer.role)
        if not role:
            raise ConfigError(f"there is no {component_id}; `softstate status` lists all")
        if role == NODE:
            raise ConfigError(f"{component_id} is a node's agent, which its watchdog looks after")


def start(member: Member, component_id: str) -> ProcessDescribed:
    """Have it run, whatever held it back, and wait until it is live."""
    node = place(member, component_id)
    answer = _ask(member, node, StartProcess(component_id))
    wait_live(member, component_id, answer.incarnation)
    return answer


def stop(member: Member, component_id: str) -> ProcessDescribed:
    """Have it end, and stay so, and wait until it has."""
    node = place(member, component_id)
    deadline = now() + END_S_MAX
    while True:
        answer = _ask(member, node, EndProcess(component_id))
        if answer.pid == 0:
            return answer
        if now() > deadline:
            raise NotReady(f"{component_id} has not ended within {END_S_MAX:.0f} s")
        gevent.sleep(5 * LOOK_S)


def restart(member: Member, component_id: str) -> ProcessDescribed:
    """Have it end in good order, and begin anew."""
    before = stop(member, component_id)
    after = start(member, component_id)
    assert after.incarnation > before.incarnation
    return after


def place(member: Member, component_id: str) -> str:
    """Where it is, if its agent is there; else where it belongs, if that one is; else anywhere."""
    peer = member.liveness.peer(component_id)
    planned = {each.id: each.node for each in member.config.components()}
    there = [agent.node for agent in agents(member)]
    wanted = ["" if peer is None else peer.node, planned.get(component_id, "")]
    if peer is None or peer.state in ("dead", "offline"):
        wanted.reverse()
    is_hub = component_id.startswith(f"{HUB}-")
    for node in (*wanted, *([] if is_hub else there)):
        if node in there:
            return node
    raise NotReady(f"no agent is there to look after {component_id}")


def wait_live(member: Member, component_id: str, incarnation: int) -> None:
    """Until that life, or a later one, is live."""
    deadline = now() + LIVE_S_MAX
    while True:
        peer = member.liveness.peer(component_id)
        if peer is not None and peer.incarnation >= incarnation and peer.state == "live":
            return
        if now() > deadline:
            raise NotReady(
                f"{component_id} is not live after {LIVE_S_MAX:.0f} s; see `softstate events`"
            )
        gevent.sleep(LOOK_S)


def _ask(member: Member, node: str, message: StartProcess | EndProcess) -> ProcessDescribed:
    answer = order(member, node, message, ANSWER_S_MAX)
    if isinstance(answer, Refused):
        raise NotReady(f"{message.id}: {answer.reason}, {answer.detail}")
    return answer
