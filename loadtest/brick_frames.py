"""What bricks and stubs that do not exist say of themselves and of each other, second by second,
byte for byte as real ones. Decides only.

Each number is drawn anew each time around what it is for all, so that whoever compares peers has
all of the work, and nothing to find.
"""

from collections.abc import Sequence
from random import Random

from bus.messages import Beacon, PeerSeen, PeersSeen
from loadtest.beacon_frames import INCARNATION, TOPIC, news_frame

ROLE = "brick"
USUAL = {
    # Activity.
    "service_s": 0.0001,
    "queue_s": 0.0001,
    "busy_ratio": 0.05,
    "cpu": 0.1,
    "loop_lag_s": 0.001,
    "writes_per_s": 300.0,
    "reads_per_s": 200.0,
    "answered_per_s": 500.0,
    "records_received_per_s": 520.0,
    "records_sent_per_s": 501.0,
    "minor_faults_per_s": 20.0,
    "bytes_in_per_s": 300_000.0,
    # State.
    "rss_bytes": 150e6,
    "memory_bytes": 60e6,
    "items": 60_000.0,
    "allocated_blocks": 900_000.0,
    # Nothing wrong.
    "inbox_length": 0.0,
    "expired_per_s": 0.0,
    "refused_per_s": 0.0,
    "failed_per_s": 0.0,
}
NOISE = 0.05


class FalseBrick:
    def __init__(self, number: int, draw: Random) -> None:
        self.id = f"{ROLE}-{number + 1}"
        self._number = number
        self._draw = draw

    def frame(self, sequence: int) -> bytes:
        """Its beacon of that second."""
        gauss = self._draw.gauss
        beacon = Beacon(
            role=ROLE,
            node=f"n{self._number % 10 + 1}",
            pid=100_000 + self._number,
            endpoint="",  # It answers nothing, so nobody pings it.
            state="live",
            age_s=3600.0 + sequence,
            restarts=0,
            linked=False,
            period_s=1.0,
            metrics_url="",
            statistics={name: value * gauss(1.0, NOISE) for name, value in USUAL.items()},
        )
        return news_frame(TOPIC, self.id, beacon, sequence)


class FalseStub:
    """It asks all of those bricks, and tells what it saw of them."""

    def __init__(self, stub_id: str, bricks: Sequence[FalseBrick], draw: Random) -> None:
        self._id = stub_id
        self._bricks = bricks
        self._draw = draw

    def frame(self, topic: str, sequence: int) -> bytes:
        seen = [self._seen(brick) for brick in self._bricks]
        return news_frame(topic, self._id, PeersSeen(ROLE, 1.0, seen), sequence)

    def _seen(self, brick: FalseBrick) -> PeerSeen:
        gauss = self._draw.gauss
        asked = int(gauss(100.0, 10.0))
        wait_s, room = 0.001 * gauss(1.0, NOISE), 30.0 * gauss(1.0, NOISE)
        return PeerSeen(brick.id, INCARNATION, asked, asked, 0, 0, wait_s, room)
