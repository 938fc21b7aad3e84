"""Where a session is, as text that its user keeps: signed, so that nobody else can make one.

The stub keeps no table of sessions; all it has to know is in the cookie. The bytes, big-endian,
then written as base64url without padding:

    1 layout | 4 key id | 1 flags | 16 hash of the key | 16 session id | 4 version | 4 expiry
    4 horizon | 16 checksum | 1 number of copies | 4 brick, 4 data incarnation: of each | 16 MAC

The MAC is HMAC-SHA256, cut to 16 bytes, over the application's name and all that stands before
it. What is signed can be read by whoever has the cookie; it is not secret. Decides only.

What always holds:
  C1  Nothing but the length and the key id is looked at before the MAC holds.
  C2  One cookie has one text: whatever differs from what we would write ourselves is refused.
  C3  A cookie of another application, or of a key that the ring does not have, is none of ours.
  C4  Its text is shorter than 200 characters, and a longer one costs us nothing.
  C5  A cookie that ends later than any of ours can is not trusted, signed or not.
"""

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from functools import lru_cache
from hashlib import blake2b
from hmac import compare_digest
from struct import Struct
from struct import error as StructError  # noqa: N812 (an exception, named as one)

import msgspec

from bus.errors import CookieCorrupted, StateExpired
from roles.key_ring import Ring

LAYOUT = 1
COPIES_MAX = 8
HASH_BYTES = 16
ENCRYPTED = 1  # A bit of `flags`.
UNSURE = 2
"""Another: not all of the bricks it names need have the session; see `Stub.load`."""
_FLAGS = ENCRYPTED | UNSURE
SLACK_S = 5.0
"""How far the wall clocks of two machines may differ."""

_MAC_BYTES = 16
_SHAPES = [Struct(">B4sB16s16sIII16sB" + "II" * count) for count in range(COPIES_MAX + 1)]
_BY_LENGTH = {shape.size + _MAC_BYTES: shape for shape in _SHAPES[1:]}
_TEXT_MAX = -(-max(_BY_LENGTH) * 4 // 3)
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_", b"+/")


class Cookie(msgspec.Struct, frozen=True, gc=False):
    """One version of one session, and who had it when it was written."""

    key_hash: bytes
    """`key_hash` of what the application calls the session."""
    sid: bytes
    version: int
    expires_wall_s: int
    """Wall clock, whole seconds. The one instant that leaves a machine: see `SLACK_S`."""
    checksum: bytes
    copies: tuple[tuple[int, int], ...]
    """Number of the brick, and data incarnation: one to eight of them."""
    flags: int = 0
    horizon_wall_s: int = 0
    """No cookie of this session, however old, ends later than that or this one's expiry."""

    @property
    def encrypted(self) -> bool:
        return bool(self.flags & ENCRYPTED)

    @property
    def unsure(self) -> bool:
        return bool(self.flags & UNSURE)


class UnknownKey(CookieCorrupted):
    """Signed, if at all, with a key we do not have: perhaps one that came a moment ago."""


def encode(cookie: Cookie, ring: Ring) -> str:
    """The cookie as text. ValueError for a number that does not fit, as a version over 2**32."""
    copies = cookie.copies
    assert 1 <= len(copies) <= COPIES_MAX, f"{len(copies)} copies"  # C4
    # `Struct` would cut or fill what has another length, and say nothing.
    assert len(cookie.key_hash) == len(cookie.sid) == len(cookie.checksum) == HASH_BYTES
    identity, signer = ring.signer
    try:
        signed = _SHAPES[len(copies)].pack(
            LAYOUT,
            identity,
            cookie.flags,
            cookie.key_hash,
            cookie.sid,
            cookie.version,
            cookie.expires_wall_s,
            cookie.horizon_wall_s,
            cookie.checksum,
            len(copies),
            *[number for copy in copies for number in copy],
        )
    except StructError as error:
        raise ValueError(f"a cookie cannot hold this: {error}") from error
    mac = signer.copy()
    mac.update(signed)
    return _text(signed + mac.digest()[:_MAC_BYTES]).decode()


def decode(text: str, ring: Ring) -> Cookie:
    """The cookie in `text`. CookieCorrupted, and nothing else, for whatever is none of ours."""
    raw = _bytes(text)
    shape = _BY_LENGTH.get(len(raw))
    if shape is None:
        raise CookieCorrupted("no cookie of ours: it has another length")
    verifier = ring.verifiers.get(raw[1:5])
    if verifier is None:
        raise UnknownKey("a cookie signed with a key that is not on the ring")  # C3
    mac = verifier.copy()
    mac.update(raw[:-_MAC_BYTES])
    if not compare_digest(mac.digest()[:_MAC_BYTES], raw[-_MAC_BYTES:]):  # C1, C3
        raise CookieCorrupted("a cookie that was changed, or signed by another application")
    fields = shape.unpack_from(raw)
    layout, _, flags, key, sid, version, expires_wall_s, horizon_wall_s, checksum, count = fields[
        :10
    ]
    if layout != LAYOUT or flags & ~_FLAGS or _SHAPES[min(count, COPIES_MAX)] is not shape:
        raise CookieCorrupted(f"a cookie in layout {layout}, of another release of ours")
    copies = tuple(zip(fields[10::2], fields[11::2], strict=True))
    return Cookie(key, sid, version, expires_wall_s, checksum, copies, flags, horizon_wall_s)


def check_expiry(cookie: Cookie, wall_s: float, ttl_s_max: float) -> None:
    """StateExpired if its time is over; CookieCorrupted if it ends later than it can."""
    left_s = cookie.expires_wall_s - wall_s
    if left_s <= -SLACK_S:
        raise StateExpired(f"the session ended {-left_s:.0f} s ago")
    if left_s > ttl_s_max + SLACK_S:  # C5
        raise CookieCorrupted(
            f"a cookie from the future: it would live for {left_s:.0f} s, longer than any may "
            f"({ttl_s_max:.0f} s); is a clock wrong, or was ttl_s_max lowered?"
        )


def key_hash(key: str | bytes, application: str) -> bytes:
    """Which session of the application it is. Text counts as its UTF-8."""
    content = key.encode() if isinstance(key, str) else key
    return blake2b(content, digest_size=HASH_BYTES, person=_person(application)).digest()


@lru_cache(maxsize=64)
def _person(application: str) -> bytes:
    return blake2b(application.encode(), digest_size=blake2b.PERSON_SIZE).digest()


def _bytes(text: str) -> bytes:
    if not isinstance(text, str):
        raise CookieCorrupted(f"no cookie of ours: text was expected, not {type(text).__name__}")
    if len(text) > _TEXT_MAX:  # C4
        raise CookieCorrupted(f"no cookie of ours: longer than {_TEXT_MAX} characters")
    try:
        written = text.encode("ascii")
        raw = a2b_base64(written.translate(_FROM_URL) + b"==")
    except (UnicodeEncodeError, Base64Error) as error:
        raise CookieCorrupted("no cookie of ours: not base64url") from error
    if _text(raw) != written:  # C2: other bits in the last letter, `+` for `-`, spaces between.
        raise CookieCorrupted("no cookie of ours: not base64url as we write it")
    return raw


def _text(raw: bytes) -> bytes:
    return b2a_base64(raw, newline=False).translate(_TO_URL, b"=")
