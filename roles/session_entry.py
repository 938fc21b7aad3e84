"""One session in a brick's memory, and the table of those that end with it. Shapes only."""

import msgspec


class Table:
    """Sessions and marks that end at about the same time."""

    __slots__ = ("began_at", "ends_at", "sids")

    def __init__(self, began_at: float, ends_at: float) -> None:
        self.began_at = began_at
        self.ends_at = ends_at
        self.sids: set[bytes] = set()


class Entry(msgspec.Struct, gc=False):
    """Not seen by the garbage collector, which would walk through millions of them."""

    value: bytes | None
    """None: a mark."""
    checksum: bytes
    version: int
    expires_at: float
    table: Table
