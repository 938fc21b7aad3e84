"""What Pinpoint sees in one second: the only input of its judgement, and what it records.

A *tick* holds everything, and nothing in it is an instant of another process. So whoever has the
ticks has the verdicts: `pinpoint replay` feeds recorded ones to the same judge.
"""

import msgspec

from bus.messages import PeerSeen, State


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One component that is not linked, as its newest beacon has it."""

    id: str
    role: str
    node: str
    incarnation: int
    state: State
    """As seen from here: suspect and dead, too."""
    age_s: float
    """How long this life has lasted, by now."""
    beacon_age_s: float
    """How long ago that beacon came. Above a period and a half, one is missing."""
    statistics: dict[str, float]


class StubSaw(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one asker told of those it asks, since the last tick; several tellings are several."""

    asker: str
    role: str
    period_s: float
    seen: list[PeerSeen]


class Demand(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How much was asked of all bricks together, and refused by stubs, a second; as stubs say."""

    asked_per_s: float
    refused_per_s: float


class Tick(msgspec.Struct, frozen=True, array_like=True, gc=False):
    at: float
    """Seconds, by Pinpoint's own clock: of use for differences only."""
    samples: list[Sample]
    saw: list[StubSaw]
    demand: Demand
    blind: bool
    """More than half of the peers are missing: it is the hubs, or us; nothing is to be judged."""
