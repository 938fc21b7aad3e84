"""A hub: passes on what is published to all who listen. Decides nothing, remembers nothing.

There are two or more; everyone connects to all of them, so one may die at any moment and
nothing is lost. Data (reads, writes, tasks) never passes through a hub.
"""

import gevent

from bus.config import publish_address
from bus.member import Member
from bus.pump import Relay

REBIND_STAGGER_S = 1.5  # Hubs re-bind one by one, so that there is always another.


def main(member: Member) -> None:
    address = member.config.hub_address(member.identity.id)
    relay = Relay(member.pump, address, publish_address(address))
    place = member.config.hubs.index(address)

    def rebind() -> None:
        # A key was revoked: cut everyone off. Who still may reconnects by itself.
        gevent.spawn_later(place * REBIND_STAGGER_S, relay.rebind)

    member.on_keys_taken_away(rebind)
    member.live()
    member.wait()
    relay.close()
