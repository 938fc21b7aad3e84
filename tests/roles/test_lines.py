"""Output cut into lines: bytes in, whole lines out, nothing lost."""

from hypothesis import given
from hypothesis import strategies as st

from roles.lines import LINE_BYTES_MAX, Lines

PREFIX = b"brick-1 | "
PIECE = LINE_BYTES_MAX - len(PREFIX) - 1


def lines_of(*chunks: bytes) -> list[bytes]:
    lines = Lines("brick-1")
    return [line for chunk in chunks for line in lines.add(chunk)] + lines.end()


def test_each_line_comes_under_the_name_of_who_wrote_it_once_it_is_complete() -> None:
    lines = Lines("brick-1")
    assert lines.add(b"one\ntw") == [b"brick-1 | one\n"]
    assert lines.add(b"o\r\n\nthr") == [b"brick-1 | two\n", b"brick-1 | \n"]
    assert lines.end() == [b"brick-1 | thr\n"]
    assert lines.end() == []


def test_what_is_not_utf8_passes_unharmed() -> None:  # L1
    assert lines_of(b"\xff\xfe\x00\n") == [PREFIX + b"\xff\xfe\x00\n"]


def test_a_long_line_comes_in_pieces_even_before_it_ends() -> None:  # L2
    lines = Lines("brick-1")
    assert lines.add(b"x" * (PIECE + 1)) == [PREFIX + b"x" * PIECE + b"\n"]
    assert lines.add(b"\n") == [PREFIX + b"x\n"]


def test_a_piece_does_not_end_inside_a_character() -> None:  # L3
    snowman = "☃".encode()
    text = b"x" + snowman * PIECE
    pieces = [line.removeprefix(PREFIX).removesuffix(b"\n") for line in lines_of(text)]
    assert len(pieces) > 2
    assert "".join(piece.decode() for piece in pieces) == text.decode()


@given(st.lists(st.binary(max_size=3 * LINE_BYTES_MAX), max_size=8))
def test_every_byte_comes_out_once_in_order_and_no_line_is_too_long(chunks: list[bytes]) -> None:
    written = b"".join(chunks).replace(b"\r", b"")
    lines = lines_of(*(chunk.replace(b"\r", b"") for chunk in chunks))
    assert all(line.startswith(PREFIX) and line.endswith(b"\n") for line in lines)
    assert all(line.count(b"\n") == 1 and len(line) <= LINE_BYTES_MAX for line in lines)  # L2
    shown = b"".join(line.removeprefix(PREFIX).removesuffix(b"\n") for line in lines)
    assert shown == written.replace(b"\n", b"")  # L1
