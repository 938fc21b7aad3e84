"""Judge recorded ticks once more. The same ticks give the same verdicts. Decides only."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from pinpoint.judge import Judge, Judgement
from pinpoint.recording import Header, read_line
from pinpoint.samples import Tick
from pinpoint.verdict import Verdict, Why

SAID_MAX = 10_000  # Of a recording of any length.


class Said(msgspec.Struct, frozen=True):
    """One verdict."""

    at_s: float
    """Since the run's first tick."""
    id: str
    incarnation: int
    statistics: list[str]
    """Those that speak against it, the strongest first."""
    reason: str
    withheld: Why | None


class Replayed(msgspec.Struct, frozen=True):
    ticks: int
    runs: int
    seconds: float
    unreadable: int
    """Lines."""
    condemned: list[Said]
    would: list[Said]
    """Verdicts that were not acted upon; of each life and each reason, the first."""
    withheld: dict[Why, int]
    headless: int = 0
    """Runs whose beginning is not there. What was seen in it is unknown here, so for the first
    minutes these verdicts may be others than those that were given."""


def replay(lines: Iterable[bytes]) -> Replayed:
    """`lines` are those of one recording, or of its parts in their order."""
    run: _Run | None = None
    runs: list[_Run] = []
    unreadable = 0
    for line in lines:
        match read_line(line):
            case Header() as header:
                if run is not None and header.continues(run.header):
                    run.header = header
                else:
                    before = None if run is None else run.header
                    run = _Run(header, headless=header.part > 0 or header.is_same_life(before))
                    runs.append(run)
            case Tick() as tick if run is not None:
                run.tick(tick)
            case _:
                unreadable += bool(line.strip())
    return Replayed(
        ticks=sum(each.ticks for each in runs),
        runs=len(runs),
        seconds=round(sum(each.seconds for each in runs), 3),
        unreadable=unreadable,
        condemned=[said for each in runs for said in each.condemned][:SAID_MAX],
        would=[said for each in runs for said in each.would][:SAID_MAX],
        withheld=dict(sum((each.withheld for each in runs), Counter[Why]())),
        headless=sum(each.headless for each in runs),
    )


class _Run:
    def __init__(self, header: Header, *, headless: bool) -> None:
        self.header = header
        self.headless = headless
        self.ticks = 0
        self.seconds = 0.0
        self.condemned: list[Said] = []
        self.would: list[Said] = []
        self.withheld: Counter[Why] = Counter()
        self._judge = Judge(header.settings, header.needed, header.period_s)
        self._began_at = 0.0
        self._told: set[tuple[str, int, Why | None]] = set()

    def tick(self, tick: Tick) -> None:
        if not self.ticks:
            self._began_at = tick.at
        self.ticks += 1
        self.seconds = tick.at - self._began_at
        self._note(self._judge.tick(tick))

    def _note(self, judgement: Judgement) -> None:
        self.withheld.update(judgement.withheld)
        self.condemned += [self._said(verdict) for verdict in judgement.condemned]
        for verdict in judgement.would:
            key = verdict.id, verdict.incarnation, verdict.withheld
            if key not in self._told and len(self._told) < SAID_MAX:
                self._told.add(key)
                self.would.append(self._said(verdict))

    def _said(self, verdict: Verdict) -> Said:
        return Said(
            at_s=round(self.seconds, 3),
            id=verdict.id,
            incarnation=verdict.incarnation,
            statistics=[each.anomaly.statistic for each in verdict.evidence],
            reason=verdict.sentence,
            withheld=verdict.withheld,
        )
