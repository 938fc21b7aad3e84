"""`softstate bench`: one JSON object on standard output and nothing else, or a page for people."""

from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any

import msgspec
import pytest

from loadtest import bench


def chatty(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:  # noqa: FBT001
    """A benchmark that prints where it should not."""
    print("a library says hello")
    progress("half way")
    return {"figure": 1.5, "quick": quick, "aims": {"figure": {"at_least": 1}}}


KNOWN = {"chatty": EntryPoint("chatty", f"{__name__}:chatty", bench.GROUP)}


def test_json_is_one_object_on_standard_output_and_the_rest_is_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bench.run(["chatty", "--json", "--quick"], KNOWN) == 0
    told = capsys.readouterr()
    assert msgspec.json.decode(told.out) == chatty(quick=True, progress=lambda _: None)
    assert told.out.count("\n") == 1
    assert told.err == "a library says hello\nhalf way\n"


def test_page_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run(["chatty"], KNOWN) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "figure  measured   aim",
        "figure       1.5  >= 1  pass",
    ]


def test_unknown_benchmark_is_refused_with_the_names_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert bench.run(["bus-y"], KNOWN) == 2
    assert capsys.readouterr() == ("", "no benchmark 'bus-y': choose from chatty\n")
