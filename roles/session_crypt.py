"""Values that bricks cannot read: AES-256-GCM with keys that stay with the stubs. Decides only.

    1 layout | 4 key id | 12 nonce | ciphertext | 16 tag

The key id is of the ring's key that was active when the value was sealed; the cookie's may be a
later one, as a touch writes a new cookie but no new value.

What always holds:
  S1  Each session has a key of its own, derived from the ring's, so that random nonces never come
      close to the number at which they repeat, however many sessions there are.
  S2  A value opens only as the session and the version it was sealed as: a brick can neither swap
      two nor bring an old one back as new.
  S3  Whatever does not open is StateCorrupted, and nothing of it is returned. If that is for want
      of its key, it is KeyGone: trying again, or another copy, does not help.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING

from bus.errors import ConfigError, StateCorrupted
from roles.key_ring import ID_BYTES, Ring

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

LAYOUT = b"\x01"
NONCE_BYTES = 12
TAG_BYTES = 16
OVERHEAD_BYTES = len(LAYOUT) + ID_BYTES + NONCE_BYTES + TAG_BYTES
"""By how much a sealed value is longer."""

_HEAD_BYTES = len(LAYOUT) + ID_BYTES
_SESSION = b"session value"


class KeyGone(StateCorrupted):
    """Encrypted with a key that is not on the ring: it was removed, and nobody can read it."""


class ValueCrypt:
    """`draw(n)` gives n random bytes: `os.urandom`."""

    def __init__(self, draw: Callable[[int], bytes]) -> None:
        """ConfigError if the package it takes is not installed."""
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise ConfigError(
                "[sessions] encrypt = true needs `cryptography`, which is not installed; install "
                "it with `pip install 'softstate[crypt]'`, or set encrypt = false"
            ) from error
        self._draw = draw
        self._cipher, self._invalid = AESGCM, InvalidTag

    def seal(self, value: bytes, ring: Ring, sid: bytes, version: int) -> bytes:
        """What a brick gets."""
        head = LAYOUT + ring.active.id
        key = ring.value_key(ring.active.id)
        assert key is not None, "the active key is on the ring"
        nonce = self._draw(NONCE_BYTES)
        cipher = self._cipher_of(key, sid)
        return head + nonce + cipher.encrypt(nonce, value, _beside(head, sid, version))

    def open(self, sealed: bytes, ring: Ring, sid: bytes, version: int) -> bytes:
        """The value that was sealed as this version of this session, or StateCorrupted."""
        if len(sealed) < OVERHEAD_BYTES or sealed[:1] != LAYOUT:
            raise StateCorrupted("a value that is not encrypted as ours are")
        head = sealed[:_HEAD_BYTES]
        key = ring.value_key(sealed_by(sealed))
        if key is None:
            raise KeyGone("a value encrypted with a key that is not on the ring")  # S3
        nonce = sealed[_HEAD_BYTES : _HEAD_BYTES + NONCE_BYTES]
        rest = memoryview(sealed)[_HEAD_BYTES + NONCE_BYTES :]
        try:
            return self._cipher_of(key, sid).decrypt(nonce, rest, _beside(head, sid, version))
        except self._invalid as error:  # S3
            raise StateCorrupted("a value that was changed, or is another session's") from error

    def _cipher_of(self, key: bytes, sid: bytes) -> "AESGCM":
        return self._cipher(blake2b(sid, digest_size=32, key=key, person=_SESSION).digest())  # S1


def sealed_by(sealed: bytes) -> bytes:
    """The id of the key it is encrypted with. If that is no longer the active one, write it anew:
    a session that is only ever touched would otherwise outlive its key."""
    return bytes(sealed[len(LAYOUT) : _HEAD_BYTES])


def _beside(head: bytes, sid: bytes, version: int) -> bytes:
    return head + sid + version.to_bytes(8, "big")  # S2
