"""A forked child is told at once that its parent's sockets are not its own; the parent goes on.

Method: a real fork; the child tells by its exit code what it met.
"""

import os
import signal
from collections.abc import Callable

import pytest
from gevent.os import fork_and_watch, waitpid

from bus.client import Client, Reply
from bus.errors import LinkError
from bus.identity import Identity
from bus.pump import Pump
from tests.sockets.pair import Echo, pair
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

MET_LINK_ERROR = 17
MET_ANOTHER_ERROR = 18


def exit_code_of(child: Callable[[], int], timeout_s: float = 3) -> int:
    """Of a fork that runs `child`, while our own event loop goes on."""
    pid = fork_and_watch()
    if pid == 0:
        code = MET_ANOTHER_ERROR
        try:
            code = child()
        except LinkError:
            code = MET_LINK_ERROR
        finally:
            os._exit(code)
    waited: list[int] = []

    def ended() -> bool:
        reaped, status = waitpid(pid, os.WNOHANG)  # gevent's, as its loop reaps.
        if reaped:
            waited.append(os.waitstatus_to_exitcode(status))
        return bool(reaped)

    try:
        until(ended, timeout_s, "the end of the child")
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        until(ended, timeout_s, "the end of the killed child")
        raise
    return waited[0]


def ask(client: Client, endpoint: str, number: int) -> int:
    reply = client.ask(endpoint, Echo(number), expect=Echo, timeout_s=5)
    return reply.message.number if isinstance(reply, Reply) else -1


def test_child_may_not_ask_with_the_client_of_its_parent_which_goes_on() -> None:
    with pair() as made:
        endpoint = made.server.endpoint
        assert ask(made.client, endpoint, 1) == 1
        assert exit_code_of(lambda: ask(made.client, endpoint, 2)) == MET_LINK_ERROR
        assert [ask(made.client, endpoint, number) for number in range(3, 20)] == list(range(3, 20))
        assert made.server.answered == 18


def test_child_may_not_fan_out_with_the_client_of_its_parent() -> None:
    with pair() as made:
        endpoint = made.server.endpoint

        def fan_out() -> int:
            made.client.ask_many([endpoint], Echo(1), expect=Echo, need=1, timeout_s=5)
            return 0

        assert exit_code_of(fan_out) == MET_LINK_ERROR


def test_child_may_close_what_it_inherited_and_ask_with_a_client_of_its_own() -> None:
    with pair() as made:
        endpoint = made.server.endpoint
        assert ask(made.client, endpoint, 1) == 1

        def child() -> int:
            made.client_pump.close()
            own = Client(Pump(), Identity("client-2", "client", "n1", 1))
            return ask(own, endpoint, 2)

        assert exit_code_of(child) == 2
        assert ask(made.client, endpoint, 3) == 3
