"""The bus works in a process that gevent has monkey-patched, and in one that it has not.

Method: a process of each sort asks itself a thousand times over sockets, from several greenlets.
"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PATCH = "from gevent import monkey\nmonkey.patch_all()\n"
ASK = """
import socket

import gevent
from gevent import monkey

from bus.client import Client
from bus.replies import Reply
from bus.identity import Identity
from bus.pump import Pump
from bus.server import Server
from tests.sockets.pair import Echo, echo

server = Server(Pump(), Identity("server-1", "server", "n1", 1), "tcp://127.0.0.1:*")
server.on(Echo, echo)
client = Client(Pump(), Identity("client-1", "client", "n1", 1))
answered = set()

def ask(first):
    for number in range(first, 1000, 10):
        body = bytes(number * 50)
        reply = client.ask(server.endpoint, Echo(number), expect=Echo, timeout_s=5, body=body)
        assert isinstance(reply, Reply) and reply.body == body, reply
        answered.add(reply.message.number)

gevent.joinall([gevent.spawn(ask, first) for first in range(10)], timeout=15, raise_error=True)
for each in client, server, client._pump, server._pump:
    each.close()
print(monkey.is_module_patched("socket"), len(answered))
"""


@pytest.mark.parametrize("patched", [True, False])
def test_thousand_requests_are_answered(*, patched: bool) -> None:
    script = (PATCH if patched else "") + ASK
    command = [sys.executable, "-W", "error", "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{patched} 1000\n", "")
