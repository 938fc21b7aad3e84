"""Encrypted values: they open for the session and version they were sealed as, and else never.

Method: the real cipher with rings of fixed keys; every bit of a sealed value is flipped once. The
missing package is made missing for the import system, which is what the code would meet.
"""

import os
import sys
from hashlib import blake2b

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from bus.errors import ConfigError, StateCorrupted
from roles.key_ring import Ring, first_ring, rotate
from roles.session_crypt import NONCE_BYTES, OVERHEAD_BYTES, KeyGone, ValueCrypt, sealed_by

LIFETIME_S = 30 * 86_400.0
RING = first_ring(1000, (b"a" * 32, b"b" * 32), "shop")
SID = b"s" * 16
CRYPT = ValueCrypt(os.urandom)


def refused(sealed: bytes, ring: Ring = RING, sid: bytes = SID, version: int = 3) -> str:
    with pytest.raises(StateCorrupted) as caught:
        CRYPT.open(sealed, ring, sid, version)
    return str(caught.value)


@given(st.binary(max_size=4096), st.binary(min_size=16, max_size=16), st.integers(0, 2**32 - 1))
def test_what_was_sealed_opens_and_is_longer_by_what_we_say(
    value: bytes, sid: bytes, version: int
) -> None:
    sealed = CRYPT.seal(value, RING, sid, version)
    assert CRYPT.open(sealed, RING, sid, version) == value
    assert len(sealed) == len(value) + OVERHEAD_BYTES
    assert len(value) < 8 or value not in sealed


def test_layout_is_the_one_that_is_documented() -> None:  # S1, S2
    """Opened with the bare cipher: layout, key id, nonce; key of the session; what is beside."""
    sealed = CRYPT.seal(b"a value", RING, SID, 3)
    assert sealed[:5] == b"\x01" + RING.active.id
    of_ring = blake2b(b"\x00\x04shop", key=b"a" * 32, digest_size=32, person=b"softstate values")
    key = blake2b(SID, key=of_ring.digest(), digest_size=32, person=b"session value").digest()
    beside = sealed[:5] + SID + (3).to_bytes(8, "big")
    assert AESGCM(key).decrypt(sealed[5:17], sealed[17:], beside) == b"a value"


def test_every_flipped_bit_is_found() -> None:  # S3
    sealed = CRYPT.seal(b"a value", RING, SID, 3)
    for bit in range(len(sealed) * 8):
        changed = bytearray(sealed)
        changed[bit // 8] ^= 1 << bit % 8
        refused(bytes(changed))


def test_every_truncation_is_found() -> None:  # S3
    sealed = CRYPT.seal(b"a value", RING, SID, 3)
    for length in range(len(sealed)):
        refused(sealed[:length])
    refused(sealed + b"\x00")


@given(st.binary(max_size=200))
def test_bytes_of_others_are_corrupted_and_no_other_error(sealed: bytes) -> None:  # S3
    refused(sealed)


def test_value_of_another_session_or_version_does_not_open() -> None:  # S2
    sealed = CRYPT.seal(b"a value", RING, SID, 3)
    assert "is another session's" in refused(sealed, sid=b"t" * 16)
    assert "is another session's" in refused(sealed, version=2)


def test_value_of_another_application_does_not_open_though_the_keys_are_the_same() -> None:
    sealed = CRYPT.seal(b"a value", RING, SID, 3)
    refused(sealed, ring=Ring(RING.keys, "forum"))


def test_value_outlives_rotation_as_long_as_its_key_does() -> None:
    sealed = CRYPT.seal(b"a value", RING, SID, 3)
    once = rotate(RING, 2000, b"c" * 32, LIFETIME_S)
    assert CRYPT.open(sealed, once, SID, 3) == b"a value"
    assert sealed_by(sealed) == RING.active.id != once.active.id
    assert sealed_by(CRYPT.seal(b"a value", once, SID, 3)) == once.active.id
    late = rotate(once, 2000 + LIFETIME_S + 90_000, b"d" * 32, LIFETIME_S)
    with pytest.raises(KeyGone, match="a key that is not on the ring"):  # S3
        CRYPT.open(sealed, late, SID, 3)


def test_same_value_sealed_twice_looks_different() -> None:
    seals = {CRYPT.seal(b"a value", RING, SID, 3) for _ in range(100)}
    assert len({sealed[5 : 5 + NONCE_BYTES] for sealed in seals}) == 100


def test_session_has_a_key_of_its_own() -> None:  # S1
    """With one nonce for all, one key would make one keystream: equal values, equal bytes."""
    still = ValueCrypt(lambda count: b"n" * count)
    one, other = (still.seal(b"\x00" * 64, RING, sid, 3)[17:81] for sid in (SID, b"t" * 16))
    assert one != other


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(ConfigError, match=r"install it with `pip install 'softstate\[crypt\]'`"):
        ValueCrypt(os.urandom)
