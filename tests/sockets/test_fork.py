"""A forked child is told at once that its parent's sockets are not its own; the parent goes on.

Method: a real fork; the child writes down what it met.
"""

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

import gevent
import pytest

from bus.client import Client
from bus.errors import LinkError
from bus.identity import Identity
from bus.pump import Pump
from bus.replies import Reply
from tests.sockets.pair import Echo, pair
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

MET_LINK_ERROR = 17
MET_ANOTHER_ERROR = 18


def what_met(child: Callable[[], int], timeout_s: float = 5) -> int:
    """What a fork that runs `child` wrote before it ended, while our own event loop goes on.

    By a pipe and not by its exit code: who reaps children here depends on what ran before.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        met = MET_ANOTHER_ERROR
        try:
            met = child()
        except LinkError:
            met = MET_LINK_ERROR
        finally:
            os.write(theirs, bytes([met]))
            os._exit(0)
    os.close(theirs)
    try:
        until(lambda: select.select([ours], [], [], 0)[0], timeout_s, "word from the child")
        word = os.read(ours, 1)
    finally:
        os.close(ours)
        with suppress(ChildProcessError, ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert word, "the child ended without a word"
    return word[0]


def ask(client: Client, endpoint: str, number: int) -> int:
    reply = client.ask(endpoint, Echo(number), expect=Echo, timeout_s=5)
    return reply.message.number if isinstance(reply, Reply) else -1


def test_child_may_not_ask_with_the_client_of_its_parent_which_goes_on() -> None:
    with pair() as made:
        endpoint = made.server.endpoint
        assert ask(made.client, endpoint, 1) == 1
        assert what_met(lambda: ask(made.client, endpoint, 2)) == MET_LINK_ERROR
        assert [ask(made.client, endpoint, number) for number in range(3, 20)] == list(range(3, 20))
        assert made.server.answered == 18


def test_child_may_not_fan_out_with_the_client_of_its_parent() -> None:
    with pair() as made:
        endpoint = made.server.endpoint

        def fan_out() -> int:
            made.client.ask_many([endpoint], Echo(1), expect=Echo, need=1, timeout_s=5)
            return 0

        assert what_met(fan_out) == MET_LINK_ERROR


def test_child_may_close_what_it_inherited_and_ask_with_a_client_of_its_own() -> None:
    with pair() as made:
        endpoint = made.server.endpoint
        assert ask(made.client, endpoint, 1) == 1

        def child() -> int:
            made.client_pump.close()
            own = Client(Pump(), Identity("client-2", "client", "n1", 1))
            return ask(own, endpoint, 2)

        assert what_met(child) == 2
        assert ask(made.client, endpoint, 3) == 3


def test_child_is_told_although_a_thread_of_its_parent_has_ended_with_its_loop() -> None:
    closed = []

    def live_and_end() -> None:
        pump = Pump()
        pump.close()
        closed.append(pump)
        gevent.get_hub().destroy(destroy_loop=True)

    thread = Thread(target=live_and_end)
    thread.start()
    thread.join(timeout=5)
    assert closed
    with pair() as made:
        assert what_met(lambda: ask(made.client, made.server.endpoint, 1)) == MET_LINK_ERROR
