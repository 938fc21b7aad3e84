"""Some hundred bricks' beacons, and what stubs saw of them, from one process.

It stands for all of them: each has its id and its own moment in every second, drawn by seed, and
publishes to all hubs as real processes do.
"""

import select
import sys
from functools import partial
from random import Random

import zmq

from bus.clock import now
from bus.config import publish_address
from loadtest.brick_frames import FalseBrick, FalseStub
from loadtest.child import read_line, tell
from pinpoint.process import SEEN_TOPIC

PERIOD_S = 1.0
STUBS = 3
"""That ask each brick, and tell."""


def main(hubs: str, first: str, count: str) -> None:
    """Be the bricks `first` to `first + count`, until the benchmark hangs up."""
    context = zmq.Context()
    news = context.socket(zmq.PUB)
    news.linger = 0
    for hub in hubs.split(","):
        news.connect(publish_address(hub))
    draw = Random(first)
    bricks = [FalseBrick(int(first) + number, draw) for number in range(int(count))]
    stubs = [FalseStub(f"stub-{first}-{number}", bricks, draw) for number in range(STUBS)]
    speakers = [brick.frame for brick in bricks]
    speakers += [partial(stub.frame, SEEN_TOPIC) for stub in stubs]
    moments = sorted(draw.uniform(0, PERIOD_S) for _ in speakers)
    draw.shuffle(speakers)
    began_at, period = now(), 0
    tell({})
    while True:
        for speak, moment in zip(speakers, moments, strict=True):
            wait_s = began_at + period * PERIOD_S + moment - now()
            if wait_s > 0 and select.select([sys.stdin], [], [], wait_s)[0] and not read_line():
                return
            news.send(speak(period))
        period += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
