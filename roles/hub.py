"""A hub: passes on what is published to all who listen. Decides nothing, remembers nothing.

There are two or more; everyone connects to all of them, so one may die at any moment and
nothing is lost. Data (reads, writes, tasks) never passes through a hub.
"""

import gevent

from bus.config import publish_address
from bus.member import Member
from bus.pump import Relay

REBIND_STAGGER_S = 1.5  # Hubs re-bind one by one, so that there is always another…
REBIND_S_MAX = 6.0  # …but all of them soon: a revoked key is cut off within 10 s.


def main(member: Member) -> None:
    address = member.config.hub_address(member.identity.id)
    relay = Relay(member.pump, address, publish_address(address))
    place = member.config.hubs.index(address)
    rebind_after_s = min(place * REBIND_STAGGER_S, REBIND_S_MAX)

    def rebind() -> None:
        # A key was revoked: cut everyone off. Who still may reconnects by itself.
        gevent.spawn_later(rebind_after_s, relay.rebind)

    member.on_keys_taken_away(rebind)
    member.live()
    member.wait()
    relay.close()
