"""A thousand processes' beacons, from a few processes.

A crowd process stands for several hundred: each has its id and its own moment in every
second, drawn by seed, and publishes to all hubs as real processes do.
"""

import select
import sys
from random import Random

import zmq

from bus.clock import now
from bus.config import publish_address
from loadtest.beacon_frames import Impostor
from loadtest.child import read_line, tell

PERIOD_S = 1.0


def crowd(hubs: list[str], first: int, count: int) -> None:
    """Be the processes `first` to `first + count`, until the benchmark hangs up."""
    context = zmq.Context()
    news = context.socket(zmq.PUB)
    news.linger = 0
    for hub in hubs:
        news.connect(publish_address(hub))
    draw = Random(first)
    impostors = [Impostor(number) for number in range(first, first + count)]
    moments = sorted(draw.uniform(0, PERIOD_S) for _ in impostors)
    began_at, period = now(), 0
    tell({})
    while True:
        for impostor, moment in zip(impostors, moments, strict=True):
            wait_s = began_at + period * PERIOD_S + moment - now()
            if wait_s > 0 and select.select([sys.stdin], [], [], wait_s)[0] and not read_line():
                return
            news.send(impostor.frame(period))
        period += 1


def main(hubs: str, first: str, count: str) -> None:
    crowd(hubs.split(","), int(first), int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
