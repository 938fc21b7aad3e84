"""Draw the history of a soak: goodput, faults, detections and restarts on one time axis.

    python -m loadtest.draw_soak [build/soak]

As the paper's Figures 10 to 13: above, the requests of each second; below, a line for each
component, black where it was gone. Reads `history.jsonl`, and leaves beside it one PNG
and one SVG for each cluster of the soak, and `report.html` with all of them.
"""

import html
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure

WIDTH_IN = 14.0
ROW_IN = 0.22
ABOVE_IN = 3.0
LABELS_MAX = 60  # With more faults than that, their names would hide the picture.

Line = dict[str, Any]

mpl.use("Agg")  # Draws to files; there may be no screen.


def main(arguments: Sequence[str]) -> int:
    print(f"see {draw_history(Path(*arguments or ['build/soak']))}")
    return 0


def draw_history(output: Path) -> Path:
    """The page that has all of it."""
    with (output / "history.jsonl").open("rb") as file:
        legs = split([msgspec.json.decode(line) for line in file])
    parts = [
        "<!doctype html><meta charset=utf-8><title>Soak</title>",
        "<style>body{font-family:sans-serif;margin:2em}svg{width:100%;height:auto}"
        "pre{white-space:pre-wrap}</style>",
    ]
    for number, leg in enumerate(legs, 1):
        figure, path = figure_of(leg), output / f"soak-{number}"
        for ending in (".png", ".svg"):
            figure.savefig(path.with_suffix(ending), dpi=110)
        svg = path.with_suffix(".svg").read_text(encoding="utf-8")
        parts += [f"<h1>Seed {leg[0]['seed']}</h1>", svg[svg.index("<svg") :], story(leg)]
    page = output / "report.html"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def split(lines: Sequence[Line]) -> list[list[Line]]:
    """By clusters; each begins with its `leg`."""
    legs: list[list[Line]] = []
    for line in lines:
        if line["what"] == "leg":
            legs.append([])
        legs[-1].append(line)
    return legs


def figure_of(leg: Sequence[Line]) -> Figure:
    planned: list[str] = leg[0]["planned"]
    height_in = ABOVE_IN + ROW_IN * (len(planned) + 3)
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    above, below = figure.subplots(
        2, sharex=True, height_ratios=[ABOVE_IN, ROW_IN * (len(planned) + 3)]
    )
    length_s = max((float(line["at_s"]) for line in leg), default=1.0) + 1.0
    draw_load(above, leg)
    draw_components(below, leg, planned, length_s)
    below.set_xlim(0, length_s)
    below.set_xlabel("seconds")
    figure.suptitle("Goodput, faults, detections and restarts")
    return figure


def draw_load(axes: Axes, leg: Sequence[Line]) -> None:
    seconds = of(leg, "second")
    at = [line["at_s"] + 0.5 for line in seconds]
    axes.plot(
        at, [line["offered"] for line in seconds], color="lightgrey", linewidth=5, label="offered"
    )
    axes.plot(at, [line["good"] for line in seconds], color="tab:blue", label="goodput")
    for name, colour in (("late", "tab:orange"), ("failed", "tab:red")):
        bad = [line for line in seconds if line[name]]
        axes.plot(
            [line["at_s"] + 0.5 for line in bad],
            [line[name] for line in bad],
            "x",
            color=colour,
            label=name,
        )
    faults = of(leg, "fault")
    for line in faults:
        axes.axvline(line["at_s"], color="black", linewidth=0.6, alpha=0.4)
    top = max((line["offered"] for line in seconds), default=1)
    if len(faults) <= LABELS_MAX:
        for line in faults:
            axes.text(line["at_s"], top, line["verb"], rotation=90, fontsize=7, va="top")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("requests a second")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def draw_components(
    axes: Axes, leg: Sequence[Line], planned: Sequence[str], length_s: float
) -> None:
    row_of = {component_id: row for row, component_id in enumerate(planned)}
    for component_id, row in row_of.items():
        axes.plot([0, length_s], [row, row], color="tab:blue", linewidth=4, alpha=0.3)
        for begin_s, end_s in gaps(leg, component_id, length_s):
            axes.plot(
                [begin_s, end_s], [row, row], color="black", linewidth=6, solid_capstyle="butt"
            )
    for what, marker, colour, label in (
        ("fault", "X", "tab:red", "fault"),
        ("noticed", "o", "tab:orange", "noticed"),
        ("live", "^", "tab:green", "live again"),
    ):
        marks = [line for line in of(leg, what) if line["id"] in row_of]
        axes.plot(
            [line["at_s"] for line in marks],
            [row_of[line["id"]] for line in marks],
            marker,
            color=colour,
            label=label,
            markersize=5,
        )
    axes.set_yticks(range(len(planned)), planned, fontsize=7)
    axes.invert_yaxis()
    axes.grid(alpha=0.2, axis="x")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def gaps(leg: Sequence[Line], component_id: str, length_s: float) -> list[tuple[float, float]]:
    """From when to when it was gone."""
    spans: list[tuple[float, float]] = []
    since: float | None = None
    for line in leg:
        if line.get("id") != component_id:
            continue
        if line["what"] == "over" and since is None:
            since = float(line["at_s"])
        elif line["what"] == "live" and since is not None:
            spans.append((since, float(line["at_s"])))
            since = None
    return spans if since is None else [*spans, (since, length_s)]


def of(leg: Sequence[Line], what: str) -> list[Line]:
    return [line for line in leg if line["what"] == what]


def story(leg: Sequence[Line]) -> str:
    """What was done and said, in words."""
    told = []
    for line in leg:
        match line["what"]:
            case "fault":
                told.append(f"{line['at_s']:9.2f}  {line['verb']} {line['id']}: {line['detail']}")
            case "noticed":
                told.append(
                    f"{line['at_s']:9.2f}      {line['kind']} {line['id']}: {line['reason']} "
                    f"(by {line['by']})"
                )
            case "live":
                told.append(f"{line['at_s']:9.2f}      live {line['id']}")
            case "load":
                told.append(f"{line['at_s']:9.2f}  {line['per_s']:.0f} requests a second")
            case _:
                pass
    return f"<pre>{html.escape(chr(10).join(told))}</pre>"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
