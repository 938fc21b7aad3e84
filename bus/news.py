"""Publish to whoever listens, and listen, through all hubs at once. Sends and hands on only.

Everything published goes to every hub, and so arrives once from each; it is handed on once.
News is soft state: what no hub carries is lost, and the next beacon makes up for it.

What always holds:
  N1  A listener that raises keeps no other of its topic from hearing; the pump hears of it after.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from bus.clock import now
from bus.config import publish_address
from bus.errors import RemoteProtocolError
from bus.frames import MessageDecoder, encode_header, raw
from bus.headers import Header
from bus.headers import News as NewsHeader
from bus.identity import INCARNATION_MAX, Identity
from bus.messages import Message
from bus.pump import Pump
from bus.window import DeliveryWindows

M = TypeVar("M", bound=Message)

HeardNews = Callable[[NewsHeader, M], None]


class _Topic:
    """Who listens to one topic."""

    def __init__(self, kind: type[Message]) -> None:
        self.kind = kind
        self.decoder = MessageDecoder(kind)
        self.heard: list[HeardNews[Message]] = []


class News:
    def __init__(self, pump: Pump, identity: Identity, hubs: tuple[str, ...]) -> None:
        self._pump = pump
        self._identity = identity
        self._sequence = 0
        self._listeners: dict[str, _Topic] = {}
        self.windows = DeliveryWindows()
        self._publisher = pump.publisher([publish_address(hub) for hub in hubs])
        self._subscriber = pump.subscriber(list(hubs), self._heard)

    def publish(self, topic: str, message: Message) -> None:
        self._sequence += 1
        me = self._identity
        sent_us = int(now() * 1e6)
        header = NewsHeader(me.id, me.incarnation, self._sequence, sent_us, raw(message))
        self._publisher.send(topic, encode_header(header))

    def subscribe(self, topic: str, kind: type[M], heard: HeardNews[M]) -> None:
        """Call `heard(header, message)`, in the event loop, for all news on that topic, our own
        included. Listeners must be short and not wait; all of a topic expect the same kind."""
        assert "\0" not in topic
        listening = self._listeners.get(topic)
        if listening is None:
            listening = self._listeners[topic] = _Topic(kind)
            self._subscriber.subscribe(topic)
        assert listening.kind is kind, f"others on {topic} expect {listening.kind.__name__}"
        listening.heard.append(cast("HeardNews[Message]", heard))

    def close(self) -> None:
        self._publisher.close()
        self._subscriber.close()

    def _heard(self, topic: str, header: Header) -> None:
        if not isinstance(header, NewsHeader) or topic not in self._listeners:
            self._pump.traffic.malformed += 1
            return
        if not 0 <= header.incarnation <= INCARNATION_MAX:
            self._pump.traffic.malformed += 1  # Its window would be closed to all later lives.
            return
        if not self.windows.first_time(header.sender, header.incarnation, header.sequence):
            return
        listening = self._listeners[topic]
        try:
            message = listening.decoder.decode(header.message)
        except RemoteProtocolError:
            self._pump.traffic.malformed += 1
            return
        failed: Exception | None = None
        for heard in listening.heard:
            try:
                heard(header, message)
            except Exception as error:  # noqa: BLE001 (N1: told when all have heard it)
                failed = failed or error
        if failed is not None:
            raise failed
