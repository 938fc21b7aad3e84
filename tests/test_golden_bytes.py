"""The wire: bytes that old peers already speak, and bytes that nobody should.

Each header and each message of our packages has its bytes written down. A change that alters
them breaks running clusters, and breaks this test first.
"""

import contextlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roles.lease_messages as lease
import roles.messages as roles_messages
import roles.session_messages as session
from bus import messages, process_orders
from bus.errors import RemoteProtocolError
from bus.frames import LENGTHS, VERSION_BYTE, MessageDecoder, encode_header, raw, unjoin
from bus.headers import Ask, Cancel, Header, News, Refusal, Reply
from bus.messages import (
    Beacon,
    Drain,
    Exited,
    Happening,
    InjectFault,
    Message,
    PeerSeen,
    PeersSeen,
    Ping,
    Pong,
)

PING = raw(Ping())
BEACON = Beacon(
    "brick",
    "n1",
    42,
    "tcp://127.0.0.1:7",
    "live",
    1.5,
    2,
    linked=False,
    period_s=1.0,
    metrics_url="",
    statistics={"cpu": 0.5},
)

LAST = (1 << 64) - 1
SID, CHECKSUM = bytes(range(16)), bytes(range(16, 32))
SPAN = lease.Span(0, LAST, 12, 9)
OWNER_ASK = lease.OwnerAsk(
    "presence", "u1", "tcp://u1", "web-1", 5, 6, 8, 9, 4, 3, 4, 12, 1.5, leaving=False, holds=[SPAN]
)

HEADERS: dict[str, Header] = {
    "ask": Ask(7, "stub-1", 3, 60_000, 1, 99, PING),
    "reply": Reply(7, "brick-1", 3, 12, PING),
    "refusal": Refusal(7, "busy", "the inbox is full", 100_000),
    "cancel": Cancel(7),
    "news": News("brick-1", 3, 4, 99, PING),
}
MESSAGES: list[Message] = [
    Ping(),
    Pong("brick-1", 3),
    BEACON,
    Exited("brick-1", 3, 42, -9, "killed", asked=True),
    Happening("died", "brick-1", "silent"),
    Drain(),
    InjectFault("drop", 0.7, 30.0),
    PeersSeen("brick", 1.0, [PeerSeen("brick-1", 3, 9, 6, 2, 1, 0.5, 32.0)]),
    process_orders.RestartProcess("brick-1", 3, "it hangs"),
    process_orders.ProcessesHeld([process_orders.Held("brick-1", "offline", "it fails", 2.5)]),
    process_orders.StartProcess("brick-1"),
    process_orders.EndProcess("brick-1", "kill"),
    process_orders.PauseProcess("brick-1"),
    process_orders.ResumeProcess("brick-1"),
    process_orders.ProcessDescribed("brick-1", 42, 3, 0.5),
    roles_messages.DescribeCluster(),
    roles_messages.ClusterDescribed(6),
    roles_messages.RecentEvents(10),
    roles_messages.EventsDescribed(10),
    roles_messages.DescribeLeases("presence", ranges=True),
    roles_messages.LeasesDescribed("manager-1", 4, leading=True, leading_s=0.5),
    roles_messages.ExplainKey("presence", 255),
    roles_messages.KeyExplained(
        "manager-1",
        4,
        leading=True,
        known=True,
        start=1,
        last=LAST,
        owner="u1",
        url="tcp://u1",
        number=12,
        born=9,
        reason="why",
        expires_in_s=1.5,
        recalled=True,
        decided_s=0.5,
        remembered_s=2.5,
    ),
    lease.AskLeases([OWNER_ASK]),
    lease.LeasesAnswered(
        4, leading=True, answers=[lease.OwnerAnswer("presence", "u1", 8, 9, 3, "", [SPAN])]
    ),
    lease.AskMap("presence", 4, -1, 5),
    lease.MapAnswered("presence", 4, leading=True, whole=True, version_term=4, version_lsn=17),
    lease.MapTip(4, [("presence", 4, 17)]),
    lease.MapDelta("presence", 4, 17, 3, 16, b"part"),
    lease.LeaseNudge(4, "presence", ["u1"]),
    session.StoreSession(SID, 4, 1.5, CHECKSUM, 3, 7),
    session.ReadSession(SID, 4),
    session.TouchSession(SID, 4, 1.5),
    session.DeleteSession(SID, 1.5),
    session.SessionAnswer("value", 7, 4, 1.5, CHECKSUM),
    session.HandOver(),
    session.HandedOver(7, 2, 1024, 60.0),
    session.CorruptSession(SID),
]
BODIES: dict[str, msgspec.Struct] = {
    "MapPart": lease.MapPart([("u1", "tcp://u1")], [lease.MapSpan(0, LAST, 12, 9, 0)]),
    "ClusterRows": roles_messages.ClusterRows(
        [
            roles_messages.Component(
                "brick-1", "brick", "n1", 42, "live", 1.5, 2, 0.5, 1024, linked=False
            )
        ],
        [3],
    ),
    "EventRows": roles_messages.EventRows(
        [roles_messages.PastEvent("died", "brick-1", "silent", "node-1", 3, 4, 0.5)]
    ),
    "LeaseRows": roles_messages.LeaseRows(
        ["presence"],
        [
            roles_messages.NamespaceRows(
                "presence",
                4,
                17,
                [
                    roles_messages.OwnerRow(
                        "u1", "tcp://u1", "web-1", 1, 0.5, 1.5, leaving=True, refused="", recalled=1
                    )
                ],
                0.5,
                [roles_messages.RangeRow(0, LAST, 12, 9, 0, recalled=True)],
            )
        ],
        cut=True,
    ),
}
"""What rides in bodies is spoken by old peers too."""
GOLDEN: dict[str, str] = {
    "ask": "980107a6737475622d3103cdea60016391a470696e67",
    "reply": "960207a7627269636b2d31030c91a470696e67",
    "refusal": "950307a462757379b174686520696e626f782069732066756c6cce000186a0",
    "cancel": "920407",
    "news": "9605a7627269636b2d3103046391a470696e67",
    "Ping": "91a470696e67",
    "Pong": "93a4706f6e67a7627269636b2d3103",
    "Beacon": (
        "9ca6626561636f6ea5627269636ba26e312ab17463703a2f2f3132372e302e302e313a37a46c6976"
        "65cb3ff800000000000002c2cb3ff0000000000000a081a3637075cb3fe0000000000000"
    ),
    "Exited": "97a6657869746564a7627269636b2d31032af7a66b696c6c6564c3",
    "Drain": "91a5647261696e",
    "InjectFault": ("94ac696e6a6563742d6661756c74a464726f70cb3fe6666666666666cb403e000000000000"),
    "PeersSeen": (
        "94aa70656572732d7365656ea5627269636bcb3ff00000000000009198a7627269636b2d31"
        "0309060201cb3fe0000000000000cb4040000000000000"
    ),
    "RestartProcess": "94af726573746172742d70726f63657373a7627269636b2d3103a869742068616e6773",
    "ProcessesHeld": (
        "92ae70726f6365737365732d68656c649194a7627269636b2d31a76f66666c696e65a86974206661696c73"
        "cb4004000000000000"
    ),
    "Happening": "94a56576656e74a464696564a7627269636b2d31a673696c656e74",
    "StartProcess": "92ad73746172742d70726f63657373a7627269636b2d31",
    "EndProcess": "93ab656e642d70726f63657373a7627269636b2d31a46b696c6c",
    "PauseProcess": "92ad70617573652d70726f63657373a7627269636b2d31",
    "ResumeProcess": "92ae726573756d652d70726f63657373a7627269636b2d31",
    "ProcessDescribed": (
        "95b170726f636573732d646573637269626564a7627269636b2d312a03cb3fe0000000000000"
    ),
    "DescribeCluster": "91b064657363726962652d636c7573746572",
    "ClusterDescribed": "92b1636c75737465722d64657363726962656406",
    "RecentEvents": "92ad726563656e742d6576656e74730a",
    "EventsDescribed": "92b06576656e74732d6465736372696265640a",
    "DescribeLeases": "93af64657363726962652d6c6561736573a870726573656e6365c3",
    "LeasesDescribed": (
        "95b06c65617365732d646573637269626564a96d616e616765722d3104c3cb3fe0000000000000"
    ),
    "ExplainKey": "93ab6578706c61696e2d6b6579a870726573656e6365ccff",
    "KeyExplained": (
        "dc0010ad6b65792d6578706c61696e6564a96d616e616765722d3104c3c301cfffffffffffffffff"
        "a27531a87463703a2f2f75310c09a3776879cb3ff8000000000000c3cb3fe0000000000000cb4004"
        "000000000000"
    ),
    "AskLeases": (
        "92a96c656173652e61736b919fa870726573656e6365a27531a87463703a2f2f7531a57765622d31"
        "050608090403040ccb3ff8000000000000c2919400cfffffffffffffffff0c09"
    ),
    "LeasesAnswered": (
        "94ae6c656173652e616e73776572656404c39197a870726573656e6365a27531080903a0919400cf"
        "ffffffffffffffff0c09"
    ),
    "AskMap": "95ad6c656173652e61736b5f6d6170a870726573656e636504ff05",
    "MapAnswered": "97a96c656173652e6d6170a870726573656e636504c3c30411",
    "MapTip": "93a96c656173652e746970049193a870726573656e63650411",
    "MapDelta": "97ab6c656173652e64656c7461a870726573656e636504110310c40470617274",
    "LeaseNudge": "94ab6c656173652e6e7564676504a870726573656e636591a27531",
    "StoreSession": (
        "98ad73657373696f6e2e73746f7265c410000102030405060708090a0b0c0d0e0f04cb3ff8000000"
        "000000c410101112131415161718191a1b1c1d1e1f0307c400"
    ),
    "ReadSession": "93ac73657373696f6e2e72656164c410000102030405060708090a0b0c0d0e0f04",
    "TouchSession": (
        "94ad73657373696f6e2e746f756368c410000102030405060708090a0b0c0d0e0f04cb3ff8000000000000"
    ),
    "DeleteSession": (
        "93ae73657373696f6e2e64656c657465c410000102030405060708090a0b0c0d0e0fcb3ff8000000000000"
    ),
    "SessionAnswer": (
        "96ae73657373696f6e2d616e73776572a576616c75650704cb3ff8000000000000c4101011121314"
        "15161718191a1b1c1d1e1f"
    ),
    "HandOver": "91b173657373696f6e2e68616e642d6f766572",
    "HandedOver": "95b373657373696f6e2e68616e6465642d6f7665720702cd0400cb404e000000000000",
    "CorruptSession": "92af73657373696f6e2e636f7272757074c410000102030405060708090a0b0c0d0e0f",
    "MapPart": "929192a27531a87463703a2f2f7531919500cfffffffffffffffff0c0900",
    "ClusterRows": (
        "92919aa7627269636b2d31a5627269636ba26e312aa46c697665cb3ff800000000000002cb3fe000"
        "0000000000cd0400c29103"
    ),
    "EventRows": (
        "919197a464696564a7627269636b2d31a673696c656e74a66e6f64652d310304cb3fe0000000000000"
    ),
    "LeaseRows": (
        "9391a870726573656e63659196a870726573656e636504119199a27531a87463703a2f2f7531a577"
        "65622d3101cb3fe0000000000000cb3ff8000000000000c3a001cb3fe0000000000000919600cfff"
        "ffffffffffffff0c0900c3c3"
    ),
}


def framed(header: bytes, body: bytes = b"") -> bytes:
    return VERSION_BYTE + LENGTHS.pack(len(header), len(body)) + header + body


@pytest.mark.parametrize("name", HEADERS)
def test_header_is_as_old_peers_speak_it(name: str) -> None:
    encoded = encode_header(HEADERS[name])
    assert encoded.hex() == GOLDEN[name]
    [(header, body)], unreadable = unjoin(framed(encoded, b"body"))
    assert (encode_header(header).hex(), body, unreadable) == (GOLDEN[name], b"body", 0)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_is_as_old_peers_speak_it(message: Message) -> None:
    encoded = msgspec.msgpack.encode(message)
    assert encoded.hex() == GOLDEN[type(message).__name__]
    decoder = MessageDecoder(*{type(each) for each in MESSAGES})
    assert decoder.decode(msgspec.Raw(encoded)) == message


@pytest.mark.parametrize("name", BODIES)
def test_body_is_as_old_peers_speak_it(name: str) -> None:
    body = BODIES[name]
    encoded = msgspec.msgpack.encode(body)
    assert encoded.hex() == GOLDEN[name]
    assert msgspec.msgpack.decode(encoded, type=type(body)) == body


def test_every_message_of_ours_has_golden_bytes() -> None:
    ours = {
        kind
        for module in (messages, process_orders, roles_messages, lease, session)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Message) and kind is not Message
    }
    assert {type(message) for message in MESSAGES} == ours


def test_field_added_by_a_newer_peer_is_ignored() -> None:
    newer = bytes.fromhex("93") + bytes.fromhex(GOLDEN["cancel"])[1:] + b"\xc3"
    [(header, _)], unreadable = unjoin(framed(newer))
    assert (header, unreadable) == (Cancel(7), 0)


def test_unreadable_record_spoils_itself_alone() -> None:
    good = encode_header(Cancel(1))
    frame = framed(good) + framed(b"\xc1")[1:] + framed(good)[1:]
    records, unreadable = unjoin(frame)
    assert ([header for header, _ in records], unreadable) == ([Cancel(1), Cancel(1)], 1)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x02" + framed(b"")[1:],
        framed(b"\x92\x04\x01")[:-1],
        VERSION_BYTE + LENGTHS.pack(0, 0xFFFFFFFF),
        VERSION_BYTE + LENGTHS.pack(0xFFFFFFF0, 0),
        VERSION_BYTE + bytes(64 * 1024),
    ],
    ids=["empty", "other version", "cut off", "body missing", "length absurd", "too long"],
)
def test_bad_frame_raises_remote_protocol_error(frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        unjoin(frame)


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_garbage_raises_remote_protocol_error_and_nothing_else(garbage: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        unjoin(garbage)
    with contextlib.suppress(RemoteProtocolError):
        unjoin(VERSION_BYTE + garbage)
    _, unreadable = unjoin(framed(garbage))
    assert unreadable in (0, 1)


def test_endless_nesting_is_unreadable_and_no_more() -> None:
    header = bytes.fromhex(GOLDEN["ask"])[:-6] + b"\x91" * 20_000
    assert unjoin(framed(header)) == ([], 1)
