"""Bricks, in this process, that lie about a session as its value tells them to."""

from bus.clock import wall_s
from bus.config import Config
from bus.identity import Identity
from bus.member import Member
from bus.messages import Message, Refused
from bus.replies import Answer
from bus.server import Call
from roles.session_messages import (
    SESSION,
    HandedOver,
    ReadSession,
    SessionAnswer,
    StoreSession,
    data_incarnation_of,
)

OTHERS_VALUE = b"what another user has in the cart"


def lying_brick(config: Config, number: int) -> Member:
    """`close` it."""
    incarnation = int(wall_s() * 1000)
    member = Member.join(config, Identity(f"brick-{number}", "brick", "n1", incarnation))
    _serve(member)
    member.live()
    return member


def _serve(member: Member) -> None:
    held: dict[bytes, tuple[StoreSession, bytes]] = {}
    life = data_incarnation_of(member.identity.incarnation)

    def store(call: Call[StoreSession]) -> Message | Refused:
        if call.body == b"denied":
            return Refused("denied", "this key may not")
        held[call.message.sid] = call.message, bytes(call.body)
        return SessionAnswer("stored", life)

    def read(call: Call[ReadSession]) -> Answer:
        stored, value = held[call.message.sid]
        good = SessionAnswer("value", life, stored.version, 60.0, stored.checksum)
        lies = {
            b"garbage": Answer(good, b"\x00" * len(value)),
            b"cut short": Answer(good, value[:-1]),
            b"wrong key": Answer(good, OTHERS_VALUE),
            b"older": Answer(SessionAnswer("value", life, 0, 60.0, stored.checksum), value),
            b"other message": Answer(HandedOver(life, 0, 0, 1.0)),
        }
        who, _, lie = value.partition(b": ")
        is_honest = who == b"one lies" and member.identity.id != "brick-1"
        return Answer(good, value) if is_honest else lies.get(lie, Answer(good, value))

    member.statistics.size("data_incarnation", "Names the tables", lambda: life)
    member.server.on(StoreSession, store, permission=SESSION)
    member.server.on(ReadSession, read, permission=SESSION)
