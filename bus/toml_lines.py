"""Where each key of a TOML text stands, so that an error can name the line. Decides only.

The standard library's parser gives values without places. This scanner gives places without
values: it walks the same text once and notes the line on which each key first appears. It is
meant for text that `tomllib` has accepted; on any other text it stops early, and says what it
saw until then.

What always holds:
  T1  For text that `tomllib` accepts, every key and every array element of the parsed value
      has a line, and no other path has one.
  T2  Any text whatever is scanned in bounded time and depth, and nothing is raised.
"""

import tomllib
from contextlib import suppress

Path = tuple[str | int, ...]
"""Keys from the top of the file downwards; a whole number is a place in an array, from 0."""

_DEPTH_MAX = 64  # Values within values; tomllib's own limit is the interpreter's stack.


class _Stop(Exception):  # noqa: N818 (not an error: the scan ends here)
    """The text is not TOML from here on."""


def key_lines(text: str) -> dict[Path, int]:
    """The line, from 1, on which each key and each array element first appears."""
    scan = _Scan(text)
    with suppress(_Stop):  # T2: what was found so far is still of use.
        scan.document()
    return scan.lines


def line_of(lines: dict[Path, int], path: Path) -> int:
    """The line of `path`, or of its nearest parent that has one; 1 for the file as a whole."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return 1


class _Scan:
    """One walk over one text. Every method either moves `_at` forward or raises `_Stop`."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._line = 1
        self._table_counts: dict[Path, int] = {}

    def document(self) -> None:
        table: Path = ()
        while self._skip_blank():
            if self._starts("[["):
                table = self._array_header()
            elif self._starts("["):
                table = self._header()
            else:
                self._pair(table, depth=0)

    def _header(self) -> Path:
        self._take("[")
        path = self._resolve((), self._keys())
        self._take("]")
        return path

    def _array_header(self) -> Path:
        self._take("[[")
        keys = self._keys()
        parent = self._resolve((), keys[:-1])
        path = (*parent, keys[-1])
        self._note(path)
        index = self._table_counts.get(path, -1) + 1
        self._table_counts[path] = index
        self._note((*path, index))
        self._take("]]")
        return (*path, index)

    def _pair(self, table: Path, depth: int) -> None:
        path = self._resolve(table, self._keys())
        self._take("=")
        self._value(path, depth)

    def _resolve(self, table: Path, keys: list[str]) -> Path:
        """The full path of `keys` under `table`. An array of tables stands for its last one."""
        path = table
        for key in keys:
            path = (*path, key)
            self._note(path)
            if path in self._table_counts:
                path = (*path, self._table_counts[path])
        return path

    def _note(self, path: Path) -> None:
        self.lines.setdefault(path, self._line)  # T1: a table may be opened again further down.

    # Values. Only their ends matter here, and the keys inside them.

    def _value(self, path: Path, depth: int) -> None:
        if depth > _DEPTH_MAX:
            raise _Stop
        self._skip_spaces()
        if self._starts("["):
            self._array(path, depth)
        elif self._starts("{"):
            self._inline_table(path, depth)
        elif self._peek() in ('"', "'"):
            self._string()
        else:
            self._bare("#,]}\n")

    def _array(self, path: Path, depth: int) -> None:
        self._take("[")
        index = 0
        while self._skip_blank() and not self._starts("]"):
            self._note((*path, index))
            self._value((*path, index), depth + 1)
            index += 1
            self._skip_blank()
            if self._starts(","):
                self._take(",")
        self._take("]")

    def _inline_table(self, path: Path, depth: int) -> None:
        self._take("{")
        while self._skip_blank() and not self._starts("}"):
            self._pair(path, depth + 1)
            self._skip_blank()
            if self._starts(","):
                self._take(",")
        self._take("}")

    def _string(self) -> str:
        """Move past a string of any of TOML's four kinds; return it with its quotes."""
        quote = self._peek()
        mark = quote * 3 if self._starts(quote * 3) else quote
        begin, at = self._at, self._at + len(mark)
        while not self._text.startswith(mark, at):
            if at >= len(self._text) or (len(mark) == 1 and self._text[at] == "\n"):
                raise _Stop
            at += 2 if quote == '"' and self._text[at] == "\\" else 1
        at += len(mark)
        while len(mark) == 3 and self._text.startswith(quote, at):
            at += 1  # Up to two quotes may stand right before the closing three.
        self._line += self._text.count("\n", begin, at)
        self._at = at
        return self._text[begin:at]

    def _bare(self, ends: str) -> str:
        begin = self._at
        while self._at < len(self._text) and self._text[self._at] not in ends:
            self._at += 1
        if self._at == begin:
            raise _Stop  # T2: nothing was read, so going on would never end.
        return self._text[begin : self._at].strip()

    # Keys.

    def _keys(self) -> list[str]:
        keys = [self._key()]
        while self._starts("."):
            self._take(".")
            keys.append(self._key())
        return keys

    def _key(self) -> str:
        self._skip_spaces()
        key = _unquoted(self._string()) if self._peek() in ('"', "'") else self._bare(".=]#\n \t")
        self._skip_spaces()
        return key

    # Characters.

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _starts(self, mark: str) -> bool:
        return self._text.startswith(mark, self._at)

    def _take(self, mark: str) -> None:
        if not self._starts(mark):
            raise _Stop
        self._at += len(mark)

    def _skip_spaces(self) -> None:
        while self._peek() in (" ", "\t"):
            self._at += 1

    def _skip_blank(self) -> bool:
        """Move past spaces, line ends and comments; False at the end of the text."""
        while self._at < len(self._text):
            if self._starts("\n"):
                self._line += 1
                self._at += 1
            elif self._peek() in (" ", "\t"):
                self._at += 1
            elif self._starts("#"):
                end = self._text.find("\n", self._at)
                self._at = len(self._text) if end < 0 else end
            else:
                return True
        return False


def _unquoted(raw: str) -> str:
    try:
        return str(tomllib.loads(f"key = {raw}")["key"])
    except tomllib.TOMLDecodeError:
        raise _Stop from None
