"""`make soak`: a cluster under load with random faults, for as long as asked; then what went wrong.

    python -m loadtest.soak [--seconds 600] [--seed N] [--clean] [--output build/soak]

Bricks and stubs, managers and owners of leases, Pinpoint, hubs and nodes: all are hurt by chance
(`loadtest.soak_plan`, by the seed that is told), while every load of a session is compared with
what was written, and every act of an owner is noted. With `--clean` nobody is hurt: cold starts,
steps of the load, and many sessions that end soon and make memory rise and fall in saw-teeth; then
nothing at all may be restarted. Exit code 1 if anything was lost, wrong, doubled, restarted for
nothing, or never whole again. Leaves `history.jsonl`, `verdict.json`, pictures, and what Pinpoint
recorded (`softstate pinpoint replay`, `loadtest.predictors`) in the output.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from random import SystemRandom
from typing import Any

import gevent
import msgspec

from bus.clock import now
from loadtest.heal_field import HealField, Load
from loadtest.heal_requests import TownAsked
from loadtest.heal_score import ended_lives, false_restarts
from loadtest.lease_acts import Act, problems
from loadtest.processes import Child, Children
from loadtest.soak_history import Leg, lines
from loadtest.soak_plan import Step, clean_steps, steps
from loadtest.soak_score import Verdict, sorted_losses

COUNTS = {"hub": 2, "manager": 3, "brick": 6, "pinpoint": 1}
OWNERS = ("owner-1", "owner-2", "owner-3")
GENERATORS = 2
LOAD = Load(per_s=150.0)
PASSING = 0.1  # Of the requests, with `--clean`: new sessions that nobody comes back to.

SETTINGS: dict[str, Any] = {
    "chaos": True,
    # Whoever is hurt again by chance has not failed again.
    "restarts": {"crash_s": 2.0, "sick_s": 15.0},
}
FIRST_S = 5.0
WHOLE_S_MAX = 60.0
SPARE_S = 1.0  # After a fault that heals by itself.
OWNER_HANG_S = 12.0  # Longer than a lease of the preset lasts.
OWNER_START_S_MAX = 60.0
LEG_S = 1200.0  # Of a clean soak: then another cluster begins, cold.

Progress = Callable[[str], None]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="A cluster under load, hurt by chance.")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None, help="what is done, and to whom")
    parser.add_argument("--clean", action="store_true", help="no faults: nothing may be restarted")
    parser.add_argument("--output", type=Path, default=Path("build/soak"))
    asked = parser.parse_args(arguments)
    seed = SystemRandom().randrange(1_000_000) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    asked.output.mkdir(parents=True, exist_ok=True)
    legs = list(soak(asked.seconds, seed, asked.output, clean=asked.clean))
    verdict = Verdict()
    for leg in legs:
        verdict.add(leg.verdict)
    write(asked.output, legs, verdict)
    print(told(legs, verdict))
    draw(asked.output)
    return 0 if verdict.is_right else 1


def soak(seconds: float, seed: int, output: Path, *, clean: bool) -> Iterator[Leg]:
    """One cluster after the other, until the time is over."""
    end_at = now() + seconds
    for number in count():
        left_s = end_at - now()
        if number and left_s < LEG_S / 10:
            return
        leg_s = min(left_s, LEG_S) if clean else left_s
        run = Run(leg_s, seed + number, output, clean=clean, progress=partial(print, flush=True))
        yield run.leg()
        if not clean:
            return


class Run:
    """One cluster, from its start to the score."""

    def __init__(
        self,
        seconds: float,
        seed: int,
        output: Path,
        *,
        clean: bool = False,
        progress: Progress,
    ) -> None:
        self._seconds, self._seed, self._clean = seconds, seed, clean
        self._output = output
        self._acts = output / f"acts-{seed}"
        self._acts.mkdir(parents=True, exist_ok=True)
        for path in self._acts.glob("*.jsonl"):
            path.unlink()
        self._progress = progress
        self._owners: dict[str, Child] = {}
        self._paces: list[tuple[float, float]] = []
        self._never_whole: list[str] = []

    def leg(self) -> Leg:
        asked = TownAsked(counts=COUNTS, settings=SETTINGS, seed=self._seed)
        passing = PASSING if self._clean else 0.0
        load = msgspec.structs.replace(LOAD, passing=passing)
        with HealField(asked, GENERATORS, load) as field, Children() as self._children:
            begin_at = field.begin()
            self._paces.append((begin_at, LOAD.per_s))
            for name in OWNERS:
                self._start_owner(field, name)
            self._until_the_end(field, begin_at)
            carried = field.rest()
            field.look()
            field.keep_records(self._output / f"records-{self._seed}")
        return Leg(
            seed=self._seed,
            begin_at=begin_at,
            planned=field.up.components,
            carried=carried,
            paces=self._paces,
            injuries=field.injuries,
            notices=field.notices,
            sightings=field.sightings,
            verdict=self._verdict(field, [each for one in carried for each in one.losses]),
        )

    def _until_the_end(self, field: HealField, begin_at: float) -> None:
        end_at = begin_at + self._seconds
        nodes = sorted(set(field.up.nodes.values()))
        plan = (
            clean_steps(self._seed)
            if self._clean
            else steps(self._seed, field.up.components, nodes, OWNERS)
        )
        gevent.sleep(min(FIRST_S, self._seconds / 4))
        while now() < end_at:
            step = next(plan)
            self._take(field, step)
            gevent.sleep(max(0.0, min(step.calm_s, end_at - now())))
        self._whole(field, "at the end")

    def _take(self, field: HealField, step: Step) -> None:
        at_s = now() - self._paces[0][0]
        what, hurt = [], []
        for fault in step.faults:
            injuries = field.injure(fault)
            hurt += [(each, fault.for_s) for each in injuries if each.id in fault.ids]
            refused = " (could not be done)" if injuries and injuries[0].refused else ""
            what.append(f"{fault.verb} {' '.join(fault.ids)}{refused}")
        if step.owner is not None:
            verb, name = step.owner
            self._hurt_owner(field, verb, name)
            what.append(f"{verb} {name}")
        if step.hasty:
            what.append("and the next at once")
        if step.load is not None:
            per_s = LOAD.per_s * step.load
            field.pace(per_s)
            self._paces.append((now(), per_s))
            what.append(f"{per_s:.0f} requests a second")
        told = ", ".join(what)
        self._progress(f"{at_s:7.1f} s  {told}")
        if step.faults and not step.hasty:
            for injury, for_s in hurt:
                if not injury.refused:
                    field.await_next(injury, max(0.0, injury.at + for_s + SPARE_S - now()))
            self._whole(field, f"{at_s:.1f} s {told}")
        else:
            field.look()

    def _whole(self, field: HealField, when: str) -> None:
        missing = field.await_whole(WHOLE_S_MAX)
        if missing:
            self._never_whole.append(f"{when}: {', '.join(missing)}")
            self._progress(f"           never whole: {', '.join(missing)}")
        field.look()

    # Owners of leases: linked programs, which the cluster sees and never touches.

    def _start_owner(self, field: HealField, name: str) -> None:
        path = str(self._acts / f"{name}.jsonl")
        child = self._children.start(name, "loadtest.soak_owner", name, field.up.config, path)
        self._owners[name] = child
        child.receive(OWNER_START_S_MAX)

    def _hurt_owner(self, field: HealField, verb: str, name: str) -> None:
        child = self._owners[name]
        if verb == "hang":
            os.kill(child.pid, signal.SIGSTOP)
            gevent.sleep(OWNER_HANG_S)
            os.kill(child.pid, signal.SIGCONT)
            return
        os.kill(child.pid, signal.SIGKILL)
        child.end(1.0)
        self._start_owner(field, name)

    # The score.

    def _verdict(self, field: HealField, losses: Sequence[Any]) -> Verdict:
        planned = field.up.components
        ended = ended_lives(planned, field.notices, field.sightings)
        lost, wrong, excused = sorted_losses(losses, ended)
        return Verdict(
            lost=lost,
            wrong=wrong,
            doubled=problems(acts_in(self._acts)),
            false_restarts=false_restarts(field.injuries, planned, field.notices, field.sightings),
            never_whole=self._never_whole,
            excused=excused,
        )


def acts_in(directory: Path) -> Iterator[Act]:
    """What all owners noted; a line that a kill cut short is no act."""
    decode = msgspec.json.Decoder(Act).decode
    for path in sorted(directory.glob("*.jsonl")):
        with path.open("rb") as file:
            for line in file:
                if line.endswith(b"\n"):
                    yield decode(line)


def write(output: Path, legs: Sequence[Leg], verdict: Verdict) -> None:
    with (output / "history.jsonl").open("wb") as file:
        for leg in legs:
            for line in lines(leg):
                file.write(msgspec.json.encode(line) + b"\n")
    (output / "verdict.json").write_bytes(msgspec.json.encode(verdict))


def told(legs: Sequence[Leg], verdict: Verdict) -> str:
    seconds = [each for leg in legs for one in leg.carried for each in one.seconds]
    requests, good = sum(each[0] for each in seconds), sum(each[1] for each in seconds)
    failed = sum(one.failed for leg in legs for one in leg.carried)
    faults = {(each.verb, each.at) for leg in legs for each in leg.injuries if not each.refused}
    head = (
        f"{requests} requests, {good} of them within {LOAD.timeout_ms:g} ms, {failed} failed; "
        f"{len(faults)} faults"
    )
    figures = ", ".join(f"{name} {value}" for name, value in verdict.figures().items())
    wrong = [
        *map(str, verdict.lost),
        *map(str, verdict.wrong),
        *verdict.doubled,
        *map(str, verdict.false_restarts),
        *verdict.never_whole,
    ]
    return "\n".join([head, figures, *wrong[:50]])


def draw(output: Path) -> None:
    from loadtest.draw_soak import draw_history  # Matplotlib takes a second, and may be missing.

    print(f"see {draw_history(output)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
