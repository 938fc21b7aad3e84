"""What the figures of a benchmark are: medians over rounds, ratios within a round. Decides only.

A *case* is one way of asking (how large, how many at once), a *contestant* is who is asked,
and a *round* measures every contestant once in every case, one right after the other. On a
shared machine a whole round is slow or fast together, so a ratio is taken inside each round
first and the median over the rounds is taken of those ratios: the noise of a round divides
out. (The ratio of two medians would compare one contestant's lucky round with another's
unlucky one.)

What always holds:
  M1  A ratio compares only measurements of one round and one case.
  M2  A contestant that was not measured has no figure: None, never a guess.
  M3  No contestant is always first: the order turns by one place each round.
"""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Literal

import msgspec


class Case(msgspec.Struct, frozen=True):
    """How to ask: `in_flight` requests at once, each with a payload of `payload_bytes`."""

    payload_bytes: int
    in_flight: int

    @property
    def name(self) -> str:
        return f"{self.payload_bytes}x{self.in_flight}"


class Measured(msgspec.Struct, frozen=True):
    """What one contestant did in one case of one round, as its client process saw it."""

    messages: int
    elapsed_s: float
    client_cpu_s: float
    server_cpu_s: float
    p50_us: float | None = None
    """Half of the requests were answered within this; told only for one request in flight."""


class Sample(msgspec.Struct, frozen=True):
    """One measurement, in the figures people compare."""

    round: int
    contestant: str
    case: str
    per_s: float
    p50_us: float | None
    client_cpu_us: float
    """CPU time of the client process for each message, of all its threads; so for the server."""
    server_cpu_us: float


Field = Literal["per_s", "p50_us", "client_cpu_us", "server_cpu_us"]
FIELDS: tuple[Field, ...] = ("per_s", "p50_us", "client_cpu_us", "server_cpu_us")

METHOD = (
    "contestants alternate within each round; a ratio is the median over the rounds of the "
    "ratio inside one round, since noise hits a whole round alike"
)


def sample(number: int, contestant: str, case: Case, measured: Measured) -> Sample:
    """`measured`, as figures for each second and each message."""
    messages = max(measured.messages, 1)  # Nothing answered: an honest 0 for each second.
    return Sample(
        round=number,
        contestant=contestant,
        case=case.name,
        per_s=measured.messages / measured.elapsed_s,
        p50_us=measured.p50_us,
        client_cpu_us=1e6 * measured.client_cpu_s / messages,
        server_cpu_us=1e6 * measured.server_cpu_s / messages,
    )


def turned(names: Sequence[str], number: int) -> list[str]:
    """The order of the contestants in round `number`."""
    place = number % len(names) if names else 0
    return [*names[place:], *names[:place]]  # M3


def figures(
    samples: Iterable[Sample], contestant: str, case: str, field: Field
) -> dict[int, float]:
    """One field of one contestant in one case, by round."""
    found: dict[int, float] = {}
    for each in samples:
        value: float | None = getattr(each, field)
        if each.contestant == contestant and each.case == case and value is not None:
            found[each.round] = value
    return found


def middle(samples: Iterable[Sample], contestant: str, case: str, field: Field) -> float | None:
    """The median over the rounds, or None if this was never measured."""
    found = figures(samples, contestant, case, field)
    return round(median(found.values()), 3) if found else None  # M2


def ratio(
    samples: Sequence[Sample], case: str, field: Field, *, ours: str, peer: str
) -> float | None:
    """Ours divided by the peer's: the median over the rounds of the ratio inside each (M1)."""
    above = figures(samples, ours, case, field)
    below = figures(samples, peer, case, field)
    ratios = [above[number] / below[number] for number in above if below.get(number)]
    return round(median(ratios), 4) if ratios else None  # M2


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all values do not exceed."""
    assert values, "a percentile of nothing"
    ranked = sorted(values)
    place = -int(-share * len(ranked) // 1)  # Rounded up, so that half of 3 values means 2.
    return ranked[min(max(place, 1), len(ranked)) - 1]
