"""With keys, who is not listed gets nothing, and who is listed no more than is written there.

Method: a keys directory as `softstate keys` makes it; each party with sockets of its own, over
loopback, in one process. `component` may do everything.
"""

from collections.abc import Iterator
from pathlib import Path

import gevent
import msgspec
import pytest

from bus import pump as pump_module
from bus.client import Client
from bus.errors import RequestTimeoutError
from bus.identity import Identity
from bus.keys import AllowList, create_cluster, create_key, load_security, revoke
from bus.messages import Refused
from bus.pump import Pump, new_keypair
from bus.replies import Reply
from bus.security import Security
from bus.server import Server
from tests.sockets.gate import Gate
from tests.sockets.hubs import Hubs, Listener
from tests.sockets.pair import Echo, echo
from tests.waiting import until

pytestmark = pytest.mark.slow

PATIENCE_S = 5.0
REFUSED_S = 0.4  # Who hears nothing for this long, on loopback, has been turned away.


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    directory = tmp_path / "keys"
    create_cluster(directory, new_keypair)
    create_key(directory, "web", ("publish", "listen"), new_keypair)
    create_key(directory, "ears", ("listen",), new_keypair)
    return directory


class Party:
    """A server whose allow-list is `allowed`, and whoever asks it."""

    def __init__(self, keys: Path) -> None:
        self.keys = keys
        self.pumps: list[Pump] = []
        security = load_security(keys)
        assert isinstance(security.allowed, AllowList)
        self.allowed = security.allowed
        self.pump = self.new_pump(security)
        self.server = Server(
            self.pump, Identity("server-1", "server", "n1", 1), "tcp://127.0.0.1:*"
        )
        self.server.on(Echo, echo)

    def new_pump(self, security: Security | None) -> Pump:
        self.pumps.append(Pump(security))
        return self.pumps[-1]

    def client(self, name: str) -> Client:
        return self.client_with(load_security(self.keys, name))

    def client_with(self, security: Security | None) -> Client:
        return Client(self.new_pump(security), Identity("client-1", "client", "n1", 1))

    def answers(self, client: Client, timeout_s: float = PATIENCE_S) -> bool:
        try:
            reply = client.ask(self.server.endpoint, Echo(1), expect=Echo, timeout_s=timeout_s)
        except RequestTimeoutError:
            return False
        return isinstance(reply, Reply) and reply.message == Echo(1)

    def close(self) -> None:
        for pump in self.pumps:
            pump.close()


@pytest.fixture
def party(keys: Path) -> Iterator[Party]:
    made = Party(keys)
    yield made
    made.close()


# Requests.


def test_listed_keys_are_answered(party: Party) -> None:
    assert party.answers(party.client("component"))
    assert party.answers(party.client("web"))


def test_strangers_get_nothing_while_a_good_client_under_load_is_unaffected(party: Party) -> None:
    good = load_security(party.keys, "web")
    public, secret = new_keypair()
    strangers = {
        "unlisted key": msgspec.structs.replace(good, public=public, secret=secret),
        "listed public key without its secret": msgspec.structs.replace(good, secret=secret),
        "no key": None,
        "another server's key": msgspec.structs.replace(good, server_public=public),
    }
    client = party.client("web")
    outcomes: list[bool] = []
    ending = False

    def load() -> None:
        while not ending:
            outcomes.append(party.answers(client))

    loads = [gevent.spawn(load) for _ in range(8)]
    until(lambda: len(outcomes) > 100, PATIENCE_S, "load")
    asking = {
        name: [gevent.spawn(party.answers, party.client_with(each), REFUSED_S) for _ in range(3)]
        for name, each in strangers.items()
    }
    answered = {name: [each.get() for each in many] for name, many in asking.items()}
    ending = True
    gevent.joinall(loads, timeout=PATIENCE_S, raise_error=True)
    assert answered == {name: [False] * 3 for name in strangers}
    assert set(outcomes) == {True}
    assert len(outcomes) > 300
    assert party.server.answered == len(outcomes)


def test_request_needs_the_permission_of_its_handler(party: Party) -> None:
    party.server.on(Echo, echo, permission="control")
    assert party.answers(party.client("component"))
    denied = party.client("web").ask(
        party.server.endpoint, Echo(1), expect=Echo, timeout_s=PATIENCE_S
    )
    assert denied == Refused("denied", "this key may not ask Echo")
    assert (party.server.answered, party.server.refused) == (1, 1)


def test_revoked_key_is_cut_off_at_once_and_others_are_not(party: Party) -> None:
    web, component = party.client("web"), party.client("component")
    assert party.answers(web)
    assert party.answers(component)
    revoke(party.keys, "web")
    assert party.answers(web), "nobody has looked at the list yet"
    assert party.allowed.refresh()
    assert not party.answers(web, REFUSED_S)
    assert party.pump.traffic.denied >= 1
    assert party.answers(component)
    assert party.server.answered == 4


def test_revoked_key_gets_neither_what_is_served_nor_what_waits(party: Party) -> None:
    party.server._workers_max = 1
    gate = Gate()
    party.server.on(Echo, gate)
    web = party.client("web")
    asking = [gevent.spawn(party.answers, web, 1.0) for _ in range(3)]
    gate.wait_for(1)
    until(lambda: party.server.inbox_length == 2, PATIENCE_S, "two that wait")
    revoke(party.keys, "web")
    assert party.allowed.refresh()
    gate.open()
    until(lambda: party.pump.traffic.denied == 3, PATIENCE_S, "all three dropped")
    assert [each.get() for each in asking] == [False] * 3
    assert (len(gate.calls), party.server.answered, party.server.refused) == (1, 0, 0)


def test_permission_taken_away_is_missed_by_the_next_request(party: Party) -> None:
    create_key(party.keys, "operator", ("control",), new_keypair)
    party.allowed.refresh()
    party.server.on(Echo, echo, permission="control")
    operator = party.client("operator")
    assert party.answers(operator)
    path = party.keys / "allowed.toml"
    path.write_text(path.read_text().replace('"control"', '"listen"'))
    assert party.allowed.refresh()
    refused = operator.ask(party.server.endpoint, Echo(1), expect=Echo, timeout_s=PATIENCE_S)
    assert refused == Refused("denied", "this key may not ask Echo")


def test_key_added_later_works_without_a_restart_of_anyone(party: Party) -> None:
    create_key(party.keys, "late", (), new_keypair)
    late = party.client("late")
    assert not party.answers(late, REFUSED_S), "nobody has looked at the list yet"
    assert not party.allowed.refresh(), "nothing was taken away"
    assert party.answers(late)


# News.


@pytest.fixture
def hubs(keys: Path, tmp_path: Path) -> Iterator[Hubs]:
    made = Hubs(tmp_path, 1, load_security(keys))
    yield made
    made.close()


class Listeners:
    def __init__(self, keys: Path, hubs: Hubs) -> None:
        self._keys = keys
        self._hubs = hubs
        self.made: list[Listener] = []

    def add(self, name: str) -> Listener:
        listener = Listener(name, self._hubs.addresses, load_security(self._keys, name))
        self.made.append(listener)
        return listener


@pytest.fixture
def listeners(keys: Path, hubs: Hubs) -> Iterator[Listeners]:
    made = Listeners(keys, hubs)
    yield made
    for each in made.made:
        each.close()


def test_key_without_publish_may_listen_but_not_publish(hubs: Hubs, listeners: Listeners) -> None:
    component, ears = listeners.add("component"), listeners.add("ears")
    component.wait_until_hearing(component)
    ears.wait_until_hearing(component)
    component.publish(1)
    until(lambda: hubs.pumps[0].traffic.denied, PATIENCE_S, "the publisher turned away")
    for number in range(2, 40):
        ears.publish(number)
        gevent.sleep(0.01)
    component.publish(40)
    component.wait_for(2)
    ears.wait_for(2)
    assert component.heard == ears.heard == [("component", 1), ("component", 40)]


def test_stranger_neither_hears_nor_is_heard(hubs: Hubs, listeners: Listeners) -> None:
    component = listeners.add("component")
    component.wait_until_hearing(component)
    stranger = Listener("stranger", hubs.addresses)
    for number in range(30):
        stranger.publish(number)
        component.publish(number)
        gevent.sleep(0.01)
    component.wait_for(30)
    assert component.heard == [("component", number) for number in range(30)]
    assert (stranger.heard, stranger.probes) == ([], 0)
    stranger.close()


def test_revoked_key_is_cut_off_from_a_hub_that_binds_anew(
    keys: Path, hubs: Hubs, listeners: Listeners
) -> None:
    component, web = listeners.add("component"), listeners.add("web")
    web.wait_until_hearing(component)
    component.wait_until_hearing(web)
    component.wait_until_hearing(component)
    revoke(keys, "web")
    security = hubs.security
    assert security is not None
    assert isinstance(security.allowed, AllowList)
    assert security.allowed.refresh()
    relay = hubs.relays[0]
    assert relay is not None
    relay.rebind()
    component.wait_until_hearing(component)
    probes = web.probes
    for number in range(30):
        web.publish(number)
        component.publish(number)
        gevent.sleep(0.01)
    component.wait_for(30)
    assert component.heard == [("component", number) for number in range(30)]
    assert (web.heard, web.probes) == ([], probes)


def test_key_that_wants_too_many_topics_is_kept_out_and_others_come_back(
    keys: Path, hubs: Hubs, listeners: Listeners, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump_module, "TOPICS_BYTES_MAX", 10_000)
    component, web = listeners.add("component"), listeners.add("web")
    web.wait_until_hearing(component)
    component.wait_until_hearing(component)
    for number in range(250):
        web.news._subscriber.subscribe(f"topic-{number:04}")
    traffic = hubs.pumps[0].traffic
    until(lambda: traffic.crowded, PATIENCE_S, "too many topics")
    component.wait_until_hearing(component)
    until(lambda: traffic.denied, PATIENCE_S, "the greedy one turned away")
    component.publish(1)
    component.wait_for(1)
    gevent.sleep(0.1)
    assert (web.heard, traffic.crowded) == ([], 1)
