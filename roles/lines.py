"""Cut what a process writes into whole lines, each under its owner's name. Decides only.

Works on bytes: what is not UTF-8 passes unharmed.

What always holds:
  L1  Every byte comes out once and in order, but for the line ends, which become `\\n`.
  L2  No line that comes out is longer than `LINE_BYTES_MAX`; a longer one comes in pieces. So a
      line is written to a pipe in one piece, and lines of several processes do not mix.
  L3  A piece does not end inside a UTF-8 character.
"""

LINE_BYTES_MAX = 4096
"""With prefix and line end; what Linux writes to a pipe in one piece (PIPE_BUF)."""

_PREFIX_BYTES_MAX = 128


class Lines:
    def __init__(self, name: str) -> None:
        self._prefix = name.encode()[:_PREFIX_BYTES_MAX] + b" | "
        self._piece_bytes_max = LINE_BYTES_MAX - len(self._prefix) - 1
        self._rest = b""

    def add(self, chunk: bytes) -> list[bytes]:
        """What has become complete with `chunk`."""
        *complete, self._rest = (self._rest + chunk).split(b"\n")
        lines = [piece for line in complete for piece in self._pieces(line.removesuffix(b"\r"))]
        if len(self._rest) > self._piece_bytes_max:  # L2
            *pieces, self._rest = self._cut(self._rest)
            lines += [self._line(piece) for piece in pieces]
        return lines

    def end(self) -> list[bytes]:
        """What was left without a line end."""
        rest, self._rest = self._rest, b""
        return self._pieces(rest) if rest else []

    def _pieces(self, line: bytes) -> list[bytes]:
        return [self._line(piece) for piece in self._cut(line)]

    def _line(self, piece: bytes) -> bytes:
        return self._prefix + piece + b"\n"

    def _cut(self, line: bytes) -> list[bytes]:
        pieces = []
        begin = 0
        while len(line) - begin > self._piece_bytes_max:
            end = _character_start(line, begin + self._piece_bytes_max)
            pieces.append(line[begin:end])
            begin = end
        return [*pieces, line[begin:]]


def _character_start(line: bytes, at: int) -> int:
    """The last place up to `at` where a UTF-8 character begins; `at` if these are not UTF-8."""
    for back in range(4):
        if line[at - back] & 0xC0 != 0x80:
            return at - back  # L3
    return at
