"""The page for people: every figure beside its aim, and which side of it it is on."""

import pytest

from loadtest.report import Aim, number, page, verdict


@pytest.mark.parametrize(
    ("value", "aim", "expected"),
    [
        (0.8, {"at_least": 0.8}, "pass"),
        (0.79, {"at_least": 0.8}, "below"),
        (1.7, {"at_most": 1.7}, "pass"),
        (1.71, {"at_most": 1.7}, "above"),
        (0, {"exactly": 0}, "pass"),
        (1, {"exactly": 0}, "off"),
        (None, {"at_least": 0.8}, "not measured"),
    ],
)
def test_verdict_says_which_side_of_the_aim_a_figure_is_on(
    value: float | None, aim: Aim, expected: str
) -> None:
    assert verdict(value, aim) == expected


def test_page_shows_figures_with_aims_then_tables_then_the_machine() -> None:
    result = {
        "ratio": 0.5,
        "missing": None,
        "rounds": 3,
        "cpu": {"ours": {"64x1": 1.0}},  # Nested: for machines, not for this page.
        "cases": [
            {"contestant": "raw", "per_s": 12345.6},
            {"contestant": "ours", "per_s": None},
        ],
        "aims": {"ratio": {"at_least": 0.8}, "missing": {"at_most": 2}},
        "samples": [{"round": 0}],
        "machine": {"cores": 2, "load_average": [0.5, 0.25]},
        "versions": {"python": "3.11.7", "zerorpc": None},
        "method": "as it is",
    }
    assert page(result) == (
        "figure   measured     aim\n"
        "ratio         0.5  >= 0.8         below\n"
        "missing         -    <= 2  not measured\n"
        "rounds          3\n"
        "\n"
        "contestant   per_s\n"
        "raw         12,346\n"
        "ours             -\n"
        "\n"
        "machine: cores 2, load_average 0.5 0.25\n"
        "\n"
        "versions: python 3.11.7, zerorpc -\n"
        "\n"
        "method: as it is"
    )


def test_numbers_have_as_many_digits_as_they_deserve() -> None:
    assert [number(value) for value in (0.01234, 12.345, 123.4, 1234567.8, 7, "text")] == [
        "0.0123",
        "12.3",
        "123",
        "1,234,568",
        "7",
        "text",
    ]
