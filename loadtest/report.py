"""A benchmark's figures as a page for people, with each aim beside its figure. Decides only.

A benchmark returns one flat object. Its numbers are the figures; `aims` says what each should
be; a list of equal rows becomes a table; `samples` is for machines and is left out here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Aim = Mapping[str, float]
"""`{"at_least": 0.8}`, `{"at_most": 1.7}` or `{"exactly": 0}`."""

_SIGNS = {"at_least": ">=", "at_most": "<=", "exactly": "="}


def verdict(value: float | None, aim: Aim) -> str:
    """`pass`, or on which side of the aim the figure lies."""
    if value is None:
        return "not measured"
    if value < aim.get("at_least", value):
        return "below"
    if value > aim.get("at_most", value):
        return "above"
    return "pass" if value == aim.get("exactly", value) else "off"


def page(result: Mapping[str, Any]) -> str:
    """Everything a person wants to know of one run."""
    aims: Mapping[str, Aim] = result.get("aims", {})
    figures = [
        [
            name,
            number(value),
            _aim(aims.get(name)),
            verdict(value, aims[name]) if name in aims else "",
        ]
        for name, value in result.items()
        if value is None or isinstance(value, int | float)
    ]
    parts = [table(["figure", "measured", "aim", ""], figures)]
    for name, value in result.items():
        if name != "samples" and isinstance(value, list) and value:
            rows = [[number(cell) for cell in row.values()] for row in value]
            parts.append(table(list(value[0]), rows))
    for name in ("machine", "versions"):
        facts = result.get(name, {})
        parts.append(f"{name}: " + ", ".join(f"{key} {number(facts[key])}" for key in facts))
    if "method" in result:
        parts.append(f"method: {result['method']}")
    return "\n\n".join(parts)


def number(value: Any) -> str:  # noqa: ANN401 (whatever a benchmark has to tell)
    """A figure in as many digits as it deserves."""
    if value is None:
        return "-"
    if isinstance(value, list | tuple):
        return " ".join(number(each) for each in value)
    if isinstance(value, int) or not isinstance(value, float):
        return str(value)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; the first is read from the left, the rest are figures."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _aim(aim: Aim | None) -> str:
    return " ".join(f"{_SIGNS[name]} {number(value)}" for name, value in (aim or {}).items())
