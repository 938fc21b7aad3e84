"""Owners made of raw messages, so that what a lease manager says is seen as it is. For tests."""

import os

from bus.client import Client
from bus.clock import now
from bus.errors import RequestTimeoutError
from bus.peers import Peer
from bus.replies import Reply
from roles.lease_messages import (
    AskLeases,
    AskMap,
    LeasesAnswered,
    MapAnswered,
    MapPart,
    OwnerAsk,
    Span,
    decode_part,
)
from roles.messages import DescribeLeases, LeasesDescribed
from roles.testing import LocalCluster
from tests.waiting import until

ASK_S = 1.0


class Managers:
    """The managers of a cluster, as a linked program sees them."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self.member = local.cluster.member()

    def peers(self) -> list[Peer]:
        return [
            peer
            for peer in self.member.liveness.peers()
            if peer.role == "manager" and peer.state not in ("dead", "offline")
        ]

    def peer(self, manager_id: str) -> Peer:
        return next(peer for peer in self.peers() if peer.id == manager_id)

    def standing(self, peer: Peer) -> LeasesDescribed | None:
        try:
            reply = self.member.client.ask(
                peer.endpoint, DescribeLeases("-"), expect=LeasesDescribed, timeout_s=0.2
            )
        except RequestTimeoutError:
            return None
        return reply.message if isinstance(reply, Reply) else None

    def leaders(self) -> list[Peer]:
        answers = [(peer, self.standing(peer)) for peer in self.peers()]
        return [peer for peer, told in answers if told is not None and told.leading]

    def leader(self, timeout_s: float = 5.0) -> Peer:
        found: list[Peer] = []

        def one_leads() -> bool:
            found[:] = self.leaders()
            return len(found) == 1

        until(one_leads, timeout_s, "one manager leads")
        return found[0]

    def told(self, kind: str, manager_id: str) -> bool:
        """Whether that manager has said such a thing, in whatever life."""
        return f": {kind} " in self.local.output(manager_id)

    def map(self, namespace: str = "presence") -> tuple[MapAnswered, MapPart]:
        reply = self.member.client.ask(
            self.leader().endpoint, AskMap(namespace, 0, -1), expect=MapAnswered, timeout_s=ASK_S
        )
        assert isinstance(reply, Reply)
        return reply.message, decode_part(reply.body)


class RawOwner:
    """Asks as an owner does, and keeps what it was told."""

    def __init__(
        self,
        managers: Managers,
        name: str,
        process: tuple[str, int] = ("test-1", 1),
        namespace: str = "presence",
    ) -> None:
        self._managers = managers
        self.name = name
        self.namespace = namespace
        self._process = process
        self._nonce = int.from_bytes(os.urandom(7))
        self._sequence = 0
        self._began_at = now()
        self._seen = (0, 0)
        self.ranges: list[Span] = []

    def next_ask(self) -> AskLeases:
        self._sequence += 1
        return AskLeases(
            [
                OwnerAsk(
                    self.namespace,
                    self.name,
                    f"tcp://{self.name}",
                    *self._process,
                    incarnation=1,
                    nonce=self._nonce,
                    sequence=self._sequence,
                    seen_term=self._seen[0],
                    seen_revision=self._seen[1],
                    term_max=self._seen[0],
                    number_max=max((span.number for span in self.ranges), default=0),
                    age_s=now() - self._began_at,
                    leaving=False,
                    holds=self.ranges,
                )
            ]
        )

    def ask(
        self, peer: Peer, timeout_s: float = ASK_S, client: Client | None = None
    ) -> LeasesAnswered | None:
        try:
            reply = (client or self._managers.member.client).ask(
                peer.endpoint, self.next_ask(), expect=LeasesAnswered, timeout_s=timeout_s
            )
        except RequestTimeoutError:
            return None
        if not isinstance(reply, Reply):
            return None
        for answer in reply.message.answers:
            self._seen = reply.message.term, answer.revision
            self.ranges = answer.ranges
        return reply.message

    def renew(self) -> None:
        """Ask whoever leads until it answers."""

        def answered() -> bool:
            message = self.ask(self._managers.leader())
            return message is not None and message.leading and bool(message.answers)

        until(answered, 5, f"{self.name} is answered")
