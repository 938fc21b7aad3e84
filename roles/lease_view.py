"""The leases as the leading manager shows them to people: rows, and why a key is where it is.

What is shown may be ahead of the store by one commit; nobody acts by it. Decides only.

What always holds:
  V1  Rows take at most `BYTES_MAX`: what is beyond is left out, and the answer says so.
"""

import math
from collections.abc import Iterable, Mapping

import msgspec

from roles.key_range import KEYS_END
from roles.lease_namespace import LOG_S, Explained, Life, Namespace
from roles.messages import (
    KeyExplained,
    LeaseRows,
    LeasesDescribed,
    NamespaceRows,
    OwnerRow,
    RangeRow,
)

BYTES_MAX = 12 << 20  # A body may have 16 MiB.


def lease_rows(
    namespaces: Mapping[str, Namespace], only: str, now: float, *, ranges: bool
) -> LeaseRows:
    """All namespaces, or one; `ranges`: with their maps."""
    names = sorted(namespaces)
    shown: list[NamespaceRows] = []
    left = BYTES_MAX
    for name in [only] if only in namespaces else [] if only else names:
        rows = _namespace(namespaces[name], now, ranges=ranges)
        left -= len(msgspec.msgpack.encode(rows))
        if left < 0:  # V1
            return LeaseRows(names, shown, cut=True)
        shown.append(rows)
    return LeaseRows(names, shown)


def explained(
    standing: LeasesDescribed, namespace: Namespace, found: Explained, now: float
) -> KeyExplained:
    return KeyExplained(
        standing.leader,
        standing.term,
        standing.leading,
        known=True,
        start=found.start,
        last=found.end - 1,
        owner=found.owner,
        url=found.url,
        number=found.number,
        born=found.born,
        reason=found.reason,
        expires_in_s=found.expires_in_s,
        recalled=found.recalled,
        decided_s=_decided_s(namespace, found.number, now),
        remembered_s=min(standing.leading_s, LOG_S),
    )


def ranges_held(namespaces: Iterable[Namespace]) -> int:
    return sum(len(life.spans) for each in namespaces for life in each.lives.values())


def ranges_recalled(namespaces: Iterable[Namespace]) -> int:
    """Those that an owner is being asked to give up, and has not yet."""
    return sum(_recalled(life) for each in namespaces for life in each.lives.values())


def _namespace(namespace: Namespace, now: float, *, ranges: bool) -> NamespaceRows:
    lives = sorted(namespace.lives.values(), key=lambda life: (life.owner, life.incarnation))
    unowned = sum(gap.end - gap.start for gap in namespace.gaps) / KEYS_END
    return NamespaceRows(
        namespace.name,
        *namespace.version,
        [_owner(life, now) for life in lives],
        unowned,
        _ranges(namespace, lives) if ranges else [],
    )


def _owner(life: Life, now: float) -> OwnerRow:
    return OwnerRow(
        life.owner,
        life.url,
        life.process,
        len(life.spans),
        sum(span.end - span.start for span in life.spans) / KEYS_END,
        max(0.0, life.expires_at - now),
        life.leaving,
        life.refused,
        _recalled(life),
    )


def _recalled(life: Life) -> int:
    return sum(span.recalled > 0 for span in life.spans)


def _ranges(namespace: Namespace, lives: list[Life]) -> list[RangeRow]:
    rows = [
        RangeRow(s.start, s.end - 1, s.number, s.born, index, s.recalled > 0)
        for index, life in enumerate(lives)
        for s in life.spans
    ]
    rows += [
        RangeRow(gap.start, gap.end - 1, gap.number, gap.born, -1, recalled=False)
        for gap in namespace.gaps
    ]
    return sorted(rows, key=lambda row: row.start)


def _decided_s(namespace: Namespace, number: int, now: float) -> float | None:
    """How long ago that number was given, if the log of changes still has it."""
    for logged in namespace.log:
        if not math.isnan(logged.at) and any(s.number == number for s in logged.part.spans):
            return max(0.0, now - logged.at)
    return None
