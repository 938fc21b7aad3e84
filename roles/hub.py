"""A hub: passes on what is published to all who listen. Decides nothing, remembers nothing.

There are two or more; everyone connects to all of them, so one may die at any moment and
nothing is lost. Data (reads, writes, tasks) never passes through a hub.

When a key was revoked, each hub cuts everyone off and binds anew; who still may comes back by
itself. A hub that cannot bind again ends, so that its agent starts another.
"""

from typing import Protocol

import gevent
from gevent.event import Event as Flag

from bus.config import publish_address
from bus.errors import BusError
from bus.member import Member
from bus.pump import Relay

REBIND_STAGGER_S = 1.5  # Hubs re-bind one by one, so that there is always another…
REBIND_S_MAX = 6.0  # …but all soon: with 2 s to see the change, it is done within 10 s.


def main(member: Member) -> None:
    address = member.config.hub_address(member.identity.id)
    relay = Relay(member.pump, address, publish_address(address), member.fail)
    revoked = Flag()
    after_s = rebind_after_s(member.config.hubs.index(address), len(member.config.hubs))
    rebinding = gevent.spawn(rebind_when, revoked, after_s, relay, member)
    member.on_keys_taken_away(revoked.set)
    member.live()
    member.wait()
    rebinding.kill()
    relay.close()


def rebind_after_s(place: int, hubs: int) -> float:
    """How long after it saw the new list the hub at that place of `hubs` re-binds."""
    return place * min(REBIND_STAGGER_S, REBIND_S_MAX / max(1, hubs - 1))


class Rebinds(Protocol):
    def rebind(self) -> None: ...


class Fails(Protocol):
    def fail(self, error: BaseException) -> None: ...


def rebind_when(revoked: Flag, after_s: float, relay: Rebinds, member: Fails) -> None:
    """One re-binding at a time, however many keys are revoked meanwhile."""
    while True:
        revoked.wait()
        revoked.clear()
        gevent.sleep(after_s)
        try:
            relay.rebind()
        except BusError as error:
            member.fail(error)
            return
