"""Kill the leading manager and see how long nobody is renewed, and whether a lease is lost.

Three managers on two nodes, and owners in several sessions, as in several processes. On etcd, the
leader of etcd itself is killed in the same instant.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil

from bus.clock import now
from bus.errors import RequestTimeoutError
from bus.replies import Reply
from loadtest.child import answer_all, tell
from loadtest.etcd_peer import Etcd
from loadtest.greenlets import read_line
from loadtest.lease_changes import wait_for
from loadtest.lease_home import Home
from loadtest.lease_requests import Fail, FailedOver
from roles.cluster import Cluster
from roles.messages import DescribeLeases, LeasesDescribed
from roles.testing import LocalCluster

SESSIONS = 4
MANAGERS = 3
RENEWED_S_MAX = 30.0
ASK_S_MAX = 1.0
QUIET_LOOKS = 50  # Of 10 ms.


class Failover:
    def __init__(self, local: LocalCluster, etcd: Etcd | None, owners: int) -> None:
        self._local, self._etcd = local, etcd
        self._member = local.cluster.member()
        config = local.cluster.config
        self._sessions = [Cluster(config).lease_session() for _ in range(SESSIONS)]
        self._homes = [
            Home(self._sessions[number % SESSIONS], f"owner-{number:04d}")
            for number in range(owners)
        ]
        for home in self._homes:
            home.start()
        wait_for(lambda: all(home.leases() for home in self._homes), "every owner to hold keys")
        wait_for(self._quiet(), "moves to end")

    def fail(self, _: Fail) -> FailedOver:
        leader, term = self._leader()
        pid = next(row.pid for row in self._local.components() if row.id == leader)
        etcd, member = self._etcd, 0
        if etcd is not None:
            etcd.settle()
            member = etcd.leader()
        before = [home.leases() for home in self._homes]
        for home in self._homes:
            home.timed.given.clear()
        killed_at = now()
        os.kill(pid, signal.SIGKILL)
        if etcd is not None:
            etcd.kill(member)
        wait_for(lambda: self._renewed(term), "every owner to be renewed", RENEWED_S_MAX)
        answers = [self._renewed_at(home, term) for home in self._homes]
        after = [home.leases() for home in self._homes]
        lost = sum(len(home.timed.given) for home in self._homes)
        lost += sum(len(was - is_) for was, is_ in zip(before, after, strict=True))
        self._restore(leader, pid, member)
        return FailedOver(
            first_s=min(answers) - killed_at,
            last_s=max(answers) - killed_at,
            leases=sum(map(len, before)),
            lost=lost,
        )

    def close(self) -> None:
        for session in self._sessions:
            session.close()

    def _renewed(self, term: int) -> bool:
        return all(max(home.timed.renewed_at) > term for home in self._homes)

    def _renewed_at(self, home: Home, term: int) -> float:
        """When a leader later than `term` first answered it."""
        return min(at for each, at in list(home.timed.renewed_at.items()) if each > term)

    def _leader(self) -> tuple[str, int]:
        found: list[LeasesDescribed] = []

        def leads() -> bool:
            found[:] = [told for told in map(self._ask, self._managers()) if told and told.leading]
            return bool(found)

        wait_for(leads, "a manager that leads")
        return found[0].leader, found[0].term

    def _managers(self) -> list[str]:
        return [peer.endpoint for peer in self._member.peers("manager")]

    def _ask(self, endpoint: str) -> LeasesDescribed | None:
        try:
            reply = self._member.client.ask(
                endpoint, DescribeLeases(), expect=LeasesDescribed, timeout_s=ASK_S_MAX
            )
        except RequestTimeoutError:
            return None
        return reply.message if isinstance(reply, Reply) else None

    def _restore(self, manager: str, pid: int, member: int) -> None:
        """All three again, so that each failover begins alike."""
        if self._etcd is not None:
            self._etcd.start(member)
            self._etcd.settle()
        wait_for(lambda: not psutil.pid_exists(pid), "the manager killed to be reaped")
        self._local.start(manager)
        self._local.wait_live(manager)

    def _quiet(self) -> Callable[[], bool]:
        """Whether owners hold all there is, and nothing has moved since the last look but one."""
        looks: list[list[set[tuple[int, int, int]]]] = []

        def quiet() -> bool:
            looks.append([home.leases() for home in self._homes])
            whole = sum(end - start for held in looks[-1] for start, end, _ in held) == 1 << 64
            return whole and len(looks) > QUIET_LOOKS and looks[-1] == looks[-QUIET_LOOKS]

        return quiet


def main(store: str, owners: str) -> None:
    with ExitStack() as open_:
        settings: dict[str, object] = {}
        etcd = None
        if store == "etcd":
            directory = open_.enter_context(tempfile.TemporaryDirectory())
            etcd = open_.enter_context(Etcd(members=3, directory=Path(directory)))
            settings = {"store": {"kind": "etcd", "endpoints": etcd.endpoints}}
        local = open_.enter_context(
            LocalCluster(
                hubs=2, nodes=2, managers=MANAGERS, preset="lan", heal=False, settings=settings
            )
        )
        failover = Failover(local, etcd, int(owners))
        open_.callback(failover.close)
        tell({})
        answer_all(Fail, failover.fail, read_line)


if __name__ == "__main__":
    main(*sys.argv[1:])
