"""The lease benchmark, tiny and real: all keys are there, of the right types. Never a timing."""

from typing import Any

import msgspec
import pytest

from loadtest import bench_lease, etcd_peer, socket_bytes
from loadtest.lease_changes import gaps
from loadtest.lease_requests import Timed
from loadtest.processes import ChildError
from loadtest.report import page
from roles.key_range import KeyRange

TINY = bench_lease.Pace(
    speed_rounds=2,
    lookups=8,
    owners=3,
    changes=1,
    settle_s=0.2,
    failovers=1,
    nodes=(10,),
    steady_s=0.5,
    quiet_s=0.2,
    repeats_end_s=0.0,
)
FIGURES = {
    "find_ns": float,
    "check_ns": float,
    "ratio_bisect_find": float,
    "ratio_bisect_check": float,
    "propagation_p99_ms": float,
    "move_gap_p99_ms": float,
    "failover_s_sqlite": float,
    "failover_s_etcd": float if etcd_peer.PROGRAM else type(None),
    "lost_leases": int,
    "uniform_max_mean": type(None),
    "zipf_max_mean": type(None),
    "zipf_moved_share": type(None),
}


@pytest.mark.slow
def test_lease_benchmark_has_every_key_and_loses_no_lease() -> None:
    lines: list[str] = []
    result: dict[str, Any] = bench_lease.run(TINY, lines.append)
    assert lines, "progress is told"
    assert page(result), "a page for people can be made of it"
    assert msgspec.json.decode(msgspec.json.encode(result)) == result, "it is plain JSON"
    assert {name: type(result[name]) for name in bench_lease.AIMS} == FIGURES
    assert result["lost_leases"] == 0
    assert set(result) >= {"aims", "method", "samples", "versions", "machine"}
    for name in ("manager_cpu_share", "manager_rss_bytes", "manager_bytes_per_s"):
        assert set(result[name]) == {"10"}
    assert all(result["manager_rss_bytes"].values()), lines
    assert len(result["samples"]["propagation_ms"]) % TINY.lookups == 0


def test_slower_of_both_numbers_of_owners_is_the_figure() -> None:
    timed = [
        Timed(0, 100, find_ns=300, find_bisect_ns=100, check_ns=200, check_bisect_ns=100),
        Timed(0, 1000, find_ns=400, find_bisect_ns=200, check_ns=150, check_bisect_ns=100),
    ]
    assert bench_lease.speed_figures(timed) == {
        "find_ns": 400,
        "check_ns": 200,
        "ratio_bisect_find": 3,
        "ratio_bisect_check": 2,
    }


def test_delay_of_a_lookup_that_missed_a_version_counts_to_the_next_it_had() -> None:
    published = [((1, 5), 10.0), ((1, 6), 10.5)]
    both: list[tuple[tuple[int, int], float]] = [((1, 5), 10.25), ((1, 6), 11.0)]
    assert bench_lease.delays(published, [both, [((2, 1), 12.0)]]) == [0.25, 2.0, 0.5, 1.5]


def test_gap_counts_from_when_those_very_keys_were_last_given_up() -> None:
    given = [(1.0, KeyRange(0, 10)), (2.0, KeyRange(0, 5)), (1.5, KeyRange(10, 20))]
    taken = [(2.25, KeyRange(0, 10)), (3.0, KeyRange(10, 20)), (0.5, KeyRange(0, 10))]
    assert gaps(given, taken) == [0.25, 1.5]


def test_size_that_does_not_come_to_rest_has_no_figures() -> None:
    def restless(nodes: int) -> bench_lease.Use:
        raise ChildError(f"{nodes} are restless")

    lines: list[str] = []
    nothing = dict.fromkeys(bench_lease.USE)
    assert bench_lease.steady_state(10, restless, lines.append) == nothing
    assert lines[-1] == "no figures for 10 nodes: 10 are restless"


def test_bytes_are_those_of_the_process_asked_about() -> None:
    listing = (
        'ESTAB 0 0 a b users:(("python",pid=12,fd=3)) cubic bytes_sent:100 bytes_acked:90 '
        "bytes_received:10 segs_out:3\n"
        'ESTAB 0 0 b a users:(("python",pid=123,fd=3)) cubic bytes_sent:1000\n'
    )
    assert socket_bytes.counted(listing, 12) == 110
