"""Bad input that deserves the name: all kinds come up, repeat by seed, and are mostly bad."""

from collections import Counter
from random import Random

from bus.errors import RemoteProtocolError
from bus.frames import FRAME_BYTES_MAX, unjoin
from bus.messages import Ping
from loadtest.mutations import Mutations, Parts

KINDS = {
    "flipped",
    "lengths",
    "mistyped",
    "oversize",
    "parts",
    "random",
    "replayed",
    "stranger",
    "truncated",
    "unexpected",
    "version",
}


def made(seed: int, count: int) -> list[tuple[str, Parts]]:
    mutations = Mutations(Random(seed), Ping())
    return [mutations.next() for _ in range(count)]


def is_read_in_full(parts: Parts) -> bool:
    try:
        _, unreadable = unjoin(parts[0], parts[1] if len(parts) > 1 else None)
    except RemoteProtocolError:
        return False
    return not unreadable


def test_same_seed_makes_the_same_input_and_another_seed_does_not() -> None:
    assert made(1, 200) == made(1, 200)
    assert made(1, 200) != made(2, 200)


def test_every_kind_of_badness_comes_up() -> None:
    assert {kind for kind, _ in made(3, 3000)} == KINDS


def test_what_must_be_unreadable_is_and_what_must_be_readable_is() -> None:
    read, seen = Counter[str](), Counter[str]()
    for kind, parts in made(4, 5000):
        seen[kind] += 1
        read[kind] += is_read_in_full(parts)
    for kind in ("oversize", "version", "lengths"):
        assert read[kind] == 0, kind
    for kind in ("replayed", "stranger", "unexpected"):
        assert read[kind] == seen[kind], kind
    for kind in ("flipped", "mistyped", "parts"):
        assert 0 < read[kind] < seen[kind], kind


def test_oversize_frames_are_past_the_limit() -> None:
    sizes = [len(parts[0]) for kind, parts in made(5, 3000) if kind == "oversize"]
    assert min(sizes) > FRAME_BYTES_MAX
