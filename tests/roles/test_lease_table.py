"""How `softstate leases` and `softstate why` look: rows in, text out, compared whole."""

from roles.lease_table import leases_json, leases_text, why_json, why_text
from roles.messages import (
    KeyExplained,
    LeaseRows,
    LeasesDescribed,
    NamespaceRows,
    OwnerRow,
    RangeRow,
)

HALF = 1 << 63
LAST = (1 << 64) - 1
LEADER = LeasesDescribed("manager-2", 4, leading=True, leading_s=200.0)
ROWS = LeaseRows(
    ["presence"],
    [
        NamespaceRows(
            "presence",
            4,
            17,
            [
                OwnerRow(
                    "u1",
                    "tcp://10.0.0.1:1",
                    "web-1",
                    2,
                    0.5,
                    6.54,
                    leaving=True,
                    refused="",
                    recalled=1,
                ),
                OwnerRow(
                    "u2",
                    "tcp://10.0.0.2:1",
                    "web-2",
                    0,
                    0.0,
                    9.0,
                    leaving=False,
                    refused="replaced",
                    recalled=0,
                ),
            ],
            0.5,
            [
                RangeRow(0, HALF // 2 - 1, 12, 9, 0, recalled=True),
                RangeRow(HALF // 2, HALF - 1, 13, 13, 0, recalled=False),
                RangeRow(HALF, LAST, 14, 14, -1, recalled=False),
            ],
        )
    ],
)
FOUND = KeyExplained(
    "manager-2",
    4,
    leading=True,
    known=True,
    start=0,
    last=HALF - 1,
    owner="u1",
    url="tcp://u1",
    number=12,
    born=9,
    reason="granted to u1: never owned",
    expires_in_s=6.5,
    decided_s=65.0,
    remembered_s=300.0,
)


def test_leases_show_leader_owners_map_and_what_is_pending() -> None:
    assert leases_text(LEADER, ROWS, whole=True) == (
        "manager-2 leads in term 4, for 3 min\n"
        "\n"
        "presence: 2 owners, 2 ranges, 1 of them recalled and not given up yet, 50.0 % unowned, "
        "version 4.17\n"
        "OWNER  URL               PROCESS  RANGES   SHARE  RUNS OUT\n"
        "u1     tcp://10.0.0.1:1  web-1         2  50.0 %     6.5 s  leaving, giving up 1\n"
        "u2     tcp://10.0.0.2:1  web-2         0   0.0 %     9.0 s  replaced\n"
        "\n"
        "FROM              TO                NUMBER  BORN  OWNER\n"
        "0000000000000000  3fffffffffffffff      12     9  u1      recalled\n"
        "4000000000000000  7fffffffffffffff      13    13  u1\n"
        "8000000000000000  ffffffffffffffff      14    14  nobody\n"
    )


def test_long_map_is_cut_unless_its_namespace_was_named() -> None:
    ranges = [RangeRow(i, i, 1, 0, -1, recalled=False) for i in range(42)]
    rows = LeaseRows(["x"], [NamespaceRows("x", 1, 1, [], 1.0, ranges)], cut=True)
    short, whole = (leases_text(LEADER, rows, whole=whole) for whole in (False, True))
    assert short.count("nobody") == 40
    assert "… and 2 more: `softstate leases x` shows all\n" in short
    assert short.endswith("\n\nthere is more: name one namespace\n")
    assert whole.count("nobody") == 42


def test_no_namespace_is_said() -> None:
    assert leases_text(LEADER, LeaseRows([], []), whole=False) == (
        "manager-2 leads in term 4, for 3 min\nno namespace: one begins with its first owner\n"
    )


def test_leases_for_programs_name_owners_and_half_open_ranges() -> None:
    told = leases_json(LEADER, ROWS)
    assert told == {
        "leader": "manager-2",
        "term": 4,
        "leading_s": 200.0,
        "cut": False,
        "namespaces": [
            {
                "name": "presence",
                "version": [4, 17],
                "unowned": 0.5,
                "recalls": 1,
                "owners": [
                    {
                        "id": "u1",
                        "url": "tcp://10.0.0.1:1",
                        "process": "web-1",
                        "ranges": 2,
                        "share": 0.5,
                        "expires_in_s": 6.54,
                        "leaving": True,
                        "refused": None,
                        "recalls": 1,
                    },
                    {
                        "id": "u2",
                        "url": "tcp://10.0.0.2:1",
                        "process": "web-2",
                        "ranges": 0,
                        "share": 0.0,
                        "expires_in_s": 9.0,
                        "leaving": False,
                        "refused": "replaced",
                        "recalls": 0,
                    },
                ],
                "map": [
                    row(0, HALF // 2, 12, 9, "u1", recalled=True),
                    row(HALF // 2, HALF, 13, 13, "u1", recalled=False),
                    row(HALF, LAST + 1, 14, 14, None, recalled=False),
                ],
            }
        ],
    }


def row(
    start: int, end: int, number: int, born: int, owner: str | None, *, recalled: bool
) -> dict[str, object]:
    return {
        "start": start,
        "end": end,
        "number": number,
        "born": born,
        "owner": owner,
        "recalled": recalled,
    }


def test_why_is_told_in_words() -> None:
    assert why_text("alice", "presence", 255, FOUND) == (
        "alice lies at 00000000000000ff of presence\n"
        "owner     u1, at tcp://u1\n"
        "range     0000000000000000 to 7fffffffffffffff\n"
        "number    12; its state began with 9\n"
        "since     65 s ago\n"
        "decision  granted to u1: never owned\n"
        "lease     runs out in 6.5 s unless it is renewed\n"
        "told by   manager-2, which leads in term 4\n"
    )


def test_why_nobody_owns_a_key_and_since_before_memory() -> None:
    found = KeyExplained(
        "manager-2",
        4,
        leading=True,
        known=True,
        last=LAST,
        number=3,
        born=3,
        reason="u1:\x1b[2J ran out",
        expires_in_s=2.0,
        remembered_s=12.0,
    )
    lines = why_text("a\nb", "presence", 0, found).splitlines()
    assert lines[0] == "a·b lies at 0000000000000000 of presence"
    assert lines[1] == "owner     nobody"
    assert lines[4] == "since     more than 12 s ago, which is as far as the leader remembers"
    assert lines[5] == "decision  u1:·[2J ran out"  # A screen must not obey it.
    assert lines[6] == "lease     none; may be granted in 2.0 s"
    assert why_json("a", "presence", 0, found)["since_s_min"] == 12.0


def test_why_for_programs() -> None:
    assert why_json("alice", "presence", 255, FOUND) == {
        "key": "alice",
        "position": 255,
        "namespace": "presence",
        "owner": "u1",
        "url": "tcp://u1",
        "start": 0,
        "end": HALF,
        "number": 12,
        "born": 9,
        "decision": "granted to u1: never owned",
        "since_s": 65.0,
        "since_s_min": 65.0,
        "expires_in_s": 6.5,
        "recalled": False,
        "leader": "manager-2",
        "term": 4,
    }
