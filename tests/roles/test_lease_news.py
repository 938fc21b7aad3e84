"""What a leading manager says fits on the wire, and nothing of it is lost that nobody asks for.

Method: messages larger than a header may be go in; what comes out is encoded as the bus does it.
"""

from bus.frames import encode_header, raw
from bus.headers import News
from bus.messages import Message
from roles.lease_messages import (
    LeaseNudge,
    MapDelta,
    MapPart,
    MapSpan,
    MapTip,
    encode_part,
)
from roles.lease_news import news
from roles.manager import NAME_LENGTH_MAX

LONGEST = "é" * NAME_LENGTH_MAX
"""Two bytes a letter."""


def sent(message: Message) -> None:
    """As `bus.news` does: ValueError if it is too long."""
    encode_header(News(LONGEST, 1 << 60, 1 << 60, 1 << 60, raw(message)))


def test_short_news_goes_out_as_it_is() -> None:
    tip = MapTip(3, [("presence", 3, 9)])
    nudge = LeaseNudge(3, "presence", ["u1"])
    delta = MapDelta("presence", 3, 9, 3, 8, b"part")
    assert news(tip) == [("lease.tip", tip)]
    assert news(nudge) == [("lease.nudge", nudge)]
    assert news(delta) == [("lease.map.presence", delta)]


def test_tip_of_no_namespace_is_news_too() -> None:
    assert news(MapTip(3, [])) == [("lease.tip", MapTip(3, []))]  # Who leads is worth knowing.


def test_long_tips_and_nudges_go_out_in_parts_that_lose_nothing() -> None:  # F1
    versions = [(f"{i}{LONGEST}", 3, i) for i in range(1000)]
    owners = [f"{i}{LONGEST}" for i in range(10_000)]
    tips = [piece for _, piece in news(MapTip(3, versions))]
    nudges = [piece for _, piece in news(LeaseNudge(3, LONGEST, owners))]
    for piece in [*tips, *nudges]:
        sent(piece)
    assert [each for tip in tips if isinstance(tip, MapTip) for each in tip.versions] == versions
    told = [each for nudge in nudges if isinstance(nudge, LeaseNudge) for each in nudge.owners]
    assert told == owners


def test_change_that_is_too_long_is_left_to_be_asked_for() -> None:  # F1
    spans = [MapSpan(i << 40, (i << 40) + 1, (1 << 61) + i, 1 << 61, 0) for i in range(1000)]
    part = encode_part(MapPart([("u1", "tcp://u1")], spans))
    assert news(MapDelta("presence", 3, 9, 3, 8, part)) == []
    almost = encode_part(MapPart([("u1", "tcp://u1")], spans[:500]))
    [(_, piece)] = news(MapDelta(LONGEST, 3, 9, 3, 8, almost))
    sent(piece)
