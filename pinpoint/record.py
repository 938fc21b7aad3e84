"""Write ticks to a file as they come, so that every verdict can be looked into later.

Two files: when one is half of what may be kept it becomes `….older.jsonl`, and another is begun.
One write a tick, at its end; nothing waits for the disk to have it.

What always holds:
  D1  Both files together have at most `bytes_max`.
  D2  A disk that is full or gone costs ticks of the recording, which are counted, and nothing else.
  D3  A line is whole or not readable: what a crash tore does not run into what comes after.
"""

from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from pinpoint.recording import Header, line_of, older_of
from pinpoint.samples import Tick

RETRY_TICKS = 10  # After trouble, how often a file is tried again.


class Recorder:
    def __init__(self, path: Path, header: Header, bytes_max: int) -> None:
        self._path = path
        self._older = older_of(path)
        self._header = header
        self._half = bytes_max // 2
        self._file: BinaryIO | None = None
        self._size = 0
        self._pause = 0
        self.bytes = 0
        """Written so far."""
        self.lost = 0
        """Ticks that could not be written."""
        self.trouble = ""
        """Why, of late; empty when all is well."""

    def write(self, tick: Tick) -> None:
        """D2: raises nothing of the disk's."""
        if self._half == 0:
            return
        if self._pause:
            self._pause -= 1
            self.lost += 1
            return
        try:
            self._write(line_of(tick))
        except OSError as error:
            self.trouble = error.strerror or type(error).__name__
            self.lost += 1
            self._pause = RETRY_TICKS
            self.close()
        else:
            self.trouble = ""

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # D2: some disks say only now that they are full.
                file.close()

    def _write(self, line: bytes) -> None:
        if len(line_of(self._header)) + 1 + len(line) > self._half:
            self.lost += 1  # D1: a tick that is too long for any file.
            return
        if self._file is not None and self._size + len(line) > self._half:
            self.close()
            self._path.replace(self._older)
            self._header = msgspec.structs.replace(self._header, part=self._header.part + 1)
        if self._file is None:
            self._open(len(line))
        self._append(line)

    def _open(self, line_bytes: int) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("ab", buffering=0)
        self._size = self._file.tell()
        header = line_of(self._header)
        if self._size + len(header) + 1 + line_bytes > self._half:  # D1
            self.close()
            self._path.replace(self._older)
            self._file = self._path.open("ab", buffering=0)
            self._size = 0
        if self._size:
            header = b"\n" + header  # D3: in case the last life was cut short.
        self._append(header)

    def _append(self, line: bytes) -> None:
        assert self._file is not None
        written = self._file.write(line) or 0
        self._size += written
        self.bytes += written
        if written < len(line):
            raise OSError(28, "no space left for the whole line")
