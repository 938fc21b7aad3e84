"""The cluster as one agent sees it: rows for `softstate status`, events, whether all is live."""

import os
from collections.abc import Mapping

import msgspec

from bus.config import NODE
from bus.member import Member
from bus.peers import (
    Change,
    Died,
    HubsSuspected,
    HubsTrusted,
    Left,
    Peer,
    Returned,
    Suspected,
)
from bus.process_orders import Held
from roles.messages import ClusterRows, Component

URLS_MAX = 3  # In the line that says ready.


def cluster_rows(member: Member, held: Mapping[str, Held], age_s: float, now: float) -> ClusterRows:
    """Every process that was heard of or is asked for, by role and number; `held`: what agents
    hold back; `age_s` is our own."""
    lives = {peer.id: (_row(peer, now), peer.incarnation) for peer in member.liveness.peers()}
    lives[member.identity.id] = (_own_row(member, age_s), member.identity.incarnation)
    for planned in member.config.components():
        missing = Component(
            planned.id, planned.role, planned.node, 0, "dead", 0.0, 0, 0.0, 0, linked=False
        )
        lives.setdefault(planned.id, (missing, 0))
    rows = [lives[component_id] for component_id in sorted(lives, key=_by_number)]
    return ClusterRows(
        [_held_back(row, held.get(row.id)) for row, _ in rows],
        [incarnation for _, incarnation in rows],
    )


def ready_line(member: Member, elapsed_s: float) -> str:
    """What to say once every process that the configuration asks for is live; empty before."""
    planned = member.config.components()
    live = {peer.id: peer.metrics_url for peer in member.peers()}
    live.setdefault(member.identity.id, "")
    if not all(component.id in live for component in planned):
        return ""
    nodes = sum(component.role == NODE for component in planned)
    urls = [live[component.id] for component in planned if live[component.id]]
    metrics = f"; metrics: {', '.join(urls[:URLS_MAX])}" if urls else ""
    more = ", …" if len(urls) > URLS_MAX else ""
    return (
        f"ready: {len(planned)} processes on {nodes} nodes after {elapsed_s:.1f} s; "
        f"`softstate status` lists them{metrics}{more}"
    )


def told_of(change: Change) -> tuple[str, str, str] | None:
    """A change of the liveness table as an event: kind, subject, reason; None if not notable."""
    told = None
    match change:
        case Suspected(id=component_id):
            told = "suspected", component_id, "silent for too long"
        case Died(id=component_id, reason=reason, vouched=False):
            told = "died", component_id, reason
        case Returned(id=component_id, by=by):
            told = "returned", component_id, f"heard again, by {by}"
        case Left(id=component_id):
            told = "left", component_id, "said goodbye"
        case HubsSuspected(missing=missing, known=known):
            told = "blind", "hubs", f"{missing} of {known} peers are silent at once"
        case HubsTrusted():
            told = "sighted", "hubs", "enough beacons come through again"
        case _:
            pass  # Agents vouch for exits themselves, and processes say that they started.
    return told


def _row(peer: Peer, now: float) -> Component:
    ended = peer.state in ("dead", "offline")
    age_s = peer.age_s if ended else peer.age_s + max(0.0, now - peer.heard_at)
    return Component(
        peer.id,
        peer.role,
        peer.node,
        peer.pid,
        peer.state,
        age_s,
        peer.restarts,
        peer.statistics.get("cpu", 0.0),
        int(peer.statistics.get("rss_bytes", 0)),
        peer.linked,
    )


def _held_back(row: Component, held: Held | None) -> Component:
    """What is not there, and is not meant to be."""
    if held is None or row.state not in ("dead", "offline"):
        return row
    return msgspec.structs.replace(row, state=held.why)


def _own_row(member: Member, age_s: float) -> Component:
    """Our own table does not have us."""
    me = member.identity
    readings = {family.name: family.value for family in member.statistics.families()}
    return Component(
        me.id,
        me.role,
        me.node,
        os.getpid(),
        member.state,
        age_s,
        member.restarts,
        readings.get("softstate_cpu", 0.0),
        int(readings.get("softstate_rss_bytes", 0)),
        member.linked,
    )


def _by_number(component_id: str) -> tuple[str, int, str]:
    """brick-2 before brick-10."""
    role, _, number = component_id.rpartition("-")
    is_number = number.isdecimal() and len(number) < 10  # Anyone may publish under any name.
    return (role, int(number), "") if is_number else (component_id, 0, component_id)
