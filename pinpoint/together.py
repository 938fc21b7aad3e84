"""Who is sick together with others of its role, or of its machine. Decides only.

What ails several seldom shows in all of them in the same second: now the one is just beyond a
limit, now the other; and a restart hides for a while what ails a component. So whoever was nearly
condemned is remembered for `lasting_s`, over the end of that life. This binds only whoever wants
to end the living: at worst a second one that is sick is ended that much later.

What always holds:
  R1  Of n in a role at most max(1, n // 4) are sick together; more is the system's trouble.
  R2  Two or more of a node, all of them sick or leaning that way, while their role is judged on
      another node as well, is that machine's trouble.
  R3  What is remembered is bounded: of those sick within `lasting_s`, where they were.
"""

from collections import Counter
from collections.abc import Mapping, Set

Place = tuple[str, str]
"""Role and node."""


class Together:
    def __init__(self, lasting_s: float) -> None:
        self._lasting_s = lasting_s
        self._sick: dict[str, tuple[Place, float]] = {}
        """By id: where it was last so, and when."""
        self._judged: Counter[Place] = Counter()
        self._well: Counter[Place] = Counter()
        self._leaning: Counter[Place] = Counter()
        """Of the well."""
        self._gone: Counter[Place] = Counter()
        """Sick, and not judged just now: ended, or young again."""

    def look(
        self,
        nearly: Mapping[str, Place],
        leaning: Set[str],
        judged: Mapping[str, Place],
        at: float,
    ) -> None:
        """Who is nearly condemned now, who is not far from that, and all that are judged."""
        self._sick = {  # R3
            each: (place, then)
            for each, (place, then) in self._sick.items()
            if 0 <= at - then < self._lasting_s
        }
        self._sick.update((each, (place, at)) for each, place in nearly.items())
        self._judged = Counter(judged.values())
        well = {each: place for each, place in judged.items() if each not in self._sick}
        self._well = Counter(well.values())
        self._leaning = Counter(place for each, place in well.items() if each in leaning)
        self._gone = Counter(place for each, (place, _) in self._sick.items() if each not in judged)

    def is_system(self, role: str) -> bool:
        judged, gone = _of(role, self._judged), _of(role, self._gone)
        sick = judged - _of(role, self._well) + gone
        return sick > max(1, (judged + gone) // 4)  # R1

    def is_node(self, role: str, node: str) -> bool:
        place = role, node
        here = self._judged[place]
        all_sick = self._well[place] == self._leaning[place]
        return all_sick and here + self._gone[place] > 1 and _of(role, self._judged) > here  # R2


def _of(role: str, places: Mapping[Place, int]) -> int:
    return sum(count for (of_role, _), count in places.items() if of_role == role)
