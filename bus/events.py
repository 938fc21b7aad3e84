"""Notable things that happened, as one process remembers them, and as a person reads them.

An event is a `Happening` heard on the bus, with who said it and when it was heard here. `by`,
`incarnation` and `sequence` name it in the whole cluster, so what several processes remember of
the same minute can be put together. `heard_at` is a time of this process alone: what leaves the
process carries an age instead.

What always holds:
  E1  A ring keeps the newest `capacity` events and no event twice.
  E2  A line of text is one line of printable characters, whatever a peer put into its words.
"""

from collections.abc import Iterable

import msgspec

EVENTS_MAX = 1000  # Per process; at about 300 bytes each.
WORD_LENGTH_MAX = 64
REASON_LENGTH_MAX = 400

_KIND_WIDTH = 10
_SUBJECT_WIDTH = 12


class Event(msgspec.Struct, frozen=True):
    """Something that happened to `subject`, as `by` said and we heard."""

    kind: str
    subject: str
    reason: str
    by: str
    incarnation: int
    sequence: int
    heard_at: float

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells this event from every other in the cluster."""
        return (self.by, self.incarnation, self.sequence)


class EventRing:
    """The newest events of this process, oldest first."""

    def __init__(self, capacity: int = EVENTS_MAX) -> None:
        assert capacity > 0
        self._capacity = capacity
        self._events: dict[tuple[str, int, int], Event] = {}  # In the order they were heard.

    def __len__(self) -> int:
        return len(self._events)

    def add(self, event: Event) -> bool:
        """Keep `event`; False if it is here already."""
        if event.key in self._events:
            return False
        self._events[event.key] = event
        if len(self._events) > self._capacity:  # E1
            del self._events[next(iter(self._events))]
        return True

    def recent(self, count: int = EVENTS_MAX) -> list[Event]:
        """The last `count`, oldest first."""
        events = list(self._events.values())
        return events[max(0, len(events) - count) :]


def merge(events: Iterable[Event]) -> list[Event]:
    """What several processes remember, each event once, oldest first.

    They heard one event at slightly different times; the earliest is nearest to the truth.
    """
    merged: dict[tuple[str, int, int], Event] = {}
    for event in events:
        known = merged.get(event.key)
        if known is None or event.heard_at < known.heard_at:
            merged[event.key] = event
    return sorted(merged.values(), key=lambda event: (event.heard_at, event.key))


def line(event: Event, when: str) -> str:
    """One event for a person: `12:03:44  died  brick-2  no beacon for 3.0 s (by node-1)`."""
    kind = printable(event.kind, WORD_LENGTH_MAX)
    subject = printable(event.subject, WORD_LENGTH_MAX)
    reason = printable(event.reason, REASON_LENGTH_MAX)
    by = "" if event.by == event.subject else f"(by {printable(event.by, WORD_LENGTH_MAX)})"
    words = f"{when}  {kind:<{_KIND_WIDTH}}  {subject:<{_SUBJECT_WIDTH}}  {reason} {by}"
    return words.rstrip()


def duration(seconds: float) -> str:
    """A length of time in a word or two: `0.4 s`, `12 s`, `3 min`, `5 h`, `2 d`."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    for unit, length_s, below in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < below:
            return f"{int(seconds // length_s)} {unit}"
    return f"{int(seconds // 86_400)} d"


def printable(text: str, length_max: int) -> str:
    """E2: a peer's words may hold newlines or terminal escapes; a screen must not obey them."""
    clean = "".join(letter if letter.isprintable() else "·" for letter in text[:length_max])
    return clean + ("…" if len(text) > length_max else "")
