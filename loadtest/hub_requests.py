"""What the hub benchmark and its processes say to each other, as JSON lines."""

import msgspec

from loadtest.runner import Measured


class Flood(msgspec.Struct, frozen=True):
    """To the publisher: keep the hub busy."""

    hub: str
    hub_pid: int
    processes: int
    """How many subscriber processes report."""
    subscribers: int
    """How many subscriptions they have together."""
    window: int
    """How many beacons may be on their way to the slowest subscriber."""
    warm_up_s: float
    duration_s: float


class Flooded(msgspec.Struct, frozen=True):
    """Its answer. `measured.messages` are deliveries: beacons that reached every subscriber,
    times their number; its server is the hub."""

    measured: Measured
    sent: int


class Listen(msgspec.Struct, frozen=True):
    """To the listener: watch yourself for so long."""

    duration_s: float


class Listened(msgspec.Struct, frozen=True):
    """Its answer: the CPU time it used meanwhile, and whom it knows alive at the end."""

    cpu_s: float
    elapsed_s: float
    peers: int
