"""Lines to a descriptor whose reader is slow, stuck or gone.

Method: a pipe that the test reads or not, and a clock that stands still unless the test moves it.
"""

import os
from collections.abc import Iterator

import gevent
import pytest
from gevent.os import make_nonblocking, nb_read

from roles.output import Output
from tests.waiting import until

LINES = [b"%d %s\n" % (number, b"x" * 90) for number in range(5_000)]  # Several pipes full.


class Piped:
    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        make_nonblocking(self.reader)
        self.at = 100.0
        self.read = b""
        self.output = Output(
            self.writer, waiting_bytes_max=8192, patience_s=5.0, clock=lambda: self.at
        )

    def start_reading(self) -> None:
        self.reading = gevent.spawn(self._read)

    def _read(self) -> None:
        while chunk := nb_read(self.reader, 1 << 16):
            self.read += chunk

    def close(self) -> None:
        self.output.close()
        os.close(self.writer)
        self.reading.join(timeout=5)
        os.close(self.reader)


@pytest.fixture
def piped() -> Iterator[Piped]:
    made = Piped()
    yield made
    made.close()


def test_every_line_comes_out_in_order_however_slow_the_reader_is(piped: Piped) -> None:  # O1, O3
    writing = gevent.spawn(piped.output.write, LINES)
    gevent.sleep(0)
    assert not writing.ready()  # It waits for the reader.
    piped.start_reading()
    until(lambda: piped.read == b"".join(LINES), 5.0, "every line")


def test_a_reader_that_takes_nothing_for_too_long_loses_lines_and_is_told_how_many(
    piped: Piped,
) -> None:  # O3
    writing = gevent.spawn(piped.output.write, LINES)
    gevent.sleep(0)
    until(lambda: stuck(piped), 5.0, "a full pipe")
    piped.at += 5.0  # It waits no longer than that.
    piped.output.write([])
    writing.kill()
    dropped = 10
    piped.output.write(LINES[:dropped])
    piped.start_reading()
    told = b"(%d lines were dropped here: nobody read them)\n" % dropped
    until(lambda: told in piped.read, 5.0, "word of what was dropped")


def stuck(piped: Piped) -> bool:
    size = len(piped.read)
    gevent.sleep(0.02)
    return size == len(piped.read)


def test_a_long_silence_is_not_taken_for_a_reader_that_is_stuck(piped: Piped) -> None:  # O3
    piped.start_reading()
    piped.output.write(LINES[:1])
    until(lambda: piped.read == LINES[0], 5.0, "the first line")
    piped.at += 3600.0
    piped.output.write(LINES[1:])
    until(lambda: piped.read == b"".join(LINES), 5.0, "every line")


def test_the_event_loop_itself_never_waits_for_a_reader(piped: Piped) -> None:  # O3
    done: list[bool] = []

    def in_the_loop() -> None:
        piped.output.write(LINES)
        done.append(True)

    gevent.get_hub().loop.run_callback(in_the_loop)
    until(lambda: done == [True], 5.0, "a write from inside the loop")
    piped.start_reading()
    until(lambda: b"lines were dropped here" in piped.read, 5.0, "word of what was dropped")
