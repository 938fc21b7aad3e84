"""The leases as people see them: a namespace in, rows out, times written out."""

import msgspec

from bus.lease_timing import LEASE_PRESETS
from roles.assignment import Fixed
from roles.key_range import KEYS_END
from roles.lease_messages import OwnerAsk
from roles.lease_namespace import Namespace
from roles.lease_view import BYTES_MAX, explained, lease_rows, ranges_held, ranges_recalled
from roles.messages import (
    LeaseRows,
    LeasesDescribed,
    NamespaceRows,
    OwnerRow,
    RangeRow,
)

HALF = KEYS_END // 2
TIMING = LEASE_PRESETS["fast"]


def ask(namespace: Namespace, owner: str, sequence: int, now: float) -> None:
    """What a manager does with an ask, up to the answer."""
    namespace.ask(
        OwnerAsk(
            namespace.name,
            owner,
            f"tcp://{owner}",
            f"process-of-{owner}",
            process_incarnation=1,
            incarnation=1,
            nonce=1,
            sequence=sequence,
            seen_term=0,
            seen_revision=0,
            term_max=0,
            number_max=0,
            age_s=now,
            leaving=False,
            holds=[],
        ),
        now,
    )
    namespace.settle(now)
    namespace.take_rows()
    namespace.stamp_log(now)


def half_recalled() -> Namespace:
    """At 10.0 u1 got everything; at 12.0 u2 came, and u1 has not given up its half yet."""
    namespace = Namespace("presence", Fixed(), TIMING, term=1, now=10.0)
    ask(namespace, "u1", 1, 10.0)
    ask(namespace, "u2", 1, 12.0)
    return namespace


def test_rows_have_owners_map_and_what_is_recalled() -> None:
    namespace = half_recalled()
    rows = lease_rows({"presence": namespace}, "", 13.0, ranges=True)
    lasts_s = TIMING.manager_ttl_s
    first = OwnerRow(
        "u1",
        "tcp://u1",
        "process-of-u1",
        2,
        1.0,
        10.0 + lasts_s - 13.0,
        leaving=False,
        refused="",
        recalled=1,
    )
    second = OwnerRow(
        "u2",
        "tcp://u2",
        "process-of-u2",
        0,
        0.0,
        12.0 + lasts_s - 13.0,
        leaving=False,
        refused="",
        recalled=0,
    )
    ranges = [
        RangeRow(0, HALF - 1, 1, 0, 0, recalled=False),
        RangeRow(HALF, KEYS_END - 1, 1, 0, 0, recalled=True),
    ]
    shown = NamespaceRows("presence", *namespace.version, [first, second], 0.0, ranges)
    assert rows == LeaseRows(["presence"], [shown])
    assert ranges_held([namespace]) == 2
    assert ranges_recalled([namespace]) == 1


def test_one_namespace_is_shown_if_named_and_none_if_unknown() -> None:
    namespaces = {name: Namespace(name, Fixed(), TIMING, term=1, now=0.0) for name in "ba"}
    everything = lease_rows(namespaces, "", 1.0, ranges=False)
    assert [rows.name for rows in everything.namespaces] == ["a", "b"]
    assert [rows.unowned for rows in everything.namespaces] == [1.0, 1.0]
    assert [rows.ranges for rows in everything.namespaces] == [[], []]
    assert [rows.name for rows in lease_rows(namespaces, "b", 1.0, ranges=True).namespaces] == ["b"]
    assert lease_rows(namespaces, "c", 1.0, ranges=True) == LeaseRows(["a", "b"], [])


def test_what_does_not_fit_is_left_out_and_said() -> None:  # V1
    namespace = Namespace("presence", Fixed(), TIMING, term=1, now=0.0)
    for number in range(9):
        ask(namespace, f"{number}-{'x' * 1_500_000}", 1, 1.0)
    rows = lease_rows({"a": half_recalled(), "presence": namespace}, "", 2.0, ranges=True)
    assert (rows.names, len(rows.namespaces), rows.cut) == (["a", "presence"], 1, True)
    assert len(msgspec.msgpack.encode(rows)) < BYTES_MAX


def test_age_of_a_decision_is_known_as_far_as_the_log_goes() -> None:
    namespace = half_recalled()
    leader = LeasesDescribed("manager-1", 1, leading=True, leading_s=4.0)
    found = explained(leader, namespace, namespace.explain(HALF, 13.0), 13.0)
    assert (found.owner, found.start, found.last) == ("u1", HALF, KEYS_END - 1)
    assert (found.number, found.recalled) == (1, True)
    assert found.reason == "granted to u1: never owned"
    assert (found.decided_s, found.remembered_s) == (3.0, 4.0)
    namespace.log.clear()
    found = explained(leader, namespace, namespace.explain(HALF, 13.0), 13.0)
    assert (found.decided_s, found.remembered_s) == (None, 4.0)
