"""Pinpoint: finds the component that behaves unlike its peers, and has it restarted.

Once a beacon period it makes a tick of all it knows, has it judged (`pinpoint.judge`), records it,
and looks whether a brick more is wanted (`pinpoint.growth`). It decides nothing itself. Of several
Pinpoints all judge, and the first live one acts: a second is there if the first dies. Nothing is
kept over a restart but the recording, so it may be restarted at any time. Like others it also
watches who is missing (`bus.peer_watch`), and is watched by them.

What always holds:
  I1  A tick waits for nobody: orders are given beside it, each within `ORDER_S_MAX`.
  I2  Nothing is ordered by a Pinpoint that sees a live one before it, nor but in the mode `act`.
  I3  Whatever is ordered is said to people first, with the reason.
"""

from pathlib import Path

import gevent
import msgspec

from bus.agents import order
from bus.clock import now
from bus.config_shape import BRICK, PINPOINT, Config, PinpointConfig
from bus.errors import BusError
from bus.headers import News
from bus.member import Member
from bus.messages import Drain, PeersSeen, Pong, Refused
from bus.peer_watch import PeerWatch
from bus.process_orders import ProcessDescribed, RestartProcess, StartProcess
from bus.replies import Reply
from pinpoint.catalogue import ended_of
from pinpoint.gathering import Hearsay, gather, needed_of
from pinpoint.growth import SHORT, DrainSpare, Grown, Growth, StartSpare
from pinpoint.judge import Judge, Judgement
from pinpoint.record import Recorder
from pinpoint.recording import Header
from pinpoint.verdict import WHY, Verdict, Why

SEEN_TOPIC = "seen"
PERIOD_S_MIN = 0.2
ORDER_S_MAX = 8.0
REPEAT_S = 60.0  # How often people are told the same.
REPEATS_MAX = 1000
OF_INTEREST: frozenset[Why] = frozenset(
    {"change", "few", "hot", "node", "shadow", "step", "systemic", "unknown"}
)
"""Reasons to do nothing that people are told; the others only put something off."""


def main(member: Member) -> None:
    PinpointShell(member).run()


class PinpointShell:
    def __init__(self, member: Member) -> None:
        self._member = member
        config = member.config
        self._settings = settings = settings_of(config)
        self._period_s = max(config.beacons.period_s, PERIOD_S_MIN)
        needed = dict.fromkeys(ended_of(config.roles), 1) | needed_of(config.sessions)
        self._judge = Judge(settings, needed, self._period_s)
        nodes = {name: node.overflow for name, node in config.nodes.items()}
        self._growth = Growth(
            settings, config.components(), nodes, config.sessions.memory_bytes_max
        )
        me = member.identity
        self._recorder = Recorder(
            Path(config.run_directory, f"{me.id}.ticks.jsonl"),
            Header(
                by=me.id,
                incarnation=me.incarnation,
                part=0,
                period_s=self._period_s,
                needed=needed,
                settings=settings,
            ),
            settings.record_bytes_max,
        )
        self._hearsay = Hearsay()
        self._told_at: dict[tuple[str, str], float] = {}
        self._recorder_trouble = ""
        self._declare()
        self._peer_watch = PeerWatch(member)
        member.subscribe(SEEN_TOPIC, PeersSeen, self._heard_seen)

    def run(self) -> None:
        """Serve until this process is told to end."""
        loop = gevent.spawn(self._loop)
        # One that no longer looks must not look as if it did: its peers start it again.
        loop.link_exception(lambda ended: self._member.fail(ended.exception or SystemExit(1)))
        try:
            self._member.live()
            self._peer_watch.start()
            self._member.wait()
        finally:
            self._peer_watch.close()
            loop.kill()
            self._recorder.close()

    def _loop(self) -> None:
        due_at = now()
        while True:
            due_at = max(due_at + self._period_s, now())
            gevent.sleep(max(due_at - now(), 0.0))
            self._tick()

    def _tick(self) -> None:
        member, at = self._member, now()
        blind = member.liveness.blind
        tick = gather(member.liveness.peers(), self._hearsay.take(), at, blind=blind)
        judgement = self._judge.tick(tick)
        grown = self._growth.tick(tick, restarting=self._judge.in_flight)
        self._recorder.write(tick)
        self._count(judgement)
        if self._is_first():  # I2
            self._perform(judgement, grown)
        self._tick_s.set(now() - at)

    def _heard_seen(self, header: News, told: PeersSeen) -> None:
        self._hearsay.heard(header.sender, told)

    def _is_first(self) -> bool:
        mine = _number(self._member.identity.id)
        others = (_number(peer.id) for peer in self._member.peers(PINPOINT))
        return not any(number < mine for number in others if number)

    # What is to be done about it (I1, I3).

    def _perform(self, judgement: Judgement, grown: Grown) -> None:
        for verdict in judgement.condemned:
            self._member.event("condemned", verdict.id, verdict.sentence)
            gevent.spawn(self._restart, verdict)
        for verdict in judgement.would:
            if verdict.withheld in OF_INTEREST:
                reason = f"{WHY[verdict.withheld]}; {verdict.sentence}"
                self._say("withheld", verdict.id, verdict.withheld, reason)
        if grown.short is not None:
            reason = f"stubs refuse, but {SHORT[grown.short]}: no spare is started"
            self._say("withheld", BRICK, grown.short, reason)
        step = grown.step
        if step is None:
            return
        if self._settings.mode != "act":
            reason = f"{WHY['shadow']}; {type(step).__name__}: {step.reason}"
            self._say("withheld", step.id, "shadow", reason)
            return
        match step:
            case StartSpare():
                self._member.event("added", step.id, f"{step.reason}; asked for on {step.node}")
                gevent.spawn(self._start, step)
            case DrainSpare():
                self._member.event("draining", step.id, step.reason)
                gevent.spawn(self._drain, step)

    def _restart(self, verdict: Verdict) -> None:
        wanted = RestartProcess(
            verdict.id, verdict.incarnation, f"{self._member.identity.id}: {verdict.sentence}"
        )
        answer = self._order(verdict.node, wanted)
        if not isinstance(answer, Refused):
            return
        if answer.reason == "failed":
            self._say("alert", verdict.id, "offline", f"it is not restarted: {answer.detail}")
        else:
            reason = f"the agent of {verdict.node} did not restart it: {answer.detail}"
            self._say("withheld", verdict.id, answer.reason, reason)

    def _start(self, step: StartSpare) -> None:
        answer = self._order(step.node, StartProcess(step.id))
        if isinstance(answer, Refused):
            self._say("withheld", step.id, answer.reason, f"it was not started: {answer.detail}")

    def _drain(self, step: DrainSpare) -> None:
        peer = self._member.liveness.peer(step.id)
        if peer is None or not peer.endpoint:
            return
        try:
            reply = self._member.client.ask(
                peer.endpoint, Drain(), expect=Pong, timeout_s=ORDER_S_MAX
            )
        except BusError as error:
            self._say("withheld", step.id, "unreachable", f"it did not hear of it: {error}")
            return
        if not isinstance(reply, Reply):
            self._say("withheld", step.id, reply.reason, f"it does not drain: {reply.detail}")

    def _order(
        self, node: str, wanted: RestartProcess | StartProcess
    ) -> ProcessDescribed | Refused:
        try:
            return order(self._member, node, wanted, ORDER_S_MAX)
        except BusError as error:
            return Refused("unreachable", str(error))

    # What people are told.

    def _say(self, kind: str, subject: str, why: str, reason: str) -> None:
        """Not more than once in `REPEAT_S`."""
        said_at = now()
        if said_at - self._told_at.get((subject, why), -REPEAT_S) < REPEAT_S:
            return
        if len(self._told_at) >= REPEATS_MAX:
            self._told_at.clear()
        self._told_at[subject, why] = said_at
        self._member.event(kind, subject, reason)

    # Statistics.

    def _declare(self) -> None:
        statistics = self._member.statistics
        self._judged = statistics.size("judged", "Components judged at the last look")
        self._flagged = statistics.size("flagged", "Of those, how many were odd in enough ways")
        self._tick_s = statistics.size("tick_s", "How long the last look took")
        self._condemned = statistics.counter("condemned", "Verdicts to be acted upon")
        self._withheld = {
            why: statistics.counter(f"withheld_{why}", f"Nothing was done: {words}")
            for why, words in WHY.items()
        }
        self._unsaid = statistics.counter("unsaid", "Statistics that could not be judged")
        self._lost = statistics.counter("ticks_lost", "Looks that could not be recorded")
        self._dropped = statistics.counter("sights_dropped", "Rows told: too many, or unsound")

    def _count(self, judgement: Judgement) -> None:
        self._judged.set(judgement.judged)
        self._flagged.set(judgement.flagged)
        self._condemned.add(len(judgement.condemned))
        self._unsaid.add(sum(judgement.unsaid.values()))
        for why, times in judgement.withheld.items():
            if why in self._withheld:
                self._withheld[why].add(times)
        self._lost.value = self._recorder.lost
        self._dropped.value = self._hearsay.dropped
        trouble = self._recorder.trouble
        if trouble and trouble != self._recorder_trouble:
            self._member.event("degraded", self._member.identity.id, f"recording: {trouble}")
        self._recorder_trouble = trouble


def settings_of(config: Config) -> PinpointConfig:
    """Where nothing heals, nothing is ended for its good either."""
    if config.heal or config.pinpoint.mode != "act":
        return config.pinpoint
    return msgspec.structs.replace(config.pinpoint, mode="shadow")


def _number(component_id: str) -> int:
    """0 for an id that is none."""
    number = component_id.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
