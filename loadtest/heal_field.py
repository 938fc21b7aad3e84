"""A cluster to hurt and the generators that load it, for as long as a `with` lasts. Starts, asks.

What they do is in `loadtest.heal_town` and `loadtest.heal_generator`; each is a process of its own,
and neither is a process of the cluster. All that is seen is kept here, for the score.
"""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from bus.clock import now
from bus.config_shape import NODE
from loadtest.heal_requests import (
    Awaited,
    AwaitNext,
    AwaitWhole,
    Carried,
    Carry,
    Cure,
    HowFar,
    Injure,
    Injured,
    Injury,
    KeepRecords,
    Notice,
    Pace,
    Rest,
    Sighting,
    SoFar,
    Tell,
    ToGenerator,
    Told,
    ToTown,
    TownAsked,
    TownUp,
)
from loadtest.processes import START_S_MAX, Child, Children

BEGIN_S = 0.2
ANSWER_S_MAX = 30.0
REST_S_MAX = 120.0
TOWN_END_S_MAX = 20.0
OURSELVES = "town"
INJURIES = "injuries.json"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What all generators ask together."""

    per_s: float = 200.0
    sessions: int = 300
    bytes_min: int = 1024
    bytes_max: int = 8192
    timeout_ms: float = 100.0
    """As the paper has it where it injects faults; and a shared machine may stand still for 60."""
    passing: float = 0.0


class HealField:
    def __init__(self, asked: TownAsked, generators: int, load: Load) -> None:
        self._asked = asked
        self._count = generators
        self._load = load
        self._children = Children(TOWN_END_S_MAX)
        self._generators: list[Child] = []
        self._seeds = count(1)
        self.injuries: list[Injury] = []
        self.notices: list[Notice] = []
        self.sightings: list[Sighting] = []
        self.rss_bytes: dict[str, int] = {}

    def __enter__(self) -> "HealField":
        self._children.__enter__()
        try:
            asked = msgspec.json.encode(self._asked).decode()
            self._town = self._children.start("cluster", "loadtest.heal_town", asked)
            self.up = msgspec.convert(self._town.receive(START_S_MAX), TownUp)
            for number in range(self._count):
                name = f"generator-{number + 1}"
                self._generators.append(
                    self._children.start(name, "loadtest.heal_generator", self.up.config, name)
                )
            for each in self._generators:
                each.receive(START_S_MAX)
        except BaseException as error:
            self._children.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._children.__exit__(kind, error, trace)

    def of_role(self, role: str) -> list[str]:
        return [each for each, its in self.up.components.items() if its == role]

    @property
    def observers(self) -> list[str]:
        """In whose eyes a process is to be live again: agents, web servers, and a bystander."""
        generators = [each.name for each in self._generators]
        return [*self.of_role(NODE), *generators, OURSELVES]

    # The load.

    def begin(self) -> float:
        load, parts = self._load, len(self._generators)
        begin_at = now() + BEGIN_S
        for each in self._generators:
            carry = Carry(
                begin_at=begin_at,
                per_s=load.per_s / parts,
                seed=next(self._seeds),
                sessions=max(1, load.sessions // parts),
                bytes_min=load.bytes_min,
                bytes_max=load.bytes_max,
                timeout_s=load.timeout_ms / 1000,
                passing=load.passing,
                settings={"timeout_ms": load.timeout_ms},
            )
            each.ask(ToGenerator(carry), ANSWER_S_MAX)
        return begin_at

    def pace(self, per_s: float) -> None:
        for each in self._generators:
            each.ask(ToGenerator(Pace(per_s / len(self._generators))), ANSWER_S_MAX)

    def how_far(self) -> SoFar:
        answers = [
            msgspec.convert(each.ask(ToGenerator(HowFar()), ANSWER_S_MAX), SoFar)
            for each in self._generators
        ]
        return SoFar(sum(each.offered for each in answers), sum(each.failed for each in answers))

    def rest(self) -> list[Carried]:
        """No more load: every session is loaded once more."""
        for each in self._generators:
            each.send(ToGenerator(Rest()))
        answers = [each.receive(REST_S_MAX) for each in self._generators]
        carried = [msgspec.convert(each, Carried) for each in answers]
        for one in carried:
            self.sightings += one.sightings
        return carried

    # The cluster.

    def injure(self, injure: Injure) -> list[Injury]:
        """The lives that suffer from it."""
        return self._injured(injure)

    def cure(self, component_id: str) -> None:
        """End what was done to it and not found."""
        self._injured(Cure(component_id))

    def _injured(self, order: Injure | Cure) -> list[Injury]:
        injuries = msgspec.convert(self._ask(order), Injured).injuries
        self.injuries += injuries
        return injuries

    def await_next(self, injury: Injury, timeout_s: float) -> Sequence[str]:
        """Who does not see its next life live; nobody, if all went well."""
        return self._await(AwaitNext(injury.id, injury.incarnation, timeout_s), timeout_s)

    def await_whole(self, timeout_s: float) -> Sequence[str]:
        """Who is not live in the eyes of all."""
        return self._await(AwaitWhole(timeout_s), timeout_s)

    def look(self) -> None:
        """Take over what the cluster's process has seen."""
        told = msgspec.convert(self._ask(Tell()), Told)
        self.notices += told.notices
        self.sightings += told.sightings
        self.rss_bytes = told.rss_bytes

    def keep_records(self, directory: Path) -> None:
        """What Pinpoint recorded, and what was done meanwhile: for `loadtest.predictors`."""
        self._ask(KeepRecords(str(directory.absolute())))
        (directory / INJURIES).write_bytes(msgspec.json.encode(self.injuries))

    def _await(self, order: AwaitNext | AwaitWhole, timeout_s: float) -> Sequence[str]:
        return msgspec.convert(self._ask(order, timeout_s + ANSWER_S_MAX), Awaited).missing

    def _ask(
        self,
        order: Injure | Cure | AwaitNext | AwaitWhole | Tell | KeepRecords,
        timeout_s: float = ANSWER_S_MAX,
    ) -> Any:  # noqa: ANN401 (converted by whoever knows what was asked)
        return self._town.ask(ToTown(order), timeout_s)
