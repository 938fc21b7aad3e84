"""A program's way into a cluster: the configuration, and one shared membership per process.

`Owner`, `Lookup`, `Stub` and the like are made from a `Cluster` and share its member: one set of
sockets, one beacon. A program that merely links us is seen by the cluster, never restarted.

What always holds:
  C1  At most one member and one lease session are open; each is closed when as many have
      released it as took it.
  C2  A `Cluster` belongs to the process that made it: after a fork every call raises.
"""

import os
import secrets
import socket
from pathlib import Path

from gevent.lock import RLock

from bus.clock import wall_s
from bus.config import Config, find, load
from bus.errors import LinkError
from bus.identity import Identity
from bus.member import Member
from roles.lease_session import LeaseSession

LINKED = "linked"


class Cluster:
    def __init__(self, config: Config) -> None:
        self.config = config
        self._process_id = os.getpid()
        self._member: Member | None = None
        self._taken = 0
        self._process: Identity | None = None
        self._session: LeaseSession | None = None
        self._session_taken = 0
        self._session_changes = RLock()  # Joining and closing take a while, and yield.

    @classmethod
    def load(cls, path: str | Path | None = None) -> "Cluster":
        """The cluster that the file at `path` describes; without one, found as commands find it."""
        return cls(load(find(None) if path is None else path))

    @classmethod
    def of(cls, member: Member) -> "Cluster":
        """The cluster that a role's own process is a member of: node agents vouch for its end."""
        cluster = cls(member.config)
        cluster._process = member.identity
        return cluster

    def member(self, role: str = LINKED) -> Member:
        """The shared member, joined on first use; whoever takes it must `release` it.

        `role` is what the cluster sees us as; the first to ask decides.
        """
        self.check_process()
        if self._member is None:
            self._member = Member.join(self.config, _identity(role), linked=True)
            self._member.live()
        self._taken += 1
        return self._member

    def release(self) -> None:
        """Give the shared member back; the last to do so closes it."""
        self.check_process()
        assert self._taken > 0, "released more often than taken"
        self._taken -= 1
        if self._taken == 0 and self._member is not None:  # C1
            member, self._member = self._member, None
            member.close()

    def lease_session(self) -> LeaseSession:
        """The one conversation of this process with the lease managers; to be released too."""
        self.check_process()
        with self._session_changes:  # C1
            if self._session is None:
                session = LeaseSession(self.config, _identity(LINKED), process=self._process)
                session.start()
                self._session = session
            self._session_taken += 1
            return self._session

    def release_lease_session(self) -> None:
        self.check_process()
        with self._session_changes:
            assert self._session_taken > 0, "released more often than taken"
            self._session_taken -= 1
            if self._session_taken == 0 and self._session is not None:  # C1
                session, self._session = self._session, None
                session.close()

    def check_process(self) -> None:
        """Raises `LinkError` after a fork."""
        if os.getpid() != self._process_id:  # C2
            raise LinkError(
                f"this Cluster belongs to process {self._process_id}, and sockets do not survive "
                "a fork; make one in each process, after the fork"
            )


def _identity(role: str) -> Identity:
    """A name that no other process has: two under one name would make one of them resign."""
    host = socket.gethostname().partition(".")[0] or "host"
    return Identity(f"{role}-{secrets.token_hex(6)}", role, host, int(wall_s() * 1000))
