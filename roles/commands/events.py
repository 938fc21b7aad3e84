"""Show what happened in the cluster, with the reasons, and follow it as it goes on."""

import argparse
import sys
import time

import msgspec
from gevent.queue import Queue

from bus.clock import now, wall_s
from bus.config import find, load
from bus.errors import NotReady, RemoteProtocolError
from bus.events import Event, EventRing, line, merge
from bus.headers import News as NewsHeader
from bus.messages import Happening
from bus.peers import Peer
from bus.replies import Reply
from roles.messages import (
    EventRows,
    EventsDescribed,
    PastEvent,
    RecentEvents,
    decode_rows,
)
from roles.observer import Observer

ANSWER_S_MAX = 2.0
COUNT = 20
COUNT_MAX = 1000
QUEUE_MAX = 10_000  # Events not printed yet: a reader slower than that loses the oldest.


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    config = load(find(options.config))
    show = _show_json if options.json else _show_line
    shown = EventRing(QUEUE_MAX)
    arrived: Queue[Event] = Queue()

    def heard(header: NewsHeader, happening: Happening) -> None:
        if arrived.qsize() >= QUEUE_MAX:
            arrived.get_nowait()
        arrived.put_nowait(_event(header, happening))

    with Observer(config) as observer:
        observer.on_event(heard)  # First: nothing may fall between the past and the present.
        agents = observer.wait_for_agents(len(config.nodes))
        past = _remembered(observer, agents, options.count)
        if past is None and not options.follow:
            raise NotReady("no node agent told what it remembers; --follow shows what comes")
        for event in (past or [])[-options.count :] if options.count else []:
            shown.add(event)
            show(event)
        while options.follow:
            sys.stdout.flush()
            event = arrived.get()
            if shown.add(event):
                show(event)
    return 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="softstate events", description=__doc__)
    parser.add_argument("--config", metavar="FILE", help="the cluster to look at")
    parser.add_argument("--json", action="store_true", help="for programs: an object a line")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    parser.add_argument(
        "-n",
        "--count",
        type=_count,
        default=COUNT,
        help=f"of the past, this many (default {COUNT})",
    )
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    number = int(text)
    if not 0 <= number <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"from 0 to {COUNT_MAX}, not {text}")
    return number


def _remembered(observer: Observer, agents: list[Peer], count: int) -> list[Event] | None:
    """What the agents remember together, oldest first; None if none of them told."""
    endpoints = [agent.endpoint for agent in agents]
    gathered = observer.client.ask_many(
        endpoints,
        RecentEvents(count),
        expect=EventsDescribed,
        need=len(endpoints),
        timeout_s=ANSWER_S_MAX,
    )
    asked_at = now()
    told = [_rows(reply) for reply in gathered.answers.values()]
    if not told:
        return None
    return merge(_past(row, asked_at) for rows in told for row in rows)


def _rows(reply: Reply[EventsDescribed]) -> list[PastEvent]:
    try:
        return decode_rows(reply.body, EventRows).events
    except RemoteProtocolError as error:
        print(f"softstate: an agent made no sense: {error}", file=sys.stderr)
        return []


def _event(header: NewsHeader, happening: Happening) -> Event:
    return Event(
        kind=happening.kind,
        subject=happening.subject,
        reason=happening.reason,
        by=header.sender,
        incarnation=header.incarnation,
        sequence=header.sequence,
        heard_at=now(),
    )


def _past(row: PastEvent, asked_at: float) -> Event:
    return Event(
        kind=row.kind,
        subject=row.subject,
        reason=row.reason,
        by=row.by,
        incarnation=row.incarnation,
        sequence=row.sequence,
        heard_at=asked_at - row.age_s,
    )


def _show_line(event: Event) -> None:
    told_s = wall_s() - (now() - event.heard_at)
    today = time.localtime(told_s)[:3] == time.localtime(wall_s())[:3]
    when = time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", time.localtime(told_s))
    print(line(event, when))


def _show_json(event: Event) -> None:
    told_s = wall_s() - (now() - event.heard_at)
    whole, milliseconds = divmod(round(told_s * 1000), 1000)
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{milliseconds:03}Z"
    told = {
        "at": when,
        "kind": event.kind,
        "subject": event.subject,
        "reason": event.reason,
        "by": event.by,
        "incarnation": event.incarnation,
        "sequence": event.sequence,
    }
    print(msgspec.json.encode(told).decode())
