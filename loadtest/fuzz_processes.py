"""The server that bad input is thrown at, and the good clients that must not notice.

The server is an ordinary one; it can also tell what it counted. The good clients ask it, a few
at a time, all the while, and tell how many answers were missing, refused or wrong.
"""

import sys

import gevent
import msgspec
from gevent.event import Event

from bus.client import Client
from bus.clock import now
from bus.errors import RequestTimeoutError
from bus.identity import Identity
from bus.messages import Message
from bus.pump import Pump
from bus.replies import Reply
from bus.server import Call, Server
from loadtest.child import answer_all, end_with_the_benchmark, tell
from loadtest.echo_ours import Echo, echo
from loadtest.greenlets import read_line

CLIENTS = 4
ASK_S_MAX = 5.0  # Generous: what must hold is that an answer comes, not how fast.
PAUSE_S = 0.002
BODY = bytes(range(256))


class AskCounters(Message, frozen=True, tag="fuzz.ask"):
    """To the server: what have you counted?"""


class Counters(Message, frozen=True, tag="fuzz.counters"):
    """Its answer: the pump's and the server's own integers, by name."""

    counters: dict[str, int]


class Good(msgspec.Struct):
    """How the good clients have fared so far."""

    answered: int = 0
    failed: int = 0
    slowest_s: float = 0.0
    failures: list[str] = []
    """The first few, for people."""

    def fail(self, why: str) -> None:
        self.failed += 1
        if len(self.failures) < 10:
            self.failures.append(why)


TRAFFIC = [
    "crowded",
    "denied",
    "failed",
    "frames_in",
    "frames_out",
    "malformed",
    "overflowed",
    "records_in",
    "records_out",
    "rescued",
    "unreachable",
]


def serve() -> None:
    end_with_the_benchmark()
    pump = Pump()
    server = Server(pump, Identity("echo-1", "echo", "n1", 1), "tcp://127.0.0.1:*")
    traffic = pump.traffic

    def count(_call: Call[AskCounters]) -> Counters:
        counters = {name: int(getattr(traffic, name)) for name in TRAFFIC}
        for name in ("answered", "refused", "expired", "failed"):
            counters[name] = int(getattr(server, name))
        return Counters(counters)

    server.on(Echo, echo)
    server.on(AskCounters, count)
    tell({"endpoint": server.endpoint})
    Event().wait()


def be_good(endpoint: str) -> None:
    client = Client(Pump(), Identity("good-1", "good", "n1", 1))
    good = Good()
    greenlets = [gevent.spawn(ask_for_ever, client, endpoint, good) for _ in range(CLIENTS)]
    tell({})
    answer_all(dict[str, str], lambda _: good, read_line)
    gevent.killall(greenlets)


def ask_for_ever(client: Client, endpoint: str, good: Good) -> None:
    while True:
        asked_at = now()
        try:
            answer = client.ask(endpoint, Echo(), expect=Echo, timeout_s=ASK_S_MAX, body=BODY)
        except RequestTimeoutError as error:
            good.fail(str(error))
        else:
            if isinstance(answer, Reply) and answer.body == BODY:
                good.answered += 1
            else:
                good.fail(f"{answer}")
        good.slowest_s = max(good.slowest_s, now() - asked_at)
        gevent.sleep(PAUSE_S)


def main(part: str, *arguments: str) -> None:
    (serve if part == "server" else be_good)(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
