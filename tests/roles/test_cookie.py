"""Cookies: what is ours is read back, and nothing else is, however near it comes.

Method: a ring with fixed keys; the MAC is checked against the standard library's one-shot HMAC over
the layout as it is documented; where only the content is wrong, forgeries have the real key.
"""

import base64
import hmac
import os
import string
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.errors import CookieCorrupted, StateExpired
from roles.cookie import (
    ENCRYPTED,
    SLACK_S,
    UNSURE,
    Cookie,
    UnknownKey,
    check_expiry,
    decode,
    encode,
    key_hash,
)
from roles.key_ring import Ring, first_ring, rotate

SECRET, STAGED = bytes(range(32)), bytes(range(32, 64))
RING = first_ring(1_000_000, (SECRET, STAGED), "shop")
DAY_S = 86_400.0
COOKIE = Cookie(
    key_hash=b"k" * 16,
    sid=b"s" * 16,
    version=7,
    expires_wall_s=1_763_000_000,
    checksum=b"c" * 16,
    copies=((1, 5), (2, 6), (4, 9)),
    flags=ENCRYPTED,
    horizon_wall_s=1_763_000_100,
)
TEXT = encode(COOKIE, RING)
URL_SAFE = string.ascii_letters + string.digits + "-_"

hashes = st.binary(min_size=16, max_size=16)
u32 = st.integers(0, 2**32 - 1)
cookies = st.builds(
    Cookie,
    key_hash=hashes,
    sid=hashes,
    version=u32,
    expires_wall_s=u32,
    checksum=hashes,
    copies=st.lists(st.tuples(u32, u32), min_size=1, max_size=8).map(tuple),
    flags=st.sampled_from([0, ENCRYPTED, UNSURE, ENCRYPTED | UNSURE]),
    horizon_wall_s=u32,
)


def raw_of(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def text_of(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def signed(body: bytes, application: bytes = b"shop", secret: bytes = SECRET) -> str:
    """The obvious way to sign: documented layout, one-shot HMAC."""
    prefix = len(application).to_bytes(2, "big") + application
    return text_of(body + hmac.digest(secret, prefix + body, "sha256")[:16])


def refused(text: str, ring: Ring = RING) -> str:
    with pytest.raises(CookieCorrupted) as caught:
        decode(text, ring)
    return str(caught.value)


def test_layout_is_the_one_that_is_documented() -> None:
    body = (
        b"\x01"
        + RING.active.id
        + b"\x01"
        + b"k" * 16
        + b"s" * 16
        + struct.pack(">III", 7, 1_763_000_000, 1_763_000_100)
        + b"c" * 16
        + b"\x03"
        + struct.pack(">IIIIII", 1, 5, 2, 6, 4, 9)
    )
    assert signed(body) == TEXT


def test_cookie_of_today_can_be_read_by_every_later_release() -> None:
    golden = (
        "AVxSkgoBa2tra2tra2tra2tra2tra3Nzc3Nzc3Nzc3Nzc3Nzc3MAAAAHaRU-wGkVPyRjY2Nj"
        "Y2NjY2NjY2NjY2NjAwAAAAEAAAAFAAAAAgAAAAYAAAAEAAAACaGpManlgQz2gUKhYhCvyqc"
    )
    assert decode(golden, RING) == COOKIE
    assert golden == TEXT


@given(cookies)
def test_what_was_written_is_read_back_and_is_short(cookie: Cookie) -> None:  # C4
    text = encode(cookie, RING)
    assert decode(text, RING) == cookie
    assert len(text) < 200
    assert set(text) <= set(URL_SAFE)


def test_every_flipped_bit_is_refused() -> None:  # C1
    raw = raw_of(TEXT)
    for bit in range(len(raw) * 8):
        changed = bytearray(raw)
        changed[bit // 8] ^= 1 << bit % 8
        refused(text_of(bytes(changed)))


def test_every_other_letter_at_every_place_is_refused() -> None:  # C2
    for place in range(len(TEXT)):
        for letter in URL_SAFE + "+/= \n\x00é":
            if letter != TEXT[place]:
                refused(TEXT[:place] + letter + TEXT[place + 1 :])


def test_last_letter_with_other_unused_bits_is_another_text_and_refused() -> None:  # C2
    raw = raw_of(TEXT)
    same = [text for text in (TEXT[:-1] + x for x in URL_SAFE) if raw_of(text) == raw]
    assert len(same) == 4, "the last letter of this cookie should have two bits to spare"
    assert [text for text in same if text != TEXT and "as we write it" not in refused(text)] == []


@pytest.mark.parametrize("added", ["=", "==", "\n", " ", "A", "AA", "AAAA", TEXT])
def test_what_is_longer_is_refused(added: str) -> None:  # C2, C4
    refused(TEXT + added)
    refused(added + TEXT)


def test_every_truncation_is_refused() -> None:
    for length in range(len(TEXT)):
        refused(TEXT[:length])
        refused(TEXT[len(TEXT) - length :])


def test_copies_cut_out_or_put_in_are_refused() -> None:
    raw = raw_of(TEXT)
    refused(text_of(raw[:67] + raw[75:]))
    refused(text_of(raw[:67] + raw[67:75] + raw[67:]))


@given(st.text(max_size=210) | st.text(alphabet=URL_SAFE, min_size=120, max_size=210))
def test_text_of_others_is_refused_with_our_error_and_no_other(text: str) -> None:
    refused(text)


@pytest.mark.parametrize("value", [None, 7, TEXT.encode(), bytearray(TEXT, "ascii"), [TEXT]])
def test_what_is_no_text_is_refused(value: object) -> None:
    assert "text was expected" in refused(value)  # type: ignore[arg-type]


def test_very_long_text_is_refused_before_it_is_looked_at() -> None:  # C4
    assert refused("é" * 10_000_000) == "no cookie of ours: longer than 196 characters"


def test_cookie_of_another_application_is_refused_though_the_keys_are_the_same() -> None:  # C3
    other = first_ring(1_000_000, (SECRET, STAGED), "shop2")
    assert "another application" in refused(TEXT, other)
    assert decode(encode(COOKIE, other), other) == COOKIE


def test_name_and_content_cannot_be_shifted_into_each_other() -> None:  # C3
    body = raw_of(TEXT)[:-16]
    refused(signed(body, application=b"sho"))
    refused(text_of(body + hmac.digest(SECRET, b"shop" + body, "sha256")[:16]))


def test_key_that_is_not_on_the_ring_is_told_apart() -> None:  # C3
    other = first_ring(1_000_000, (os.urandom(32), os.urandom(32)), "shop")
    with pytest.raises(UnknownKey, match="a key that is not on the ring"):
        decode(encode(COOKIE, other), RING)


def test_right_key_id_with_a_wrong_secret_is_refused() -> None:
    body = raw_of(TEXT)[:-16]
    assert "was changed" in refused(signed(body, secret=STAGED))


@pytest.mark.parametrize(
    ("place", "value"), [(0, 0), (0, 2), (0, 255), (5, 4), (5, 129), (66, 0), (66, 2), (66, 255)]
)
def test_layout_of_another_release_is_refused_though_it_is_signed(place: int, value: int) -> None:
    """Layout, flags and number of copies, changed before signing."""
    body = bytearray(raw_of(TEXT)[:-16])
    body[place] = value
    assert "of another release" in refused(signed(bytes(body)))


def test_content_is_not_looked_at_before_the_mac_holds() -> None:  # C1
    raw = bytearray(raw_of(TEXT))
    raw[0] = 99
    assert "was changed" in refused(text_of(bytes(raw)))


def test_rotation_logs_nobody_out_and_an_ended_key_is_refused() -> None:
    once = rotate(RING, 2_000_000, os.urandom(32), 30 * DAY_S)
    assert decode(TEXT, once) == COOKIE
    assert decode(encode(COOKIE, once), RING) == COOKIE, "who has the file of before is no worse"
    late = rotate(once, 2_000_000 + 32 * DAY_S, os.urandom(32), 30 * DAY_S)
    refused(TEXT, late)
    assert decode(encode(COOKIE, once), late) == COOKIE


@pytest.mark.parametrize("change", [{"version": 2**32}, {"version": -1}, {"expires_wall_s": -1}])
def test_number_that_does_not_fit_is_refused_when_written(change: dict[str, int]) -> None:
    fields = {name: getattr(COOKIE, name) for name in COOKIE.__struct_fields__}
    with pytest.raises(ValueError, match="a cookie cannot hold this"):
        encode(Cookie(**fields | change), RING)


@pytest.mark.parametrize("copies", [(), tuple((i, i) for i in range(9))])
def test_no_copy_and_nine_copies_are_our_own_mistake(copies: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(AssertionError):
        encode(Cookie(b"k" * 16, b"s" * 16, 1, 1, b"c" * 16, copies), RING)


def test_hash_of_another_length_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        encode(Cookie(b"k" * 15, b"s" * 16, 1, 1, b"c" * 16, ((1, 1),)), RING)


def test_cookie_ends_five_seconds_after_its_time() -> None:
    end = COOKIE.expires_wall_s
    check_expiry(COOKIE, end + SLACK_S - 0.001, DAY_S)
    with pytest.raises(StateExpired, match="ended 5 s ago"):
        check_expiry(COOKIE, end + SLACK_S, DAY_S)


def test_cookie_that_lives_longer_than_any_may_is_not_trusted() -> None:  # C5
    end = COOKIE.expires_wall_s
    check_expiry(COOKIE, end - DAY_S - SLACK_S, DAY_S)
    with pytest.raises(CookieCorrupted, match="from the future: it would live for 86406 s, longer"):
        check_expiry(COOKIE, end - DAY_S - SLACK_S - 1, DAY_S)


def test_hash_of_a_key_depends_on_the_application_and_text_is_its_utf_8() -> None:
    assert key_hash("alicé", "shop") == key_hash("alicé".encode(), "shop")
    assert len({key_hash(k, a) for k in ("alice", "bob") for a in ("shop", "forum")}) == 4
    assert len(key_hash("", "x" * 64)) == 16
