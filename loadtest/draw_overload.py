"""`make overload`: goodput against offered load, and a brick's death under load, as pictures.

    python -m loadtest.draw_overload [--quick] [--output build/overload]

Runs `softstate bench overload` (the paper's Figures 8 and 9 in one: with and without protection)
and `loadtest.kill_and_restart` (its Figure 4), and leaves in the directory: one CSV file, one PNG
and one SVG of each, all figures as JSON, and `report.html` with everything on one page. Takes about
eight minutes, two with `--quick`.
"""

import argparse
import csv
import html
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import msgspec
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from loadtest import bench_overload, kill_and_restart
from loadtest.bench_overload import in_ms
from loadtest.kill_and_restart import Plan, Seen
from loadtest.report import page
from loadtest.session_field import TIMEOUT_S

QUICK_PLAN = Plan(kill_s=5.0, start_s=8.0, end_s=12.0)
SECOND = 1.0
MULTIPLES = (0.5, 0.8, 1.0, 1.2, 2.0, 4.0, 10.0)  # Dense where the cliff is.
IDEAL_STEPS = 200
KINDS = {
    "qdelay": ("protected, by queue delay", "tab:blue", "o"),
    "aimd": ("protected, by AIMD as in the paper", "tab:green", "s"),
    "off": ("no protection", "tab:red", "X"),
}

mpl.use("Agg")  # Draws to files; there may be no screen.


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Draw goodput against offered load.")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--output", type=Path, default=Path("build/overload"))
    asked = parser.parse_args(arguments)
    asked.output.mkdir(parents=True, exist_ok=True)

    def progress(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    pace = bench_overload.QUICK if asked.quick else bench_overload.FULL
    pace = msgspec.structs.replace(pace, unprotected=MULTIPLES)
    result = bench_overload.run(pace, progress)
    seen = kill_and_restart.run(QUICK_PLAN if asked.quick else Plan(), progress)
    write_all(asked.output, result, seen)
    print(f"see {asked.output / 'report.html'}")
    return 0


def write_all(output: Path, result: Mapping[str, Any], seen: Seen) -> None:
    (output / "overload.json").write_bytes(msgspec.json.encode(result))
    write_rows(output / "goodput.csv", result["sweep"])
    write_rows(output / "kill_and_restart.csv", seconds(seen))
    save(goodput_figure(result), output / "goodput")
    save(kill_figure(seen), output / "kill_and_restart")
    (output / "report.html").write_text(report(result, seen, output), encoding="utf-8")


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def save(figure: Figure, path: Path) -> None:
    for ending in (".png", ".svg"):
        figure.savefig(path.with_suffix(ending), dpi=120)


def goodput_figure(result: Mapping[str, Any]) -> Figure:
    """On a logarithmic scale, so that what happens around the saturating load can be seen."""
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    saturating = result["saturating_per_s"]
    best = max(row["goodput_per_s"] for row in result["sweep"])
    multiples = sorted({row["multiple"] for row in result["sweep"]})
    step = (multiples[-1] / multiples[0]) ** (1 / IDEAL_STEPS)
    ideal = [multiples[0] * step**number for number in range(IDEAL_STEPS + 1)]
    axes.plot(
        ideal,
        [min(each * saturating, best) for each in ideal],
        color="lightgrey",
        linewidth=6,
        zorder=0,
        label="all that is offered, up to the best",
    )
    for kind, (label, colour, marker) in KINDS.items():
        rows = [row for row in result["sweep"] if row["protection"] == kind]
        axes.plot(
            [row["multiple"] for row in rows],
            [row["goodput_per_s"] for row in rows],
            marker=marker,
            color=colour,
            label=label,
        )
    axes.set_xscale("log")
    axes.set_xticks(multiples, [f"{multiple:g}x" for multiple in multiples])
    axes.minorticks_off()
    axes.set_xlabel(f"offered load; 1x = {saturating:,.0f} requests a second saturate the bricks")
    axes.set_ylabel(f"requests a second done within {1e3 * TIMEOUT_S:g} ms")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="center right")
    axes.set_title("Goodput against offered load")
    return figure


def kill_figure(seen: Seen) -> Figure:
    rows = seconds(seen)
    figure = Figure(figsize=(8, 6.4), layout="constrained")
    above, below = figure.subplots(2, sharex=True)
    failed = sum(row["failed"] for row in rows)
    figure.suptitle(f"A brick is killed, and comes back: {failed} requests fail")
    at = [row["second"] + SECOND / 2 for row in rows]
    above.plot(
        at, [row["offered"] for row in rows], color="lightgrey", linewidth=6, label="offered"
    )
    above.plot(at, [row["goodput"] for row in rows], color="tab:blue", label="goodput")
    above.plot(at, [row["failed"] for row in rows], color="tab:red", label="failed or late")
    above.set_ylabel("requests a second")
    above.set_ylim(bottom=0)
    for name, colour in (("slowest", "tab:orange"), ("p99", "tab:blue"), ("p50", "tab:green")):
        below.plot(at, [row[f"{name}_ms"] for row in rows], color=colour, label=name)
    below.axhline(1e3 * TIMEOUT_S, color="tab:red", linestyle="--", label="timeout")
    below.set_yscale("log")
    below.set_yticks([1, 10, 60, 100], ["1", "10", "60", "100"])
    below.minorticks_off()
    below.set_ylabel("latency, ms")
    below.set_xlabel("seconds")
    below.set_xlim(0, len(rows) * SECOND)
    for axes in (above, below):
        mark(axes, seen)
    return figure


def mark(axes: Axes, seen: Seen) -> None:
    """What was done to the brick."""
    axes.axvline(seen.killed_s, color="black", linestyle="--", label="killed")
    axes.axvline(seen.live_s, color="black", linestyle=":", label="live again")
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)


def seconds(seen: Seen) -> list[dict[str, Any]]:
    """What happened, by seconds."""
    outcome = seen.outcome
    length_s = len(outcome.intervals) * outcome.interval_s
    rows: list[dict[str, Any]] = []
    for second in range(int(length_s / SECOND + 0.5)):
        total = outcome.total(second * SECOND, (second + 1) * SECOND)
        rows.append(
            {
                "second": second,
                "offered": total.offered,
                "goodput": total.good,
                "failed": total.offered - total.good,
                "p50_ms": in_ms(total.latencies.percentile(0.5)),
                "p99_ms": in_ms(total.latencies.percentile(0.99)),
                "slowest_ms": in_ms(total.latencies.percentile(1.0)),
            }
        )
    return rows


def report(result: Mapping[str, Any], seen: Seen, output: Path) -> str:
    total = seen.outcome.total()
    killed = (
        f"{total.offered} requests, {total.offered - total.good} of them failed or late. A brick "
        f"was killed after {seen.killed_s:.1f} s and live again after {seen.live_s:.1f} s."
    )
    parts = [
        "<!doctype html><meta charset=utf-8><title>Overload</title>",
        "<style>body{font-family:sans-serif;max-width:60em;margin:2em auto}svg{width:100%;"
        "height:auto}pre{overflow-x:auto}</style>",
        "<h1>Goodput against offered load</h1>",
        *drawing(output / "goodput.svg"),
        f"<pre>{html.escape(page(result))}</pre>",
        "<h1>A brick dies, and comes back</h1>",
        f"<p>{html.escape(killed)}</p>",
        *drawing(output / "kill_and_restart.svg"),
    ]
    return "\n".join(parts)


def drawing(path: Path) -> Iterable[str]:
    """In the page itself, so that it can be sent to somebody."""
    text = path.read_text(encoding="utf-8")
    return [text[text.index("<svg") :]]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
