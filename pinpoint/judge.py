"""Judge the living, tick by tick: anomalies, then verdicts, then whether to act. Decides only.

`pinpoint.anomalies` says what is odd about whom, `pinpoint.verdict` who is odd for long enough in
enough ways, and `pinpoint.policy` whether that is to be acted upon. Several Pinpoints judge the
same cluster alike; which of them acts is up to `pinpoint.process`.

What always holds:
  J1  The same ticks give the same judgements: nothing else is looked at.
  J2  No tick raises, whatever its numbers. At most `COMPONENTS_MAX` of it are looked at.
  J3  What lies before a gap in the ticks, or a moment of blindness, counts for nothing after it.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec

from bus.config_shape import PinpointConfig
from pinpoint.anomalies import Anomalies
from pinpoint.policy import Policy
from pinpoint.samples import Sample, Tick
from pinpoint.verdict import Verdict, Verdicts, Why

COMPONENTS_MAX = 4096
GAP_PERIODS = 5.0  # Longer between two ticks, and we were not watching.


class Judgement(msgspec.Struct, frozen=True):
    """What one tick came to."""

    condemned: list[Verdict] = []
    """To be ended now: at most one."""
    would: list[Verdict] = []
    """These are held to be sick as well, but nothing is done; each says why."""
    withheld: Counter[Why] = msgspec.field(default_factory=Counter)
    """How often nothing was done, by reason."""
    judged: int = 0
    flagged: int = 0
    unsaid: Counter[str] = msgspec.field(default_factory=Counter)
    """What the detectors could not say, and why."""


class Judge:
    def __init__(
        self, settings: PinpointConfig, needed: Mapping[str, int], period_s: float = 1.0
    ) -> None:
        """`needed`: of each role that may be ended, how many must stay live. `period_s`: from tick
        to tick."""
        self._settings = settings
        self._period_s = period_s
        self._anomalies = Anomalies(period_s)
        self._verdicts = Verdicts(
            anomalies=settings.anomalies,
            persist=settings.persist,
            window=settings.window,
            period_s=period_s,
        )
        self._policy = Policy(settings, needed, period_s)
        self._at: float | None = None

    @property
    def in_flight(self) -> bool:
        """Whether a restart that was ordered here is on its way."""
        return self._policy.in_flight

    def tick(self, tick: Tick) -> Judgement:
        """J1: of the tick alone, and those before it."""
        if self._settings.mode == "off":
            return Judgement()
        if self._at is not None and not 0 <= tick.at - self._at < GAP_PERIODS * self._period_s:
            self._begin_anew()  # J3
        self._at = tick.at
        if tick.blind:
            self._begin_anew()  # J3
            return Judgement(withheld=Counter[Why](["blind"]))
        withheld: Counter[Why] = Counter()
        samples = self._samples(tick, withheld)
        if len(samples) < len(tick.samples):
            tick = msgspec.structs.replace(tick, samples=list(samples.values()))
        eligible = self._policy.look(samples, tick.at)
        looked = self._anomalies.look(tick, eligible)
        found = {each: odd for each, odd in looked.anomalies.items() if each in eligible}
        flags = self._verdicts.look(found, samples)
        allowed = self._policy.allow(flags)
        withheld.update(each.withheld for each in allowed.withheld if each.withheld)
        return Judgement(
            condemned=list(allowed.condemned),
            would=list(allowed.withheld),
            withheld=withheld,
            judged=len(eligible),
            flagged=len(flags.flagged),
            unsaid=looked.unsaid,
        )

    def _begin_anew(self) -> None:
        self._verdicts.forget()
        self._policy.begin_anew()
        self._anomalies = Anomalies(self._period_s)

    def _samples(self, tick: Tick, withheld: Counter[Why]) -> dict[str, Sample]:
        """By id; J2."""
        crowd = len(tick.samples) - COMPONENTS_MAX
        if crowd > 0:
            withheld["crowded"] += crowd
        return {sample.id: sample for sample in tick.samples[:COMPONENTS_MAX]}
