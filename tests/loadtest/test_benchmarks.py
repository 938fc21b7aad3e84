"""Each benchmark once, tiny and real: all keys are there, of the right types. Never a timing."""

from typing import Any

import msgspec
import pytest

from loadtest import bench_bus, bench_hub, bench_pinpoint
from loadtest.report import page
from loadtest.runner import Measured, sample

pytestmark = pytest.mark.slow

TINY_BUS = bench_bus.Pace(rounds=1, warm_up_s=0.1, duration_s=0.3, last_round_begins_s=0.0)
"""Long enough for the slowest contestant to answer once with 256 in flight on a busy machine."""
TINY_HUB = bench_hub.Pace(
    floods=1, flood_s=0.1, warm_up_s=0.05, listens=1, listen_s=0.1, settle_s=0.0, crowd=20
)
TINY_PINPOINT = bench_pinpoint.Pace(
    listens=1, listen_s=1.5, settle_s=(0.0, 0.0, 2.0), sizes=(4, 8, 12), each=4
)
COMMON = {"aims", "method", "samples", "versions", "machine"}


def run(benchmark: Any, pace: Any) -> dict[str, Any]:  # noqa: ANN401
    lines: list[str] = []
    result: dict[str, Any] = benchmark.run(pace, lines.append)
    assert lines, "progress is told"
    assert page(result), "a page for people can be made of it"
    decoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(result))
    assert decoded == result, "it is plain JSON"
    assert set(result) >= COMMON
    assert set(result["machine"]) >= {"cores", "cpu", "load_average"}
    return result


def test_bus_benchmark_has_every_key_and_every_contestant() -> None:
    result = run(bench_bus, TINY_BUS)
    ratios = {name: type(result[name]) for name in bench_bus.AIMS}
    assert ratios == {
        "ratio_raw_64": float,
        "ratio_raw_8192": float,
        "latency_ratio_raw_64": float,
        "ratio_green_64": float,
        "ratio_zerorpc_64": float if "zerorpc" in bench_bus.contestants() else type(None),
    }
    assert set(result["cpu_us_per_message"]) == {"raw", "green", "zerorpc", "ours"}
    assert set(result["cpu_us_per_message"]["ours"]) == {"64x1", "64x256", "8192x1", "8192x256"}
    assert len(result["samples"]) == len(bench_bus.contestants()) * len(bench_bus.CASES)


def test_hub_benchmark_has_every_key_and_loses_nothing() -> None:
    result = run(bench_hub, TINY_HUB)
    figures = {name: type(result[name]) for name in bench_hub.AIMS}
    assert figures == {"beacons_per_s": int, "lost": int, "cpu_share_1000": float}
    assert (result["lost"], result["repeated"]) == (0, 0)
    assert result["samples"]["listen"][0]["peers"] == 20


def test_pinpoint_benchmark_has_every_key_and_condemns_nobody() -> None:
    result = run(bench_pinpoint, TINY_PINPOINT)
    shares = [type(result[f"cpu_share_{size}"]) for size in bench_pinpoint.SIZES]
    assert (shares, type(result["rss_bytes_1000"])) == ([float] * 3, int)
    assert (result["condemned"], result["samples"]["12"][0]["peers"]) == (0, 12)


def test_peer_that_is_not_installed_is_null_and_never_a_guess() -> None:
    case = bench_bus.CASES[1]
    measured = Measured(messages=1, elapsed_s=1.0, client_cpu_s=0.1, server_cpu_s=0.1)
    samples = [sample(0, name, case, measured) for name in ("raw", "green", "ours")]
    figures = bench_bus.figures(samples)
    assert (figures["ratio_raw_64"], figures["ratio_zerorpc_64"]) == (1.0, None)
    assert figures["cpu_us_per_message"]["zerorpc"]["64x256"] == {"client": None, "server": None}
