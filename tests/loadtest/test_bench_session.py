"""The session benchmark, tiny and real: all keys are there, of the right types. Never a timing."""

from typing import Any

import msgspec
import pytest

from loadtest import bench_session
from loadtest.bench_session import Sample
from loadtest.report import page

TINY = bench_session.Pace(
    rounds=1,
    warm_up_s=0.05,
    duration_s=0.1,
    last_round_begins_s=0.0,
    in_flight=(1, 60),
    half_peaks=1,
    half_peak_s=0.3,
    sessions=300,
)
PEERS = ("redis_single", "redis_replicated", "memcached", "tcp")


@pytest.mark.slow
def test_session_benchmark_has_every_key_and_every_contestant() -> None:
    lines: list[str] = []
    result: dict[str, Any] = bench_session.run(TINY, lines.append)
    assert lines, "progress is told"
    assert page(result), "a page for people can be made of it"
    assert msgspec.json.decode(msgspec.json.encode(result)) == result, "it is plain JSON"
    assert set(result) >= {"aims", "method", "samples", "versions", "machine"}
    names = bench_session.contestants()
    for peer in PEERS:
        expected = float if peer in names else type(None)
        assert type(result[f"ratio_{peer}"]) is expected, peer
    redis = float if "redis_single" in names else type(None)
    assert type(result["latency_ratio_redis_single"]) is redis
    assert type(result["p99_ms_half_peak"]) is float
    assert type(result["bytes_ratio"]) is float
    requests = result["samples"]["requests"]
    assert len(requests) == len(names) * 2 * len(TINY.in_flight)
    assert {each["contestant"] for each in requests if each["per_s"] > 0} == set(names)
    assert result["samples"]["memory"]["copies"] >= 2 * TINY.sessions


def sample(number: int, name: str, operation: str, per_s: float) -> Sample:
    return Sample(
        round=number,
        contestant=name,
        operation=operation,
        in_flight=60,
        per_s=per_s,
        good_per_s=per_s,
        failed=0,
        p50_ms=1.0,
        p99_ms=1.0,
        client_cpu_us=10.0,
        server_cpu_us=10.0,
    )


def test_ratio_is_of_both_operations_within_a_round() -> None:
    samples = [
        sample(0, "ours", "write", 800),
        sample(0, "ours", "read", 200),
        sample(0, "tcp", "write", 100),
        sample(0, "tcp", "read", 100),
        sample(1, "ours", "write", 100),
        sample(1, "ours", "read", 100),
        sample(1, "tcp", "write", 100),  # No read of it in that round: no ratio.
    ]
    found = bench_session.figures(samples)
    assert found["ratio_tcp"] == 4.0
    assert found["ratio_memcached"] is None, "a peer that was not measured"
    assert found["latency_ratio_redis_single"] is None


def test_peak_is_of_writes_and_reads_in_turn() -> None:
    samples = [sample(0, "ours", "write", 1000), sample(0, "ours", "read", 3000)]
    assert bench_session.peak(samples) == 1500
