"""Bad input at a live server: no crash, no growth, every frame counted, good clients unaffected.

Method: a real server process, good clients in another, and a million seeded mutations of good
frames; if SOFTSTATE_SOAK is set (`make soak`), as many millions as fit in ten minutes. Repeat a
failure with `python -m loadtest.fuzz --seed 2`, which says more.
"""

import os

import pytest

from loadtest.fuzz import run

SOAK = "SOFTSTATE_SOAK" in os.environ
FRAMES = 50_000_000 if SOAK else 1_000_000
SECONDS_MAX = 600.0 if SOAK else 120.0  # A million take about 6 s.
SEED = 2
GROWTH_BYTES_MAX = 8 * 1024 * 1024  # A leak of ten bytes a frame would be past it.


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 120)
def test_bad_frames_neither_end_nor_swell_a_server_nor_harm_its_good_clients() -> None:
    fuzzed, good = run(FRAMES, SEED, SECONDS_MAX)
    assert (good.failed, good.failures) == (0, [])
    assert good.answered > 0
    assert fuzzed.frames >= 1_000_000
    assert fuzzed.counters["frames_in"] >= fuzzed.frames, "every frame reached the server"
    assert fuzzed.counters["malformed"] > fuzzed.frames // 2, "bad ones were counted"
    assert (fuzzed.counters["failed"], fuzzed.counters["rescued"]) == (0, 0)
    assert fuzzed.rss_bytes_after - fuzzed.rss_bytes_before < GROWTH_BYTES_MAX
