"""How likely a session outlives the crashes of bricks until its next write. Decides only.

The paper's §3.7: each brick crashes with rate mu (its MTTF is 1/mu), a session is written with
rate lambda, and every write makes WQ copies anew. Let rho = lambda/mu, the MTTF in intervals
between writes. With k copies left, what comes next is a write rather than one of k crashes with
probability rho/(rho + k); so all WQ are lost before the next write with probability

    loss = 1/(rho + 1) * 2/(rho + 2) * ... * WQ/(rho + WQ)

for which the paper's equations 1 and 2 are the cases WQ = 3 and 2. Crashes are independent of
each other, and nothing makes new copies but a write: refresh on read does better than this.

What always holds:
  N1  `loss` falls when bricks live longer, and when there is a copy more.
  N2  `needed_ratio` is where `loss` is what was asked for, to nine digits.
"""

import math

WQ_MAX = 8
NINES_MAX = 15  # More cannot be told from 1 in a float.

PAPER = {
    2: {1: 3.0, 2: 12.7, 3: 43.3, 4: 140.0, 5: 446.8},
    3: {1: 2.0, 2: 6.5, 3: 16.2, 4: 37.2, 5: 82.4},
}
"""Its Table 2: by WQ and the number of nines, the ratio it takes. Rounded there."""


def loss(ratio: float, wq: int) -> float:
    """The probability that all `wq` copies are lost before the next write; `ratio` is rho."""
    return math.prod(copy / (ratio + copy) for copy in range(1, wq + 1))  # N1


def nines(ratio: float, wq: int) -> float:
    """The same as nines of availability: 3.0 is a loss in a thousand, 3.3 one in two thousand."""
    return sum(math.log10((ratio + copy) / copy) for copy in range(1, wq + 1))


def needed_ratio(wanted: float, wq: int) -> float:
    """How many intervals between writes a brick must live on average for `wanted` nines."""
    low, high = 0.0, 1.0
    while nines(high, wq) < wanted:
        low, high = high, high * 2
    while high - low > 1e-10 * high:  # N2
        middle = (low + high) / 2
        low, high = (middle, high) if nines(middle, wq) < wanted else (low, middle)
    return high
