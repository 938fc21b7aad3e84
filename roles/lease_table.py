"""What `softstate leases` and `softstate why` show. Decides only how it looks."""

from collections.abc import Sequence

from bus.events import duration, printable
from roles.messages import (
    KeyExplained,
    LeaseRows,
    LeasesDescribed,
    NamespaceRows,
    OwnerRow,
    RangeRow,
)

RANGES_SHOWN = 40
"""Of each map, unless its namespace was named."""

_WORD_LENGTH_MAX = 60
_REASON_LENGTH_MAX = 400
_OWNERS = ("OWNER", "URL", "PROCESS", "RANGES", "SHARE", "RUNS OUT", "")
_MAP = ("FROM", "TO", "NUMBER", "BORN", "OWNER", "")
_RIGHT = {"RANGES", "SHARE", "RUNS OUT", "NUMBER", "BORN"}


def leases_text(standing: LeasesDescribed, rows: LeaseRows, *, whole: bool) -> str:
    """Who leads; then each namespace with its owners and its map, all of it if `whole`."""
    lines = [_leader(standing)]
    for namespace in rows.namespaces:
        lines += ["", *_namespace(namespace, whole=whole)]
    if not rows.names:
        lines.append("no namespace: one begins with its first owner")
    if rows.cut:
        lines += ["", "there is more: name one namespace"]
    return "\n".join(lines) + "\n"


def leases_json(standing: LeasesDescribed, rows: LeaseRows) -> dict[str, object]:
    return {
        "leader": standing.leader,
        "term": standing.term,
        "leading_s": standing.leading_s,
        "namespaces": [_namespace_json(each) for each in rows.namespaces],
        "cut": rows.cut,
    }


def why_text(key: str, namespace: str, position: int, found: KeyExplained) -> str:
    owner, url = (printable(word, _WORD_LENGTH_MAX) for word in (found.owner, found.url))
    lines = [
        f"{printable(key, _WORD_LENGTH_MAX)} lies at {position:016x} of "
        f"{printable(namespace, _WORD_LENGTH_MAX)}",
        f"owner     {'nobody' if not owner else owner if owner == url else f'{owner}, at {url}'}",
        f"range     {found.start:016x} to {found.last:016x}",
        f"number    {found.number}; its state began with {found.born}",
        f"since     {_since(found)}",
        f"decision  {printable(found.reason, _REASON_LENGTH_MAX)}",
        f"lease     {_lease(found)}",
        f"told by   {found.leader}, which leads in term {found.term}",
    ]
    return "\n".join(lines) + "\n"


def why_json(key: str, namespace: str, position: int, found: KeyExplained) -> dict[str, object]:
    return {
        "key": key,
        "position": position,
        "namespace": namespace,
        "owner": found.owner or None,
        "url": found.url or None,
        "start": found.start,
        "end": found.last + 1,
        "number": found.number,
        "born": found.born,
        "decision": found.reason,
        "since_s": found.decided_s,
        "since_s_min": found.remembered_s if found.decided_s is None else found.decided_s,
        "expires_in_s": found.expires_in_s,
        "recalled": found.recalled,
        "leader": found.leader,
        "term": found.term,
    }


def _leader(standing: LeasesDescribed) -> str:
    return f"{standing.leader} leads in term {standing.term}, for {duration(standing.leading_s)}"


def _namespace(namespace: NamespaceRows, *, whole: bool) -> list[str]:
    ranges = sum(owner.ranges for owner in namespace.owners)
    recalled = sum(owner.recalled for owner in namespace.owners)
    said = [f"{len(namespace.owners)} owners", f"{ranges} ranges"]
    if recalled:
        said.append(f"{recalled} of them recalled and not given up yet")
    said.append(f"{_share(namespace.unowned)} unowned")
    version = f"version {namespace.version_term}.{namespace.version_lsn}"
    lines = [f"{printable(namespace.name, _WORD_LENGTH_MAX)}: {', '.join(said)}, {version}"]
    lines += _table(_OWNERS, [_owner(owner) for owner in namespace.owners])
    shown = namespace.ranges if whole else namespace.ranges[:RANGES_SHOWN]
    if shown:
        lines += ["", *_table(_MAP, [_range(each, namespace.owners) for each in shown])]
    left = len(namespace.ranges) - len(shown)
    if left:
        lines.append(f"… and {left} more: `softstate leases {namespace.name}` shows all")
    return lines


def _owner(owner: OwnerRow) -> tuple[str, ...]:
    notes = [
        "leaving" if owner.leaving else "",
        printable(owner.refused, _REASON_LENGTH_MAX),
        f"giving up {owner.recalled}" if owner.recalled else "",
    ]
    return (
        printable(owner.id, _WORD_LENGTH_MAX),
        printable(owner.url, _WORD_LENGTH_MAX),
        printable(owner.process, _WORD_LENGTH_MAX),
        str(owner.ranges),
        _share(owner.share),
        duration(owner.expires_in_s),
        ", ".join(note for note in notes if note),
    )


def _range(each: RangeRow, owners: Sequence[OwnerRow]) -> tuple[str, ...]:
    held = 0 <= each.owner < len(owners)
    return (
        f"{each.start:016x}",
        f"{each.last:016x}",
        str(each.number),
        str(each.born),
        printable(owners[each.owner].id, _WORD_LENGTH_MAX) if held else "nobody",
        "recalled" if each.recalled else "",
    )


def _table(headings: Sequence[str], rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    return [
        "  ".join(
            f"{cell:>{width}}" if heading in _RIGHT else f"{cell:<{width}}"
            for cell, width, heading in zip(row, widths, headings, strict=True)
        ).rstrip()
        for row in (tuple(headings), *rows)
    ]


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _since(found: KeyExplained) -> str:
    if found.decided_s is not None:
        return f"{duration(found.decided_s)} ago"
    return f"more than {duration(found.remembered_s)} ago, which is as far as the leader remembers"


def _lease(found: KeyExplained) -> str:
    if not found.owner:
        if found.expires_in_s > 0:
            return f"none; may be granted in {duration(found.expires_in_s)}"
        return "none; may be granted to the next owner that asks"
    said = f"runs out in {duration(found.expires_in_s)} unless it is renewed"
    return f"{said}; recalled, and not given up yet" if found.recalled else said


def _namespace_json(namespace: NamespaceRows) -> dict[str, object]:
    owners = namespace.owners
    return {
        "name": namespace.name,
        "version": [namespace.version_term, namespace.version_lsn],
        "unowned": namespace.unowned,
        "recalls": sum(owner.recalled for owner in owners),
        "owners": [
            {
                "id": owner.id,
                "url": owner.url,
                "process": owner.process,
                "ranges": owner.ranges,
                "share": owner.share,
                "expires_in_s": owner.expires_in_s,
                "leaving": owner.leaving,
                "refused": owner.refused or None,
                "recalls": owner.recalled,
            }
            for owner in owners
        ],
        "map": [
            {
                "start": each.start,
                "end": each.last + 1,
                "number": each.number,
                "born": each.born,
                "owner": owners[each.owner].id if 0 <= each.owner < len(owners) else None,
                "recalled": each.recalled,
            }
            for each in namespace.ranges
        ],
    }
