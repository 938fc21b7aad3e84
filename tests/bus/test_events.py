"""Events: the ring is bounded and free of repeats; a line is one line. Plain values in and out."""

from hypothesis import given
from hypothesis import strategies as st

from bus.events import Event, EventRing, duration, line, merge


def event(sequence: int, *, by: str = "node-1", heard_at: float = 0.0, reason: str = "") -> Event:
    return Event("died", "brick-2", reason, by, 7, sequence, heard_at)


def test_ring_keeps_the_newest_oldest_first() -> None:
    ring = EventRing(capacity=3)
    assert [ring.add(event(n)) for n in range(5)] == [True] * 5
    assert ring.recent() == [event(2), event(3), event(4)]
    assert len(ring) == 3


def test_recent_gives_as_many_as_asked_for() -> None:
    ring = EventRing()
    for n in range(5):
        ring.add(event(n))
    assert ring.recent(2) == [event(3), event(4)]
    assert ring.recent(0) == []
    assert ring.recent(99) == [event(n) for n in range(5)]


def test_ring_takes_no_event_twice() -> None:
    ring = EventRing()
    assert ring.add(event(1, heard_at=5.0))
    assert not ring.add(event(1, heard_at=6.0))
    assert ring.add(event(1, by="node-2", heard_at=7.0))
    assert ring.recent() == [event(1, heard_at=5.0), event(1, by="node-2", heard_at=7.0)]


def test_merge_keeps_each_event_once_as_first_heard_in_order_of_time() -> None:
    mine = [event(1, heard_at=1.0), event(2, heard_at=2.0)]
    theirs = [event(2, heard_at=1.9), event(3, heard_at=0.5), event(1, heard_at=1.1)]
    assert merge(mine + theirs) == [
        event(3, heard_at=0.5),
        event(1, heard_at=1.0),
        event(2, heard_at=1.9),
    ]


def test_line_says_when_what_to_whom_why_and_who_says_so() -> None:
    assert (
        line(event(1, reason="no beacon for 3.0 s"), "12:03:44")
        == "12:03:44  died        brick-2       no beacon for 3.0 s (by node-1)"
    )


def test_line_leaves_out_who_says_so_when_it_is_the_subject() -> None:
    told = Event("started", "hub-1", "", "hub-1", 1, 1, 0.0)
    assert line(told, "12:03:44") == "12:03:44  started     hub-1"


def test_line_cuts_what_is_too_long() -> None:
    assert line(event(1, reason="x" * 401), "now").endswith(" " + "x" * 400 + "… (by node-1)")


@given(st.text(), st.text(), st.text(), st.text())
def test_line_is_one_printable_line(kind: str, subject: str, reason: str, by: str) -> None:
    text = line(Event(kind, subject, reason, by, 1, 1, 0.0), "12:03:44")
    assert text.isprintable()


def test_duration_is_a_word_or_two() -> None:
    told = {s: duration(s) for s in (-1.0, 0.04, 9.94, 9.96, 119.9, 120.0, 7199.0, 7200.0, 2e5)}
    assert told == {
        -1.0: "0.0 s",
        0.04: "0.0 s",
        9.94: "9.9 s",
        9.96: "9 s",
        119.9: "119 s",
        120.0: "2 min",
        7199.0: "119 min",
        7200.0: "2 h",
        2e5: "2 d",
    }
