"""Which verdicts may end a live process, and why the others may not. Decides only.

A verdict says that a component is unlike its peers. To end it is right if it alone is sick, and
wrong if what we see is a change of the whole cluster or of its machine, if it merely has more to
do than others, or if others need it more than it is sick.
These guards bind only the ending of the living: the dead are brought back by their peers.

Instants are those of ticks. Who was live, for how long, and what changed of late is seen here from
tick to tick; whether a component is young, from its beacon, so also right after our own start. Who
says for ever that it is young, or comes or goes for ever, is believed for a while.

What always holds:
  Y1  Only who is live, past its grace and was seen live at the last `KNOWN_LOOKS` is judged, and
      who was and is suspect: that is a sign, and no reason to look away. Hubs and node agents
      never are, as whoever ends one takes from others what they need.
  Y2  No restart is ordered while one is on its way; it is until a later life of that component is
      live, or `FLIGHT_S_MAX` have passed.
  Y3  At least `needed` of a role stay live without the condemned one.
  Y4  Nobody is ended for what ails many of its role, or all of its node (`pinpoint.together`).
  Y5  Nothing is ordered in the first `WARM_UP_LOOKS`, nor for a role more than a tenth of which
      (one may) comes and goes, nor around a step of its load.
  Y6  The same component is not condemned again for `grace_s`.
  Y7  In shadow mode everything is as if it had been ordered, and nothing is.
  Y8  Nobody is ended of a role that is not in `needed`: what is normal for it is not known.
  Y9  Nobody is ended for waiting and being busy who has more to do than the middle one of its
      role, and needs no longer for it.
"""

import math
from collections import Counter, deque
from collections.abc import Mapping
from statistics import median

import msgspec

from bus.config_shape import BUILT_IN_ROLES, PinpointConfig
from bus.messages import State
from pinpoint import together
from pinpoint.samples import Sample
from pinpoint.verdict import Flags, Verdict, Why

KNOWN_LOOKS = 3
WARM_UP_LOOKS = 5
SETTLED_LOOKS = 10  # For so long after it came or went, a component counts as changing.
FLIGHT_S_MAX = 15.0  # A process is back within a few seconds, or not soon.

STEP_LOOKS = 5  # So long it is remembered.
STEP_WITHIN_LOOKS = 2  # What takes longer is no step: all have time to follow.
STEP_RATIO = 2.0
STEP_FLOOR_PER_S = 20.0  # Twice as much of next to nothing is no step.
ACTIVITIES = "answered_per_s", "records_received_per_s"  # The first that it tells.

HOT_RATIO = 1.5
SERVICE = "service"
"""The group of statistics that do not rise with what there is to do."""


class Allowed(msgspec.Struct, frozen=True):
    condemned: tuple[Verdict, ...]
    """At most one."""
    withheld: tuple[Verdict, ...]


class Policy:
    def __init__(
        self, settings: PinpointConfig, needed: Mapping[str, int], period_s: float
    ) -> None:
        """`needed`: of each role that may be ended, how many must stay live."""
        self._settings = settings
        self._needed = needed
        self._settled_s = SETTLED_LOOKS * period_s
        self._lives: dict[str, _Life] = {}
        self._levels: dict[str, deque[float]] = {}
        self._looks = 0
        self._at = 0.0
        self._flight: _Flight | None = None
        self._condemned_at: dict[str, float] = {}
        # So long, together, a restart may hide what its successor has as well.
        self._together = together.Together(lasting_s=settings.grace_s, over_s=self._settled_s)
        self._judged: dict[str, together.Life] = {}
        self._work: dict[str, float] = {}
        self._live: Counter[str] = Counter()
        self._changing: Counter[str] = Counter()

    @property
    def in_flight(self) -> bool:
        """Whether a restart that we ordered is on its way."""
        return self._flight is not None

    def begin_anew(self) -> None:
        """As after a start: nothing is known of what happened meanwhile. What was ordered is."""
        self._lives.clear()
        self._levels.clear()
        self._looks = 0

    def look(self, samples: Mapping[str, Sample], at: float) -> frozenset[str]:
        """Take note of who is there, and how. Returns who may be judged."""
        self._at = at
        self._note_lives(samples, at)
        self._looks += 1
        self._judged = {}
        self._live.clear()
        self._changing.clear()
        for component_id, life in self._lives.items():
            self._live[life.role] += life.live
            self._changing[life.role] += self._is_changing(life)
            sample = samples.get(component_id)
            if sample is not None and self._may_be_judged(sample, life):
                self._judged[component_id] = life.identity
        self._note_levels(samples)
        self._land(samples, at)
        self._condemned_at = {
            each: then
            for each, then in self._condemned_at.items()
            if 0 <= at - then < self._settings.grace_s
        }
        return frozenset(self._judged)

    def allow(self, flags: Flags) -> Allowed:
        """Which of the persisting to end now."""
        nearly = {each: self._lives[each].identity for each in flags.nearly if each in self._lives}
        self._together.look(nearly, flags.leaning, self._judged, self._at)
        condemned: list[Verdict] = []
        withheld: list[Verdict] = []
        for verdict in flags.persisting:
            why = self._why_not(verdict)
            if why is None:
                # Y2, Y6, Y7: from here on it counts as ordered.
                self._flight = _Flight(verdict.id, verdict.incarnation, self._at)
                self._condemned_at[verdict.id] = self._at
                if self._settings.mode == "shadow":
                    why = "shadow"  # Y7
            if why is None:
                condemned.append(verdict)
            else:
                withheld.append(msgspec.structs.replace(verdict, withheld=why))
        return Allowed(tuple(condemned), tuple(withheld))

    def _why_not(self, verdict: Verdict) -> Why | None:
        role = verdict.role
        left = self._live[role] - self._lives[verdict.id].live
        trouble = self._together.trouble(verdict.id)
        guards: dict[Why, bool] = {
            "unknown": role not in self._needed,  # Y8
            "warming": self._looks <= WARM_UP_LOOKS,  # Y5
            "node": trouble == "node",  # Y4
            "systemic": trouble == "systemic",  # Y4
            "change": self._changing[role] > max(1, self._live[role] // 10),  # Y5
            "step": self._is_step(role),  # Y5
            "hot": self._is_hot(verdict),  # Y9
            "few": left < self._needed.get(role, 1),  # Y3
            "cooling": verdict.id in self._condemned_at,  # Y6
            "flight": self._flight is not None,  # Y2
        }
        return next((why for why, holds in guards.items() if holds), None)

    def _is_hot(self, verdict: Verdict) -> bool:
        if any(each.anomaly.group == SERVICE or each.anomaly.decisive for each in verdict.evidence):
            return False
        if verdict.id not in self._work:
            return False
        usual, work = self._levels[verdict.role][-1], self._work[verdict.id]
        return work + STEP_FLOOR_PER_S > HOT_RATIO * (usual + STEP_FLOOR_PER_S)

    def _is_changing(self, life: "_Life") -> bool:
        """Who starts or drains for ever is not, after a while."""
        lasting_s = self._settings.grace_s if life.state == "starting" else 0.0
        return self._at - life.changed_at < max(lasting_s, self._settled_s)

    def _may_be_judged(self, sample: Sample, life: "_Life") -> bool:
        return (  # Y1
            life.live_looks >= KNOWN_LOOKS
            and max(self._at - life.seen_at, sample.age_s) >= self._settings.grace_s
            and life.role not in BUILT_IN_ROLES
        )

    def _note_lives(self, samples: Mapping[str, Sample], at: float) -> None:
        for component_id, sample in samples.items():
            life = self._lives.get(component_id)
            if life is None or life.incarnation != sample.incarnation:
                changed_at = at if self._looks or _is_passing(sample) else -math.inf
                life = self._lives[component_id] = _Life(sample, at, changed_at)
            life.note(sample, at)
        if len(self._lives) > len(samples):
            for component_id in self._lives.keys() - samples.keys():
                life = self._lives[component_id]
                life.vanish(at)
                if not 0 <= at - life.changed_at < self._settled_s:
                    del self._lives[component_id]

    def _note_levels(self, samples: Mapping[str, Sample]) -> None:
        """How busy each role's middle member is: no single one can make that step."""
        activity: dict[str, list[float]] = {}
        self._work = {each: _work_of(samples[each]) for each in self._judged}
        for component_id, work in self._work.items():
            activity.setdefault(samples[component_id].role, []).append(work)
        for role in self._levels.keys() - activity.keys():
            del self._levels[role]
        for role, values in activity.items():
            self._levels.setdefault(role, deque(maxlen=STEP_LOOKS)).append(median(values))

    def _is_step(self, role: str) -> bool:
        levels = [level + STEP_FLOOR_PER_S for level in self._levels.get(role, ())]
        apart = range(1, STEP_WITHIN_LOOKS + 1)
        return any(
            max(before, after) > STEP_RATIO * min(before, after)
            for looks in apart
            for before, after in zip(levels, levels[looks:], strict=False)
        )

    def _land(self, samples: Mapping[str, Sample], at: float) -> None:
        flight = self._flight
        if flight is None:
            return
        sample = samples.get(flight.id)
        is_back = (
            sample is not None
            and sample.incarnation > flight.incarnation
            and sample.state == "live"
        )
        if is_back or not 0 <= at - flight.at < FLIGHT_S_MAX:
            self._flight = None  # Y2


class _Flight(msgspec.Struct, frozen=True):
    """The life that is to be over, and since when."""

    id: str
    incarnation: int
    at: float


class _Life:
    """One life of one component, as seen from tick to tick."""

    __slots__ = (
        "changed_at",
        "identity",
        "incarnation",
        "live",
        "live_looks",
        "role",
        "seen_at",
        "state",
    )

    def __init__(self, sample: Sample, at: float, changed_at: float) -> None:
        self.incarnation = sample.incarnation
        self.role = sample.role
        self.identity = together.Life((sample.role, sample.node), sample.incarnation)
        self.seen_at = at
        """For the first time."""
        self.changed_at = changed_at
        self.live = sample.state == "live"
        self.live_looks = 0
        self.state: State = sample.state

    def note(self, sample: Sample, at: float) -> None:
        live = sample.state == "live"
        if live != self.live:
            self.live = live
            self.changed_at = at
        elif live and 0 <= sample.age_s < math.inf:
            # Not later than we saw it: its age may be told wrong.
            self.changed_at = max(self.changed_at, min(at - sample.age_s, self.seen_at))
        is_known = live or (sample.state == "suspect" and self.live_looks > 0)  # Y1
        self.live_looks = self.live_looks + 1 if is_known else 0
        self.state = sample.state

    def vanish(self, at: float) -> None:
        if self.live or self.state in ("starting", "draining"):
            self.changed_at = at
        self.live, self.state = False, "dead"
        self.live_looks = 0


def _work_of(sample: Sample) -> float:
    told = [sample.statistics[name] for name in ACTIVITIES if name in sample.statistics]
    return told[0] if told and 0 <= told[0] < math.inf else 0.0


def _is_passing(sample: Sample) -> bool:
    """At our first look: whether it may have changed just before. Of the dead we cannot know."""
    return sample.state != "live"
