"""Every key of a TOML text is found on its line, whatever way it is written.

Method: hand-written texts with each of TOML's ways to write a key; then random documents, built
line by line so that the right answer is known, and the paths compared with what tomllib reads.
"""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.toml_lines import Path, key_lines, line_of


def paths(value: object, prefix: Path = ()) -> set[Path]:
    """Every path in a parsed value: the obvious version of what the scanner finds."""
    found = {prefix} if prefix else set()
    if isinstance(value, dict):
        for key, inner in value.items():
            found |= paths(inner, (*prefix, key))
    if isinstance(value, list):
        for index, inner in enumerate(value):
            found |= paths(inner, (*prefix, index))
    return found


def test_keys_tables_and_sub_tables_have_the_line_they_stand_on() -> None:
    text = "a = 1\n\n# b = 2\n[nodes.n1]\nrun = {hub = 1, brick = 2}\n  [nodes.n2] # c\nx.y = 3\n"
    assert key_lines(text) == {
        ("a",): 1,
        ("nodes",): 4,
        ("nodes", "n1"): 4,
        ("nodes", "n1", "run"): 5,
        ("nodes", "n1", "run", "hub"): 5,
        ("nodes", "n1", "run", "brick"): 5,
        ("nodes", "n2"): 6,
        ("nodes", "n2", "x"): 7,
        ("nodes", "n2", "x", "y"): 7,
    }


def test_array_over_several_lines_gives_each_element_its_own_line() -> None:
    text = 'hubs = [ # two\n  "a]", # one\n\n  "b",\n]\nlast = 1\n'
    assert key_lines(text) == {("hubs",): 1, ("hubs", 0): 2, ("hubs", 1): 4, ("last",): 6}


def test_strings_of_all_four_kinds_hide_what_looks_like_keys() -> None:
    text = (
        'a = """\nx = 1\n\\""" """"\nb = \'\'\'\n[y]\n\'\'\'\nc = "\\"]" # "\nd = \'\\\'\ne = 1\n'
    )
    assert key_lines(text) == {("a",): 1, ("b",): 4, ("c",): 7, ("d",): 8, ("e",): 9}


def test_quoted_keys_are_read_as_tomllib_reads_them() -> None:
    text = '"a b".\'c.d\' = 1\n["\\u00e9"]\n"" = 2\n'
    assert key_lines(text) == {
        ("a b",): 1,
        ("a b", "c.d"): 1,
        ("é",): 2,
        ("é", ""): 3,
    }


def test_array_of_tables_counts_its_tables() -> None:
    text = "[[x]]\ny = 1\n[[x]]\ny = 2\n[x.z]\nw = 3\n[[x.v]]\n[[x.v]]\n"
    assert key_lines(text) == {
        ("x",): 1,
        ("x", 0): 1,
        ("x", 0, "y"): 2,
        ("x", 1): 3,
        ("x", 1, "y"): 4,
        ("x", 1, "z"): 5,
        ("x", 1, "z", "w"): 6,
        ("x", 1, "v"): 7,
        ("x", 1, "v", 0): 7,
        ("x", 1, "v", 1): 8,
    }


def test_windows_line_ends_count_as_one_line() -> None:
    text = "a = 1\r\n\r\n[t] # x\r\nb = [\r\n1]\r\n"
    assert key_lines(text) == {("a",): 1, ("t",): 3, ("t", "b"): 4, ("t", "b", 0): 5}


def test_line_of_a_missing_key_is_the_line_of_its_table() -> None:
    lines = key_lines("a = 1\n[b]\nc = 1\n")
    assert [line_of(lines, path) for path in (("b", "x"), ("b", "c", 0), ("z",))] == [2, 3, 1]


KEYS = st.sampled_from(["a", "b-1", "_c", "9", '"q\\n"', "'l t'", '"x.y"', '"é"'])
SCALARS = st.sampled_from(
    ["1", "-0.5", "true", '"s # ]"', "'}'", '"""m\n"""', "1979-05-27 07:32:00"]
)
SPACES = st.sampled_from(["", " ", "\t"])
GAPS = st.sampled_from(["", " ", "\n", " # , ]\n", "\n\n"])


def arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    element = st.tuples(GAPS, inner, GAPS).map("".join)
    return st.lists(element, max_size=3).map(lambda parts: f"[{','.join(parts)}\n]")


def inline_tables(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.dictionaries(KEYS, inner.filter(lambda text: "\n" not in text), max_size=3)
    return pairs.map(lambda p: "{" + ", ".join(f"{k} = {v}" for k, v in p.items()) + "}")


VALUES = st.recursive(SCALARS, lambda inner: arrays(inner) | inline_tables(inner), max_leaves=6)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[Path, int]]:
    """A document of tables with plain and dotted keys, and the line of each top-level pair."""
    text = ""
    expected: dict[Path, int] = {}
    for table in draw(st.lists(KEYS, max_size=3, unique=True)):
        text += draw(st.sampled_from(["", "\n", "# [no]\n"]))
        text += f"[{table}]{draw(SPACES)}\n"
        for key in draw(st.lists(KEYS, max_size=3, unique=True)):
            line = text.count("\n") + 1
            dots = draw(st.lists(KEYS, max_size=1))
            words = draw(SPACES).join(f"{word}." for word in [key, *dots])[:-1]
            text += f"{words}{draw(SPACES)}={draw(SPACES)}{draw(VALUES)}{draw(SPACES)}\n"
            expected[unquoted(table), unquoted(key)] = line
    return text, expected


def unquoted(key: str) -> str:
    return next(iter(tomllib.loads(f"{key} = 1")))


@given(documents())
def test_random_documents_have_every_path_and_the_right_lines(
    document: tuple[str, dict[Path, int]],
) -> None:
    text, expected = document
    found = key_lines(text)
    assert set(found) == paths(tomllib.loads(text))
    assert {path: found[path] for path in expected} == expected


@given(st.text(alphabet="[]{}=.,#\"'\\ab1\n \t\r", max_size=200))
def test_any_text_is_scanned_without_an_error(text: str) -> None:
    assert all(1 <= line <= text.count("\n") + 1 for line in key_lines(text).values())


@pytest.mark.parametrize("text", ["= 1", "a = [}", "a = [\n}]", "a = {= 1}", "[", "[[a", "a ="])
def test_scan_of_what_is_no_value_or_key_ends(text: str) -> None:
    assert set(key_lines(text)) <= {("a",), ("a", 0)}


def test_endless_nesting_is_left_at_a_bounded_depth() -> None:
    assert len(key_lines("a = " + "[" * 100_000)) < 100
