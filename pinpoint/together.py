"""Who is sick together with others of its role, or of its machine. Decides only.

What ails several seldom shows in all of them in the same second: now the one is just beyond a
limit, now the other; and a restart hides for a while what ails a component. So whoever was nearly
condemned counts for `lasting_s`, or for `over_s` if that life is over; and whoever was sick
together with others is held to be so for `lasting_s` more, whatever became of them. By then those
that were restarted are judged again, and show whether it helped.

What always holds:
  R1  Of n in a role at most max(1, n // 4) are sick together; more is the system's trouble.
  R2  Two or more of a node, all of them sick or leaning that way, while their role is judged on
      another node as well, is that machine's trouble.
  R3  What is remembered is bounded: of those sick within these seconds, one life each.
"""

from collections import Counter
from collections.abc import Mapping, Set
from typing import Literal, NamedTuple

Place = tuple[str, str]
"""Role and node."""
Trouble = Literal["node", "systemic"]


class Life(NamedTuple):
    place: Place
    incarnation: int


class _Sick(NamedTuple):
    life: Life
    at: float


class _Company(NamedTuple):
    trouble: Trouble
    at: float


class Together:
    def __init__(self, *, lasting_s: float, over_s: float) -> None:
        self._over_s = over_s
        self._lasting_s = lasting_s
        self._sick: dict[str, _Sick] = {}
        """By id: its last life that was nearly condemned, and when it last was."""
        self._company: dict[str, _Company] = {}

    def look(
        self,
        nearly: Mapping[str, Life],
        leaning: Set[str],
        judged: Mapping[str, Life],
        at: float,
    ) -> None:
        """Who is nearly condemned now, who is not far from that, and all that are judged."""
        self._sick = {
            each: sick
            for each, sick in self._sick.items()
            if 0
            <= at - sick.at
            < (self._lasting_s if judged.get(each) == sick.life else self._over_s)
        }  # R3
        self._sick.update((each, _Sick(life, at)) for each, life in nearly.items())
        self._company = {
            each: company
            for each, company in self._company.items()
            if 0 <= at - company.at < self._lasting_s
        }  # R3
        here = Counter(life.place for life in judged.values())
        gone = Counter(sick.life.place for each, sick in self._sick.items() if each not in judged)
        well = {each: life.place for each, life in judged.items() if each not in self._sick}
        upright = Counter(place for each, place in well.items() if each not in leaning)
        crowd, sound = _by_role(here + gone), _by_role(Counter(well.values()))
        judged_of = _by_role(here)
        machines = {
            place
            for place, count in here.items()
            if not upright[place] and count + gone[place] > 1 and judged_of[place[0]] > count  # R2
        }
        roles = {role for role, n in crowd.items() if n - sound[role] > max(1, n // 4)}  # R1
        for each, life in {**judged, **nearly}.items():
            if life.place in machines:
                self._company[each] = _Company("node", at)
            elif each in nearly and life.place[0] in roles:
                self._company[each] = _Company("systemic", at)

    def trouble(self, component_id: str) -> Trouble | None:
        """Whether what ails it ails others as well."""
        company = self._company.get(component_id)
        return company.trouble if company is not None else None


def _by_role(places: Mapping[Place, int]) -> Counter[str]:
    roles: Counter[str] = Counter()
    for (role, _), count in places.items():
        roles[role] += count
    return roles
