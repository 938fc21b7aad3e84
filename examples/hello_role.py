"""A role to begin with: greeters, which ask each other for a greeting once a second.

A role is one function that takes a `Member`. This one is named in `cluster.toml`:

    [roles.greeter]
    main = "examples.hello_role:main"

and runs as often as the nodes there say. `make up` starts it; its log lines begin with its id.
"""

import logging
from itertools import count

import gevent

from bus.errors import RequestTimeoutError
from bus.member import Member
from bus.messages import Message
from bus.replies import Reply
from bus.server import Call

ROLE = "greeter"
PAUSE_S = 1.0
TIMEOUT_S = 0.5

log = logging.getLogger(ROLE)


class Greet(Message, frozen=True, tag="greeter.greet"):
    """A request is an order. Its tag names it on the wire, so put your role in front."""

    name: str


class Greeted(Message, frozen=True, tag="greeter.greeted"):
    """An answer is a fact."""

    words: str


def main(member: Member) -> None:
    # Each of these lines declares a statistic. Both ride in our beacon, and show on /metrics.
    greetings = member.statistics.rate("greetings", "Greetings given")
    member.statistics.size("friends", "Other greeters now live", lambda: len(member.peers(ROLE)))

    def greet(call: Call[Greet]) -> Greeted:
        # A handler may wait, or even raise: that harms its own request and no other.
        greetings.add()
        return Greeted(f"hello {call.message.name}, this is {member.identity.id}")

    member.server.on(Greet, greet)
    member.live()  # Only now do others see us as live, and send us requests.
    asking = gevent.spawn(ask_around, member)
    member.wait()  # Until somebody ends this process in good order.
    asking.kill()


def ask_around(member: Member) -> None:
    """Ask one other greeter a second, each in its turn."""
    for turn in count():
        gevent.sleep(PAUSE_S)
        friends = member.peers(ROLE)  # Who is there is known from beacons; nobody is asked.
        if not friends:
            log.info("nobody is here but me")
            continue
        friend = friends[turn % len(friends)]
        question = Greet(member.identity.id)
        try:
            answer = member.client.ask(
                friend.endpoint, question, expect=Greeted, timeout_s=TIMEOUT_S
            )
        except RequestTimeoutError as error:
            log.warning("%s", error)  # It may have died just now. Its beacons will tell us.
            continue
        # A refusal is no exception: it is one of the two values an answer can be.
        words = answer.message.words if isinstance(answer, Reply) else f"refused: {answer.reason}"
        log.info("%s: %s", friend.id, words)
