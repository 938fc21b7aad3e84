"""Which manager of a local cluster leads, as its beacon says; and how a stopped one goes on."""

from contextlib import suppress

from roles.testing import LocalCluster
from tests.waiting import until

LEADS_S_MAX = 20.0


def leader(local: LocalCluster, *, after: str = "") -> str:
    """Waits for one manager that says so, other than `after`, whose last beacon may still do."""
    member = local.cluster.member()
    try:
        found: list[str] = []

        def one() -> bool:
            managers = [peer for peer in member.peers("manager") if peer.id != after]
            found[:] = [peer.id for peer in managers if peer.statistics.get("leading")]
            return len(found) == 1

        until(one, LEADS_S_MAX, "one manager that leads")
        return found[0]
    finally:
        local.cluster.release()


def go_on(local: LocalCluster, manager: str) -> None:
    """Resume it, and wait until it is live; perhaps it was killed, as it had the store locked."""
    with suppress(ValueError):
        local.resume(manager)
    local.wait_live(manager)
