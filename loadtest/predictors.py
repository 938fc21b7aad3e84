"""Which statistic tells which fault: how often, how soon and how far.

    python -m loadtest.predictors DIRECTORY … [--all]

Each directory has what Pinpoint recorded (`*.ticks.jsonl`, also packed) and, in `injuries.json`,
what was done meanwhile, by the same clock. For every fault and
every statistic that is judged: in how many of the runs it was an anomaly of the victim, how long
after the injury it first was, and by how many scales at most (the medians). The last column is how
often it was an anomaly of somebody in good health, per hour of one process. With `--all` every
other statistic of a beacon is looked at as well, with no floor but a tenth of the median: what
tells a fault and is not judged yet.
"""

import argparse
import gzip
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from loadtest.heal_field import INJURIES
from loadtest.heal_requests import Injury
from loadtest.report import table
from pinpoint.anomalies import Anomalies, Anomaly
from pinpoint.catalogue import Judged, judged_of
from pinpoint.deviation import is_sound, reference
from pinpoint.recording import Header, read_line
from pinpoint.samples import Sample, Tick

ROLE = "brick"
AFTER_S = 20.0  # So long after an injury nobody's numbers count as healthy.
YOUNG_S = 15.0
THRESHOLD = 3.5
PLAIN_RELATIVE = 0.1


class Found(msgspec.Struct):
    """One statistic, in the runs of one fault."""

    runs: int = 0
    first_s: list[float] = []
    scores: list[float] = []


class Predictors:
    """Fed recording by recording."""

    def __init__(self, *, everything: bool = False) -> None:
        self._everything = everything
        self.faults: dict[str, int] = {}
        self.found: dict[tuple[str, str], Found] = {}
        self.healthy: Counter[str] = Counter()
        self.healthy_s = 0.0

    def add(self, ticks: Iterable[Tick], injuries: Sequence[Injury], period_s: float) -> None:
        done = [each for each in injuries if not each.refused and each.verb != "cure"]
        seen: dict[Injury, dict[str, list[tuple[float, float]]]] = {each: {} for each in done}
        anomalies = Anomalies(period_s)
        before: dict[str, set[str]] = {}
        for tick in ticks:
            samples = {each.id: each for each in tick.samples}
            eligible = {each.id for each in tick.samples if is_judged(each)}
            odd = anomalies.look(tick, eligible).anomalies
            merged = {each: list(odd.get(each, ())) for each in eligible}
            if self._everything:
                for component_id, more in plain(samples, eligible).items():
                    merged[component_id] += more
            self._tick(tick.at, merged, samples, seen, period_s, before)
            before = {each: {a.statistic for a in found} for each, found in merged.items()}
        for injury, by_statistic in seen.items():
            self._run(injury, by_statistic)

    def _tick(
        self,
        at: float,
        odd: Mapping[str, Sequence[Anomaly]],
        samples: Mapping[str, Sample],
        seen: Mapping[Injury, dict[str, list[tuple[float, float]]]],
        period_s: float,
        before: Mapping[str, set[str]],
    ) -> None:
        hurt = {
            each.id: each
            for each in seen
            if each.at < at
            and samples.get(each.id, None) is not None
            and samples[each.id].incarnation == each.incarnation
        }
        calm = not any(each.at <= at < each.at + AFTER_S for each in seen)
        for component_id, anomalies in odd.items():
            if component_id in hurt:
                injury = hurt[component_id]
                for each in anomalies:
                    told = seen[injury].setdefault(each.statistic, [])
                    told.append((at - injury.at, abs(each.score)))
            elif calm:
                self.healthy_s += period_s
                self.healthy.update(
                    {each.statistic for each in anomalies} & before.get(component_id, set())
                )

    def _run(self, injury: Injury, by_statistic: Mapping[str, list[tuple[float, float]]]) -> None:
        self.faults[injury.verb] = self.faults.get(injury.verb, 0) + 1
        for statistic, told in by_statistic.items():
            found = self.found.setdefault((injury.verb, statistic), Found())
            found.runs += 1
            found.first_s.append(min(at for at, _ in told))
            found.scores.append(max(score for _, score in told))


def is_judged(sample: Sample) -> bool:
    return sample.role == ROLE and sample.state == "live" and sample.age_s >= YOUNG_S


def plain(samples: Mapping[str, Sample], eligible: set[str]) -> dict[str, list[Anomaly]]:
    """What no catalogue has, by the median absolute deviation of this one tick."""
    found: dict[str, list[Anomaly]] = {each: [] for each in eligible}
    known = {each.name for each in judged_of(ROLE)}
    names = {name for each in eligible for name in samples[each].statistics} - known
    for name in names:
        values = {
            each: samples[each].statistics[name]
            for each in eligible
            if is_sound(samples[each].statistics.get(name))
        }
        judged = Judged(
            name=name, group=name, kind="level", low=True, high=True, relative=PLAIN_RELATIVE
        )
        against = reference(judged, sorted(values.values()))
        if against is None:
            continue
        for component_id, value in values.items():
            score = against.score(value)
            if abs(score) > THRESHOLD:
                found[component_id].append(
                    Anomaly(
                        statistic=name,
                        group=name,
                        kind="level",
                        value=value,
                        median=against.median,
                        scale=against.scale,
                        score=score,
                        direction="high" if score > 0 else "low",
                        peers=against.peers,
                    )
                )
    return found


def page(predictors: Predictors) -> str:
    """A line for each statistic, a column for each fault."""
    faults = sorted(predictors.faults)
    statistics = sorted({name for _, name in predictors.found} | set(predictors.healthy))
    head = ["statistic", *(f"{each} ({predictors.faults[each]})" for each in faults), "healthy/h"]
    rows = []
    for name in statistics:
        cells = [cell(predictors.found.get((fault, name))) for fault in faults]
        hours = predictors.healthy_s / 3600
        often = f"{predictors.healthy[name] / hours:.1f}" if hours else "-"
        rows.append([name, *cells, often])
    return table(head, rows)


def cell(found: Found | None) -> str:
    """`3x 2.1 s 12`: in three runs, first after 2.1 s, at most 12 scales; the medians."""
    if found is None:
        return "-"
    return f"{found.runs}x {median(found.first_s):.1f} s {median(found.scores):.0f}"


def recorded(path: Path) -> tuple[list[Tick], float]:
    """The ticks of one recording, and how far apart they are."""
    packed = path.read_bytes()
    ticks: list[Tick] = []
    period_s = 1.0
    for line in (gzip.decompress(packed) if path.suffix == ".gz" else packed).splitlines():
        match read_line(line):
            case Tick() as tick:
                ticks.append(tick)
            case Header(period_s=told_s):
                period_s = told_s
            case None:
                pass
    return ticks, period_s


def recordings(directory: Path) -> Iterator[tuple[list[Tick], float]]:
    """Of each Pinpoint, all that it kept, in order."""
    older = {path.name.replace(".older", ""): path for path in directory.glob("*.older.jsonl*")}
    for path in sorted(directory.glob("*.ticks.jsonl*")):
        if ".older" in path.name:
            continue
        ticks, period_s = recorded(path)
        if path.name in older:
            ticks = [*recorded(older[path.name])[0], *ticks]
        yield ticks, period_s


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Which statistic tells which fault.")
    parser.add_argument("directories", nargs="+", type=Path)
    parser.add_argument("--all", action="store_true", help="those that are not judged, too")
    asked: Any = parser.parse_args(arguments)
    predictors = Predictors(everything=asked.all)
    for directory in asked.directories:
        injuries = msgspec.json.decode((directory / INJURIES).read_bytes(), type=list[Injury])
        for ticks, period_s in recordings(directory):
            predictors.add(ticks, injuries, period_s)
    print(page(predictors))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
