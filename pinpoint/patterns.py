"""Whose history is unlike its peers': Tarzan, for one statistic of one role. Decides only.

The newest slopes of a history become letters: D falling, F flat (within the *dead zone*), U
rising. A word is up to `LENGTH` letters in a row. With f(w) how often the word w ends in the
newest `SCAN` positions of this one, and r(w) in the newest `HISTORY` of each of its peers:

    E(w)   SCAN / R * r(w), with R the peers' positions; of a word that no peer has, by Markov:
           SCAN / R * product of r(w[i:i+2]) / product of r(w[i]) of the inner letters (4 letters);
           if a part of it is unknown, too: SCAN * product of r(w[i]) / R
    Z(w)   (f(w) - E(w)) / sqrt(max(E(w) * (1 - E(w) / SCAN), VARIANCE_MIN))
    T      the greatest |Z(w)| of the words it has

It is an anomaly if T is above `SCORE_MIN` and above median + 3.5 * 1.4826 * b_n * MAD of all T.
Words overlap, so Z is not normal, and only the peers' own T say how much is usual.

The paper has two letters; in a third, what rests is told from what trembles. Tarzan's own, with
equally many of each, would cut the steady rise of a saw-tooth in three parts made of noise.
Letters never change afterwards: all had the same dead zone at the time. Only words that are
there are looked at: what is missing has made room for another.

This is slow on purpose: it takes `SCORE_MIN` or so surprising letters. A fault of 3 s ago shows
by its amount, in rates and growth (`pinpoint.deviation`); what shows here has usual amounts in an
unusual order: a size that no longer falls when it should.

What always holds:
  T1  A word lies within one life of one component: none crosses from one to another.
  T2  `totals` is the sum of all histories that are kept; each takes a bounded number of bytes.
  T3  At most `SCORED_MAX` histories are scored a tick, in turn. The others keep their score.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise, product
from math import prod, sqrt
from typing import NamedTuple

from pinpoint.deviation import GROUP_MIN, Reference, deviation_of, median_of

LETTERS = 3
LENGTH = 4
CODES = LETTERS**LENGTH
"""Of words of full length, each a number; a shorter word is the end of one."""

HISTORY = 120
SCAN = 40
SCORE_MIN = 6.0
VARIANCE_MIN = 0.5
PEERS_POSITIONS_MIN = 2 * SCAN
SCORED_MAX = 64
_SCALE_MIN = 0.5
ZONE_TICKS = 60
ZONE_SHARE = 0.25
"""The dead zone: of the usual slope, as it was up to `ZONE_TICKS` ago."""

_OFFSETS = [(LETTERS**length - LETTERS) // (LETTERS - 1) for length in range(1, LENGTH + 2)]
WORDS = _OFFSETS[LENGTH]
_PAIRS = _OFFSETS[1]
_ENDS = [
    tuple(_OFFSETS[length - 1] + code % LETTERS**length for length in range(1, LENGTH + 1))
    for code in range(CODES)
]
"""The words that end where a word of full length ends, shortest first."""


_LETTERS_OF = [
    letters for length in range(1, LENGTH + 1) for letters in product(range(LETTERS), repeat=length)
]


class Surprise(NamedTuple):
    score: float
    seen: int
    expected: float
    scale: float


NONE = Surprise(0.0, 0, 0.0, 1.0)


class History:
    """The newest words of full length of one life, in a ring."""

    __slots__ = ("_letters", "_word", "counts", "life", "positions", "ring", "slope", "surprise")

    def __init__(self, life: object) -> None:
        self.life = life
        self.ring = bytearray(HISTORY)
        self.counts = bytearray(CODES)
        """How often each word of full length is in the ring."""
        self.positions = 0
        """Words that ever came; the ring has the last of them."""
        self.slope = 0.0
        self.surprise = NONE
        self._letters = 0
        self._word = 0

    @property
    def length(self) -> int:
        return min(self.positions, HISTORY)

    def push(self, letter: int, totals: list[int]) -> None:
        self._word = (self._word * LETTERS + letter) % CODES
        self._letters += 1
        if self._letters < LENGTH:
            return  # T1
        at = self.positions % HISTORY
        if self.positions >= HISTORY:
            oldest = self.ring[at]
            self.counts[oldest] -= 1
            totals[oldest] -= 1
        self.ring[at] = self._word
        self.counts[self._word] += 1
        totals[self._word] += 1  # T2
        self.positions += 1

    def newest(self) -> bytes:
        """The last `SCAN` words, in no order."""
        end = self.positions % HISTORY
        return bytes(
            self.ring[max(end - SCAN, 0) : end] + self.ring[HISTORY + min(end - SCAN, 0) :]
        )


class Patterns:
    def __init__(self, floor: float) -> None:
        """`floor`: a slope of less is flat, however flat the others are."""
        self._floor = floor
        self._zone = floor
        self._ticks = 0
        self.histories: dict[str, History] = {}
        self.totals = [0] * CODES

    def keep(self, lives: Mapping[str, object]) -> None:
        """Forget all but the histories of these lives."""
        gone = [each for each, kept in self.histories.items() if lives.get(each) is not kept.life]
        for component_id in gone:
            for code, count in enumerate(self.histories.pop(component_id).counts):
                self.totals[code] -= count  # T2

    def feed(self, component_id: str, life: object, slope: float) -> None:
        """One more slope of a life that is there."""
        history = self.histories.get(component_id)
        if history is None:
            history = self.histories[component_id] = History(life)
        history.slope = slope
        letter = 1 if abs(slope) < self._zone else 2 if slope > 0 else 0
        history.push(letter, self.totals)

    def look(self, judged: Collection[str]) -> tuple[list[tuple[str, Surprise]], int]:
        """Who is too surprising, and of how many; 0 if they are too few to say."""
        self._ticks += 1
        if self._ticks % ZONE_TICKS == LENGTH and self.histories:
            slopes = sorted([abs(history.slope) for history in self.histories.values()])
            self._zone = max(self._floor, ZONE_SHARE * median_of(slopes))
        ready = [
            (each, self.histories[each])
            for each in judged
            if each in self.histories and self.histories[each].positions >= SCAN
        ]
        if len(ready) < GROUP_MIN:
            return [], 0
        turns = -(-len(ready) // SCORED_MAX)
        totals = _spread(self.totals)
        for _, history in ready[self._ticks % turns :: turns]:  # T3
            history.surprise = surprise(history, totals)
        scores = sorted([history.surprise.score for _, history in ready])
        median = median_of(scores)
        usual = Reference(median, max(deviation_of(scores, median), _SCALE_MIN), len(scores))
        limit = max(usual.high, SCORE_MIN)
        odd = [(each, kept.surprise) for each, kept in ready if kept.surprise.score > limit]
        return odd, len(ready)


def surprise(history: History, totals: Sequence[int]) -> Surprise:
    """T, and of which word. `totals`: how often all histories have each word, this one's too."""
    own = _spread(history.counts)
    peers = [total - of_own for total, of_own in zip(totals, own, strict=True)]
    positions = sum(peers[:LETTERS])
    if positions < PEERS_POSITIONS_MIN:
        return NONE
    counts = [0] * CODES
    for code in history.newest():
        counts[code] += 1
    worst = NONE
    for word, seen in enumerate(_spread(counts)):
        if seen:
            expected = _expected(word, peers, positions)
            scale = sqrt(max(expected * (1 - expected / SCAN), VARIANCE_MIN))
            score = abs(seen - expected) / scale
            if score > worst.score:
                worst = Surprise(score, seen, expected, scale)
    return worst


def _expected(word: int, peers: Sequence[int], positions: int) -> float:
    share = SCAN / positions
    if peers[word]:
        return share * peers[word]
    letters = _LETTERS_OF[word]
    if len(letters) == LENGTH:
        pairs = [peers[_PAIRS + a * LETTERS + b] for a, b in pairwise(letters)]
        if all(pairs):
            return share * prod(pairs, start=1.0) / prod([peers[each] for each in letters[1:-1]])
    return SCAN * prod([peers[letter] / positions for letter in letters])


def _spread(counts: Sequence[int]) -> list[int]:
    """How often each word of any length is there, of how often each of full length is."""
    spread = [0] * WORDS
    for ends, count in zip(_ENDS, counts, strict=True):
        if count:
            for word in ends:
                spread[word] += count
    return spread
