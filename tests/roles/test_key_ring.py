"""The key ring: rotations log nobody out, and a damaged text is never a ring.

Method: rotations at written-out times, with fixed keys; then random sequences of rotations against
machines that lag behind by up to one file, where every cookie must be believed everywhere.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.errors import ConfigError
from roles.cookie import Cookie, decode, encode
from roles.key_ring import (
    COPIED_S_MAX,
    KEYS_MAX,
    Ring,
    RingKey,
    first_ring,
    key_id,
    parse_ring,
    ring_text,
    rotate,
)

DAY_S = 86_400
LIFETIME_S = 30 * DAY_S


def secret(number: int) -> bytes:
    return number.to_bytes(32, "big")


def key(number: int, state: str, made: int, retired: int = 0) -> RingKey:
    return RingKey(secret=secret(number), state=state, made_wall_s=made, retired_wall_s=retired)  # type: ignore[arg-type]


FIRST = first_ring(1000, (secret(1), secret(2)), "shop")


def test_first_ring_has_a_key_that_signs_and_the_next_one() -> None:
    assert FIRST.keys == (key(1, "active", 1000), key(2, "staged", 1000))


def test_rotation_moves_each_key_one_state_further() -> None:  # R1, R2
    once = rotate(FIRST, 2000.9, secret(3), LIFETIME_S)
    assert once.keys == (
        key(1, "retiring", 1000, 2000),
        key(2, "active", 1000),
        key(3, "staged", 2000),
    )
    assert once.active == key(2, "active", 1000)
    assert once.application == "shop"


def test_key_is_dropped_when_nothing_that_it_signed_can_live() -> None:  # R3
    once = rotate(FIRST, 2000, secret(3), LIFETIME_S)
    last = 2000 + LIFETIME_S + int(COPIED_S_MAX)
    kept = rotate(once, last, secret(4), LIFETIME_S)
    dropped = rotate(once, last + 1, secret(4), LIFETIME_S)
    assert [k.secret for k in kept.keys] == [secret(n) for n in (1, 2, 3, 4)]
    assert [k.secret for k in dropped.keys] == [secret(n) for n in (2, 3, 4)]


def test_active_key_is_kept_however_old_it_is() -> None:  # R3
    once = rotate(FIRST, 1000 + 100 * LIFETIME_S, secret(3), LIFETIME_S)
    assert [k.state for k in once.keys] == ["retiring", "active", "staged"]


def test_ring_that_is_full_is_refused_rather_than_anyone_logged_out() -> None:
    old = [key(number, "retiring", 1000, 8000) for number in range(3, KEYS_MAX)]
    ring = rotate(Ring([*old, *FIRST.keys], "shop"), 8000, secret(9998), LIFETIME_S)
    assert len(ring.keys) == KEYS_MAX
    with pytest.raises(ConfigError, match=r"has 1024 keys, .* rotate less often"):
        rotate(ring, 9000, secret(9999), LIFETIME_S)
    later = rotate(ring, 9000 + LIFETIME_S + DAY_S, secret(9999), LIFETIME_S)
    assert len(later.keys) == 3


@given(st.integers(0, 2**32), st.integers(5, 40))
def test_cookie_is_believed_by_every_machine_that_is_at_most_one_rotation_behind(  # R2, R3
    seed: int, steps: int
) -> None:
    """Four machines share a ring. Each gets the file of a rotation at some time before the next
    one; meanwhile all of them sign, and what lives must be believed by all of them."""
    chance = random.Random(seed)
    ring, machines, now, number = FIRST, [FIRST] * 4, 1000.0, 2
    alive: list[tuple[float, str]] = []
    for _ in range(steps):
        behind = list(range(len(machines)))
        chance.shuffle(behind)
        number += 1
        ring = rotate(ring, now, secret(number), LIFETIME_S)
        while behind:
            signer = chance.choice(machines)
            cookie = Cookie(b"k" * 16, b"s" * 16, 1, int(now + LIFETIME_S), b"c" * 16, ((1, 1),))
            alive.append((now + LIFETIME_S, encode(cookie, signer)))
            now += chance.choice([1.0, 600.0, COPIED_S_MAX / 5])
            alive = [(until, text) for until, text in alive if until > now]
            for machine in machines:
                for _, text in alive[-8:] + alive[:8]:
                    decode(text, machine)
            machines[behind.pop()] = ring
        now += chance.choice([0.0, 7.0 * DAY_S, 40.0 * DAY_S])
        alive = [(until, text) for until, text in alive if until > now]


def test_text_is_read_back_as_the_same_ring() -> None:
    ring = rotate(FIRST, 2000, secret(3), LIFETIME_S)
    assert parse_ring(ring_text(ring), "sessions.keys", "shop") == ring
    assert parse_ring(ring_text(ring), "sessions.keys", "forum") != ring


def test_every_changed_digit_of_an_id_or_a_secret_is_found() -> None:  # R4
    text = ring_text(FIRST)
    first, second = (k.secret.hex() for k in FIRST.keys)
    ids = [k.id.hex() for k in FIRST.keys]
    for word in (*ids, first, second):
        start = text.index(word)
        for place in range(start, start + len(word)):
            digit = "1" if text[place] == "0" else "0"
            with pytest.raises(ConfigError, match="not the key of this id"):
                parse_ring(text[:place] + digit + text[place + 1 :], "sessions.keys", "shop")


def test_text_of_which_the_end_is_missing_is_no_ring() -> None:  # R1
    ring = rotate(FIRST, 2000, secret(3), LIFETIME_S)
    text = ring_text(ring).rstrip()
    assert parse_ring(text, "sessions.keys", "shop") == ring
    for length in range(len(text)):
        with pytest.raises(ConfigError, match=r"^sessions\.keys:"):
            parse_ring(text[:length], "sessions.keys", "shop")


GOOD = ring_text(FIRST)
A, B = (k.id.hex() for k in FIRST.keys)
SECRET_1 = secret(1).hex()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "sessions.keys:1: exactly one key must be active, not 0"),
        ("# nothing\n", "sessions.keys:1: exactly one key must be active, not 0"),
        (GOOD.replace('"staged"', '"active"'), "exactly one key must be active, not 2"),
        (GOOD.replace('"active"', '"staged"'), "exactly one key must be active, not 0"),
        (GOOD.replace('"staged"', '"retiring"'), "exactly one key must be staged, not 0"),
        (GOOD.replace('"staged"', '"stagged"'), f"{B}.state: "),
        (GOOD.replace(SECRET_1, SECRET_1[:-2]), f"{A}.secret: not 64 hexadecimal digits"),
        (GOOD.replace(SECRET_1, SECRET_1[:-1] + "G"), f"{A}.secret: not 64 hexadecimal digits"),
        (GOOD.replace(f'"{SECRET_1}"', "7"), f"{A}.secret: "),
        (GOOD.replace("made_wall_s = 1000", "made_wall_s = -1"), f"{A}.made_wall_s: "),
        (GOOD.replace("made_wall_s = 1000", "made = 1000"), f"{A}.made: unknown key"),
        (GOOD.replace("made_wall_s = 1000", ""), A),
        (GOOD.replace(f"[{B}]", f"[{A}]"), "not TOML"),
        ("state = 1\n", "sessions.keys:1: state: must be a table"),
        ("[[keys]]\n", "sessions.keys:1: keys: must be a table"),
        ("\x00", "sessions.keys:1: not TOML"),
    ],
)
def test_unsound_text_is_refused_with_its_line_and_no_secret(  # R1, R5
    text: str, sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_ring(text, "sessions.keys", "shop")
    assert sentence in str(caught.value)
    assert SECRET_1[:60] not in str(caught.value)


@given(st.text(max_size=300))
def test_garbage_is_a_configuration_error_and_no_other(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_ring(text, "sessions.keys", "shop")


def test_two_keys_that_are_one_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="two keys with one id"):
        Ring([key(1, "active", 1), key(1, "staged", 1)], "shop")


def test_secret_is_in_no_representation() -> None:  # R5
    for text in (repr(FIRST), str(FIRST), repr(FIRST.keys), f"{FIRST.active}"):
        assert secret(1).hex()[-8:] not in text
        assert repr(secret(1)) not in text
        assert key_id(secret(1)).hex() in text


def test_values_have_keys_of_their_own_for_each_key_and_application() -> None:  # R6
    forum = Ring(FIRST.keys, "forum")
    keys = [ring.value_key(k.id) for ring in (FIRST, forum) for k in FIRST.keys]
    assert len({*keys, secret(1), secret(2)}) == 6
    assert {len(k) for k in keys if k is not None} == {32}
    assert FIRST.value_key(FIRST.active.id) == keys[0], "the same each time"
    assert FIRST.value_key(b"none") is None
