"""A cluster for the benchmarks of self-healing, in a process of its own: hurt, and watched.

It hurts processes of that cluster as it is told, notes all that is said of them, and looks through
the eyes of every node agent. It never starts anything itself, but for `Cure`: who is brought back,
the cluster brings back.
"""

import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gevent
import msgspec

from bus.agents import agents, ask, order
from bus.clock import now
from bus.config_shape import NODE
from bus.errors import BusError
from bus.headers import News as NewsHeader
from bus.member import EVENT_TOPIC, Member
from bus.messages import Exited, Happening, Refused
from bus.peers import Peer
from bus.process_orders import RestartProcess
from bus.replies import Reply
from loadtest.child import answer_all, tell
from loadtest.greenlets import read_line
from loadtest.heal_requests import (
    Awaited,
    AwaitNext,
    AwaitWhole,
    Cure,
    Injure,
    Injured,
    Injury,
    KeepRecords,
    Notice,
    Tell,
    Told,
    ToTown,
    TownAsked,
    TownUp,
    Verb,
)
from loadtest.sightings import Sightings
from roles.chaos import Chaos
from roles.chaos_injected import Injected
from roles.messages import ClusterDescribed, ClusterRows, DescribeCluster, decode_rows
from roles.testing import LocalCluster

LOOK_S = 0.1
ASK_S_MAX = 5.0
EYES_S_MAX = 1.0


class Town:
    def __init__(self, local: LocalCluster, chaos: Chaos) -> None:
        self._cluster = local.cluster
        self._chaos = chaos
        self._member: Member = local.cluster.member()
        self._planned = local.cluster.config.components()
        self._sightings = Sightings(self._member, "town")
        self._notices: list[Notice] = []
        self._member.on_exit(self._heard_exit)
        self._member.subscribe(EVENT_TOPIC, Happening, self._heard_event)

    def obey(self, line: ToTown) -> object:
        match line.order:
            case Injure() as injure:
                return self._injure(injure)
            case Cure(id=component_id):
                return self._cure(component_id)
            case AwaitNext() as asked:
                return self._await_next(asked)
            case AwaitWhole(timeout_s=timeout_s):
                return self._await_whole(timeout_s)
            case Tell():
                return self._told()
            case KeepRecords(directory=directory):
                return self._keep_records(Path(directory))

    # What is done to it.

    def _injure(self, injure: Injure) -> Injured:
        lives = self._suffering(injure)
        at, trouble, detail = now(), "", ""
        try:
            detail = self._made(injure).detail
        except BusError as error:
            trouble = str(error)
        return Injured(
            [
                Injury(injure.verb, *life, at, trouble or detail, refused=bool(trouble))
                for life in lives
            ]
        )

    def _made(self, injure: Injure) -> Injected:
        chaos, amount, for_s = self._chaos, injure.amount, injure.for_s
        verbs: dict[Verb, Callable[..., Injected]] = {
            "crash": chaos.crash,
            "hang": partial(chaos.hang, for_s=for_s),
            "flip": partial(chaos.flip_value, count=int(amount)),
            "image": chaos.flip_image,
            "drop": partial(chaos.drop, for_s=for_s, share=amount),
            "slow": partial(chaos.slow, for_s=for_s, seconds=amount),
            "leak": partial(chaos.leak, for_s=for_s, bytes_per_s=amount),
            "clock": partial(chaos.clock, for_s=for_s, ahead_s=amount),
            "disk": partial(chaos.disk, for_s=for_s),
            "node": partial(chaos.node, for_s=for_s),
        }
        return verbs[injure.verb](*injure.ids)

    def _suffering(self, injure: Injure) -> list[tuple[str, int]]:
        """The lives that may end because of it: all of a node, with its agent."""
        peers = {each.id: each for each in self._member.liveness.peers()}
        agents_hurt = [each for each in injure.ids if each in peers and peers[each].role == NODE]
        nodes = {peers[each].node for each in agents_hurt}
        nodes |= set(injure.ids) & self._cluster.config.nodes.keys()
        planned = [each.id for each in self._planned]
        named = [each for each in planned if each in injure.ids]
        others = [each for each in planned if each in peers and peers[each].node in nodes]
        return [(each, self._incarnation(each)) for each in dict.fromkeys([*named, *others])]

    def _incarnation(self, component_id: str) -> int:
        peer = self._member.liveness.peer(component_id)
        return 0 if peer is None else peer.incarnation

    def _cure(self, component_id: str) -> Injured:
        incarnation = self._incarnation(component_id)
        node = next(each.node for each in self._planned if each.id == component_id)
        message = RestartProcess(component_id, incarnation, "the benchmark is done with it")
        at = now()
        answer = order(self._member, node, message, ASK_S_MAX)
        detail = answer.detail if isinstance(answer, Refused) else ""
        return Injured(
            [Injury("cure", component_id, incarnation, at, detail, refused=bool(detail))]
        )

    # How it looks.

    def _await_next(self, asked: AwaitNext) -> Awaited:
        return self._await(
            lambda rows: [] if rows.get(asked.id, 0) > asked.incarnation else [asked.id],
            asked.timeout_s,
        )

    def _await_whole(self, timeout_s: float) -> Awaited:
        planned = [each.id for each in self._planned]
        return self._await(lambda rows: [each for each in planned if each not in rows], timeout_s)

    def _await(self, missing: Callable[[dict[str, int]], list[str]], timeout_s: float) -> Awaited:
        """Until nobody is missing in the eyes of every agent that is planned, and in ours."""
        deadline = now() + timeout_s
        while True:
            mine = {each.id: each.incarnation for each in self._member.liveness.live()}
            lacking = set(missing(mine))
            looking = agents(self._member)
            views = [gevent.spawn(self._view, agent) for agent in looking]
            for view in views:
                lacking.update(missing(view.get()))
            lacking.update({e.id for e in self._planned if e.role == NODE} - mine.keys())
            if not lacking or now() >= deadline:
                return Awaited(sorted(lacking))
            gevent.sleep(LOOK_S)

    def _view(self, agent: Peer) -> dict[str, int]:
        """Who is live in the eyes of that agent; nobody, if it does not answer."""
        answer = ask(self._member, agent, DescribeCluster(), ClusterDescribed, EYES_S_MAX)
        if not isinstance(answer, Reply):
            return {}
        rows = decode_rows(answer.body, ClusterRows)
        seen = {
            row.id: incarnation
            for row, incarnation in zip(rows.components, rows.incarnations, strict=True)
            if row.state == "live"
        }
        for component_id, incarnation in seen.items():
            self._sightings.note(agent.id, component_id, incarnation, "live")
        return seen

    def _told(self) -> Told:
        notices, self._notices = self._notices, []
        rss_bytes = {
            peer.id: int(peer.statistics.get("rss_bytes", 0))
            for peer in self._member.liveness.live()
            if not peer.linked
        }
        return Told(notices, self._sightings.taken(), rss_bytes)

    def _keep_records(self, directory: Path) -> Awaited:
        directory.mkdir(parents=True, exist_ok=True)
        for path in Path(self._cluster.config.run_directory).glob("pinpoint*"):
            if path.is_file():
                shutil.copy(path, directory)
        return Awaited([])

    def _heard_exit(self, header: NewsHeader, exited: Exited) -> None:
        kind = "exited" if not exited.asked else "ended"
        notice = Notice(now(), kind, exited.id, exited.incarnation, header.sender, exited.reason)
        self._notices.append(notice)

    def _heard_event(self, header: NewsHeader, event: Happening) -> None:
        if event.kind != "exited":  # That is told by `_heard_exit`, with the life.
            notice = Notice(now(), event.kind, event.subject, 0, header.sender, event.reason)
            self._notices.append(notice)


def main(asked_text: str) -> None:
    """Be up until the benchmark hangs up."""
    asked = msgspec.json.decode(asked_text, type=TownAsked)
    counts: dict[str, Any] = dict(asked.counts)
    local = LocalCluster(nodes=asked.nodes, preset=asked.preset, settings=asked.settings, **counts)
    with local, Chaos(local.cluster, seed=asked.seed) as chaos:
        town = Town(local, chaos)
        planned = local.cluster.config.components()
        tell(
            TownUp(
                local.cluster.config.source,
                {each.id: each.role for each in planned},
                {each.id: each.node for each in planned},
            )
        )
        answer_all(ToTown, town.obey, read_line)


if __name__ == "__main__":
    main(*sys.argv[1:])
