"""A revoked key gets nothing within 10 s, while others lose nothing; a wrong key never gets any.

Method: a cluster of real processes with keys, and three linked programs in this process: `web` and
`shop` have listed keys of their own, `stranger` has not. All ask without pause, and hear beacons.
Then `softstate keys revoke web` is run as a person would run it.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
import msgspec
import pytest

from bus.allow_list import SERVICE_MAY
from bus.clock import now
from bus.config import Config, KeysConfig
from bus.errors import BusError
from bus.keys import create_key
from bus.messages import Ping, Pong
from bus.pump import new_keypair
from bus.replies import Reply
from roles.cluster import Cluster
from roles.invoke import environment, softstate
from roles.testing import LocalCluster
from tests.waiting import until

pytestmark = pytest.mark.slow

ROLES = {"greeter": "examples.hello_role:main"}
PATIENCE_S = 15.0
CUT_OFF_S = 10.0  # What docs/security.md promises.
AFTERWARDS_S = 3.0  # How long we then watch that nothing comes: three beacons of each process.
ASKERS = 4
PACE_S = 0.005  # Load, but not so much that a small machine takes processes for dead.


class Program:
    """A linked program with a key of its own: what it was answered, and what it heard."""

    def __init__(self, config: Config, endpoints: list[str]) -> None:
        self._cluster = Cluster(config)
        self.member = self._cluster.member()
        self.answered_at = 0.0
        self.answered = dict.fromkeys(endpoints, 0)
        self.failures: list[str] = []
        self._asking = [
            gevent.spawn(self._ask, endpoints[place % len(endpoints)]) for place in range(ASKERS)
        ]

    @property
    def heard_at(self) -> float:
        """When the last beacon of somebody else came; 0 if none ever did."""
        return max((peer.heard_at for peer in self.member.liveness.peers()), default=0.0)

    def wait_until_served(self) -> None:
        """By every server: each reads the list that has our key at a time of its own."""
        until(lambda: min(self.answered.values()) > 50, PATIENCE_S, "answers of all")
        until(lambda: len(self.member.peers()) >= 6, PATIENCE_S, "news")

    def _ask(self, endpoint: str) -> None:
        while True:
            try:
                reply = self.member.client.ask(endpoint, Ping(), expect=Pong, timeout_s=5)
            except BusError as error:
                self.failures.append(str(error))
                continue
            if isinstance(reply, Reply):
                self.answered_at = now()
                self.answered[endpoint] += 1
            else:
                self.failures.append(f"{reply}")
            gevent.sleep(PACE_S)

    def close(self) -> None:
        gevent.killall(self._asking)
        self._cluster.release()


def keys_of(name: str, cluster: Config, place: Path) -> Config:
    """The configuration of a program elsewhere: `cluster.public` and its own pair, no more."""
    assert cluster.keys is not None
    place.mkdir()
    for file in ("cluster.public", f"{name}.public", f"{name}.secret"):
        shutil.copy(Path(cluster.keys.directory) / file, place / file)
    return msgspec.structs.replace(cluster, keys=KeysConfig(directory=str(place), name=name))


def strange_keys(cluster: Config, place: Path) -> Config:
    """A pair like any other, that nobody has listed."""
    assert cluster.keys is not None
    place.mkdir()
    shutil.copy(Path(cluster.keys.directory) / "cluster.public", place)
    for half, text in zip(("public", "secret"), new_keypair(), strict=True):
        (place / f"stranger.{half}").touch(mode=0o600)
        (place / f"stranger.{half}").write_text(text)
    return msgspec.structs.replace(cluster, keys=KeysConfig(directory=str(place), name="stranger"))


@contextmanager
def programs(cluster: Config, place: Path) -> Iterator[dict[str, Program]]:
    assert cluster.keys is not None
    for name in ("web", "shop"):
        create_key(cluster.keys.directory, name, SERVICE_MAY, new_keypair)
    configs = {name: keys_of(name, cluster, place / name) for name in ("web", "shop")}
    configs["stranger"] = strange_keys(cluster, place / "stranger")
    looking = Cluster(cluster)
    member = looking.member()
    until(lambda: len(member.peers("greeter")) == 2, PATIENCE_S, "both greeters")
    endpoints = [peer.endpoint for peer in member.peers("greeter")]
    made: dict[str, Program] = {}
    try:
        for name, config in configs.items():
            made[name] = Program(config, endpoints)
        yield made
    finally:
        for program in made.values():
            program.close()
        looking.release()


def test_revoked_key_is_cut_off_and_no_other_under_load(tmp_path: Path) -> None:
    with (
        LocalCluster(nodes=2, hubs=2, greeters=2, keys=True, roles=ROLES) as local,
        programs(local.cluster.config, tmp_path) as running,
    ):
        web, shop, stranger = (running[name] for name in ("web", "shop", "stranger"))
        web_id = web.member.identity.id
        web.wait_until_served()
        shop.wait_until_served()
        until(
            lambda: web_id in {peer.id for peer in shop.member.peers()}, PATIENCE_S, "web is heard"
        )
        web.failures.clear()  # Until every server had read the list that has them,
        shop.failures.clear()  # both were strangers.

        keys = local.cluster.config.keys
        assert keys is not None
        command = softstate("keys", "revoke", "web", "--directory", keys.directory)
        revoked_at = now()
        subprocess.run(command, env=environment(), check=True, stdout=subprocess.DEVNULL)
        assert web.failures == []
        end = revoked_at + CUT_OFF_S + AFTERWARDS_S
        until(lambda: now() > end, CUT_OFF_S + 2 * AFTERWARDS_S, "13 s")

        cut_s = {"answers": web.answered_at - revoked_at, "news": web.heard_at - revoked_at}
        assert all(after_s < CUT_OFF_S for after_s in cut_s.values()), cut_s
        assert web_id not in {peer.id for peer in shop.member.peers()}, "nor is it heard"
        assert shop.failures == []
        assert min(shop.answered.values()) > 500
        assert now() - shop.answered_at < 2.0
        assert now() - shop.heard_at < 2.0
        assert {peer.id for peer in shop.member.peers()} > {"hub-1", "hub-2", "node-1", "node-2"}
        assert (sum(stranger.answered.values()), stranger.member.liveness.peers()) == (0, [])
        assert stranger.member.pump.traffic.frames_in == 0
