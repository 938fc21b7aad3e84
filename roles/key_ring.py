"""The keys that sign session cookies, and the order in which they come and go. Decides only.

A cookie names the key it is signed with. A new key is first *staged*: it verifies, so that every
machine can know it before the first cookie needs it. The next rotation makes it *active*: it
signs. The one after that makes it *retiring*: it verifies the cookies that are still out there,
and is dropped when none of them can be alive. So there are always two steps between a key's
first copy and its first use, and files may be brought to machines one after another.

    [5f0c1a9e]
    state = "active"
    made_wall_s = 1763000000
    retired_wall_s = 0
    secret = "…64 hexadecimal digits…"

What always holds:
  R1  Exactly one key signs, and exactly one is staged. That one is written last, so that a file of
      which a part is missing, as while it is copied, is no ring.
  R2  A key signs only if an earlier rotation had staged it: who has the file of then can verify.
  R3  A key is kept until what it signed last is over, and a day more for files that were late.
  R4  An id is made from its key, so it can neither be reused by mistake nor outlive damage.
  R5  A secret is in no representation and in no sentence.
  R6  What encrypts values is derived from a key, never the bytes that sign.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b
from hmac import HMAC
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from bus.config_rules import Places, convert, read_tables
from bus.errors import ConfigError

KeyState = Literal["staged", "active", "retiring"]

SECRET_BYTES = 32
ID_BYTES = 4
KEYS_MAX = 1024  # A rotation each hour for a month, and a third more.
COPIED_S_MAX = 86_400.0
"""How long a machine may go on signing with a key after it was retired elsewhere."""

_SECRET = re.compile(r"[0-9a-f]{64}")
_VALUES = b"softstate values"  # `person`: a use of its own for each derived key.
_WALL_S_MAX = 1 << 40

_HEADING = """\
# The keys that sign session cookies: a secret, to be read by their owner alone (mode 0600).
# `softstate keys rotate` renews it; then bring it to every machine before you rotate again.
# Processes read it again within a second of a change.
"""


class RingKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key."""

    secret: bytes
    state: KeyState
    made_wall_s: int
    retired_wall_s: int = 0
    """When it ceased to sign; 0: not yet."""

    @property
    def id(self) -> bytes:
        return key_id(self.secret)

    def __repr__(self) -> str:
        return f"RingKey({self.id.hex()}, {self.state}, made_wall_s={self.made_wall_s})"  # R5


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: KeyState
    made_wall_s: Annotated[int, Meta(ge=0, le=_WALL_S_MAX)]
    secret: str
    retired_wall_s: Annotated[int, Meta(ge=0, le=_WALL_S_MAX)] = 0


class Ring:
    """The keys as one application uses them: which signs, and which are believed."""

    __slots__ = ("_values", "active", "application", "keys", "signer", "verifiers")

    def __init__(self, keys: Iterable[RingKey], application: str) -> None:
        self.keys = tuple(keys)
        trouble = _trouble(self.keys)
        assert not trouble, trouble
        self.application = application
        self.active = next(key for key in self.keys if key.state == "active")
        prefix = _prefixed(application)
        self.verifiers = {key.id: HMAC(key.secret, prefix, "sha256") for key in self.keys}
        """By id, each an HMAC that has the application's name in it already; `copy` it."""
        self.signer = (self.active.id, self.verifiers[self.active.id])
        self._values: dict[bytes, bytes] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ring):
            return NotImplemented
        return (self.keys, self.application) == (other.keys, other.application)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ring({list(self.keys)}, {self.application!r})"

    def value_key(self, identity: bytes) -> bytes | None:
        """What the values of this application are encrypted with under the key `identity`; None
        if there is no such key."""
        found = self._values.get(identity)
        if found is None:
            secret = next((key.secret for key in self.keys if key.id == identity), None)
            if secret is None:
                return None
            name = _prefixed(self.application)
            found = blake2b(name, digest_size=32, key=secret, person=_VALUES).digest()  # R6
            self._values[identity] = found
        return found


def key_id(secret: bytes) -> bytes:
    """R4."""
    return blake2b(secret).digest()[:ID_BYTES]


def first_ring(now_wall_s: float, secrets: tuple[bytes, bytes], application: str = "") -> Ring:
    """A key that signs, and the one that will be next."""
    signs, next_one = secrets
    made = int(now_wall_s)
    return Ring(
        [
            RingKey(secret=signs, state="active", made_wall_s=made),
            RingKey(secret=next_one, state="staged", made_wall_s=made),
        ],
        application,
    )


def rotate(ring: Ring, now_wall_s: float, new_secret: bytes, lifetime_s: float) -> Ring:
    """The ring after one rotation: `new_secret` is staged. ConfigError if it has no room.

    `lifetime_s` is the longest that a cookie lives. Nobody is logged out by it.
    """
    at = int(now_wall_s)
    keys = [
        _one_further(key, at)
        for key in ring.keys
        if key.state != "retiring" or key.retired_wall_s + lifetime_s + COPIED_S_MAX >= at  # R3
    ]
    keys.append(RingKey(secret=new_secret, state="staged", made_wall_s=at))
    if len(keys) > KEYS_MAX:
        raise ConfigError(
            f"the key ring has {KEYS_MAX} keys, all of which may have signed a session that still "
            "lives; rotate less often"
        )
    return Ring(keys, ring.application)


def _one_further(key: RingKey, at: int) -> RingKey:
    match key.state:
        case "staged":
            return msgspec.structs.replace(key, state="active")  # R2
        case "active":
            return msgspec.structs.replace(key, state="retiring", retired_wall_s=at)
        case "retiring":
            return key


def ring_text(ring: Ring) -> str:
    """`parse_ring(ring_text(ring), "", ring.application) == ring`."""
    tables = [
        f'\n[{key.id.hex()}]\nstate = "{key.state}"\nmade_wall_s = {key.made_wall_s}\n'
        f'retired_wall_s = {key.retired_wall_s}\nsecret = "{key.secret.hex()}"\n'
        for key in ring.keys
    ]
    return _HEADING + "".join(tables)


def parse_ring(text: str, source: str, application: str) -> Ring:
    """The ring in `text`; a ConfigError that names the line if it is not a whole, sound one."""
    tables, lines = read_tables(text, source)
    places = Places(source, lines, {})
    keys = []
    for name, table in tables.items():
        entry = convert(table, _Entry, (name,), places)
        if not _SECRET.fullmatch(entry.secret):
            places.refuse((name, "secret"), "not 64 hexadecimal digits; copy the file again")  # R5
        key = RingKey(
            secret=bytes.fromhex(entry.secret),
            state=entry.state,
            made_wall_s=entry.made_wall_s,
            retired_wall_s=entry.retired_wall_s,
        )
        if key.id.hex() != name:  # R4
            places.refuse((name, "secret"), "not the key of this id; copy the file again")
        keys.append(key)
    if trouble := _trouble(keys):
        raise ConfigError(f"{source}:1: {trouble}; copy the file again, or undo what was changed")
    return Ring(keys, application)


def _trouble(keys: Iterable[RingKey]) -> str:
    """What is wrong with these together; empty for nothing. R1."""
    states = [key.state for key in keys]
    if states.count("active") != 1:
        return f"exactly one key must be active, not {states.count('active')}"
    if states.count("staged") != 1:
        return f"exactly one key must be staged, not {states.count('staged')}"
    if len(states) > KEYS_MAX:
        return f"more than {KEYS_MAX} keys"
    if len({key.id for key in keys}) < len(states):
        return "two keys with one id"
    return ""


def _prefixed(application: str) -> bytes:
    """The name with its length before it, so that no name and text pass for another's."""
    name = application.encode()
    return len(name).to_bytes(2, "big") + name
