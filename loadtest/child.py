"""The other half of `loadtest.processes`: how a process of a benchmark is asked, and ends.

Works with and without gevent: `read` is what waits for a line, and a process that runs a
gevent hub hands in one that lets the hub go on (`loadtest.greenlets.read_line`).
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import msgspec

Request = TypeVar("Request")


def tell(answer: object) -> None:
    """One line to the benchmark."""
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


def read_line() -> bytes:
    """The benchmark's next line; empty when there will be no more. Blocks the whole thread."""
    return sys.stdin.buffer.readline()


def answer_all(
    kind: type[Request],
    answer: Callable[[Request], object],
    read: Callable[[], bytes] = read_line,
) -> None:
    """Answer each line until the benchmark hangs up."""
    decode = msgspec.json.Decoder(kind).decode
    while line := read():
        tell(answer(decode(line)))


def end_with_the_benchmark() -> None:
    """For a process that serves for ever: end at once when the benchmark hangs up or is gone."""

    def watch() -> None:
        while read_line():
            pass
        os._exit(0)  # From a thread there is no other way past a loop that never returns.

    threading.Thread(target=watch, daemon=True).start()
