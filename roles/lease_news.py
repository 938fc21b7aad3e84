"""What a leading manager says, in pieces that fit on the wire. Decides only.

A piece of news may have 24 KiB. A change of a map that has more is left out: lookups ask for what
they did not hear of.

What always holds:
  F1  Whatever comes out of here can be sent, as no single name or version is that long.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from bus.messages import Message
from roles.lease_messages import (
    MESSAGE_BYTES_MAX,
    NUDGE_TOPIC,
    TIP_TOPIC,
    LeaseNudge,
    MapDelta,
    MapTip,
    delta_topic,
)

T = TypeVar("T")


def news(message: MapTip | MapDelta | LeaseNudge) -> list[tuple[str, Message]]:
    """What to publish, and on which topics; nothing, if it is too long to be news."""
    match message:
        case MapTip(term=term, versions=versions):
            return [(TIP_TOPIC, MapTip(term, list(part))) for part in parts(versions)]
        case LeaseNudge(term=term, namespace=namespace, owners=owners):
            nudges = [LeaseNudge(term, namespace, list(part)) for part in parts(owners)]
            return [(NUDGE_TOPIC, nudge) for nudge in nudges]
        case MapDelta(namespace=namespace, part=part):
            if len(part) > MESSAGE_BYTES_MAX:
                return []  # The next tip has every lookup ask for it.
            return [(delta_topic(namespace), message)]


def parts(items: Iterable[T]) -> Iterator[list[T]]:
    """F1: the items in as few lists as fit; one empty list if there are none."""
    part: list[T] = []
    size = 0
    for item in items:
        length = _size(item)
        if part and size + length > MESSAGE_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(item)
        size += length
    yield part


def _size(item: object) -> int:
    return len(msgspec.msgpack.encode(item))
