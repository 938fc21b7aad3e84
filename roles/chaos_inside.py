"""Ask a process of the cluster to be sick: `InjectFault` over the bus. Asks and waits only."""

import gevent

from bus.clock import now
from bus.errors import ConfigError, NotReady, RequestTimeoutError
from bus.member import Member
from bus.messages import InjectFault, Pong
from bus.peers import Peer
from bus.replies import Reply

SEEN_S_MAX = 5.0
ANSWER_S_MAX = 1.0
ATTEMPTS = 5
"""To one that loses most of what it says, and may be asked twice."""
_LOOK_S = 0.02


def peer_of(member: Member, component_id: str) -> Peer:
    """The process with that id, once it is heard; never a program that merely links the cluster."""
    deadline = now() + SEEN_S_MAX
    while True:
        peer = member.liveness.peer(component_id)
        if peer is not None and peer.linked:
            raise ConfigError(f"{component_id} merely links the cluster: it is never touched")
        if peer is not None and peer.endpoint and peer.state not in ("dead", "offline"):
            return peer
        if now() >= deadline:
            state = "was not heard of" if peer is None else f"is {peer.state}"
            raise NotReady(f"{component_id} {state}, so it cannot be made sick")
        gevent.sleep(_LOOK_S)


def try_to_inject(member: Member, peer: Peer, fault: InjectFault) -> NotReady | None:
    """None once it has said that it will; else why not."""
    for _ in range(ATTEMPTS):
        try:
            reply = member.client.ask(peer.endpoint, fault, expect=Pong, timeout_s=ANSWER_S_MAX)
        except RequestTimeoutError:
            continue
        if isinstance(reply, Reply):
            return None
        if reply.reason == "unknown":
            return NotReady(f"{peer.id} was started without `chaos = true`; start it again")
        return NotReady(f"{peer.id} will not: {reply.detail or reply.reason}")
    return NotReady(f"{peer.id} did not answer within {ATTEMPTS * ANSWER_S_MAX:g} s")
