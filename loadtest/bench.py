"""`softstate bench NAME`: run one benchmark; print its figures for people, or as one JSON object.

A benchmark is a function `(quick, progress) -> dict`, found by its name in the entry-point
group `softstate.benchmarks`. Standard output carries the result and nothing else; progress goes to
standard error.
"""

import argparse
import contextlib
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec

from loadtest.report import page

GROUP = "softstate.benchmarks"

Benchmark = Callable[[bool, Callable[[str], None]], dict[str, Any]]


def main(arguments: list[str]) -> int:
    """The command. 0: measured, whatever came out; 2: no such benchmark. Raises if it cannot."""
    return run(arguments, {entry.name: entry for entry in entry_points(group=GROUP)})


def run(arguments: list[str], known: dict[str, EntryPoint]) -> int:
    asked = parser(known).parse_args(arguments)
    if asked.name not in known:
        names = ", ".join(sorted(known))
        print(f"no benchmark {asked.name!r}: choose from {names}", file=sys.stderr)
        return 2
    result = measure(known[asked.name].load(), quick=asked.quick)
    print(msgspec.json.encode(result).decode() if asked.json else page(result))
    return 0


def parser(known: dict[str, EntryPoint]) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="softstate bench", description="Measure, and compare.")
    found.add_argument("name", help=f"one of: {', '.join(sorted(known))}")
    found.add_argument("--json", action="store_true", help="one JSON object on standard output")
    found.add_argument("--quick", action="store_true", help="fewer and shorter runs, all figures")
    return found


def measure(benchmark: Benchmark, *, quick: bool) -> dict[str, Any]:
    """Its result; whatever it prints on the way goes to standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        return benchmark(quick, lambda line: print(line, flush=True))
