"""How safe sessions are: the availability that a time between crashes and a WQ give."""

import argparse
import json
import math
import re

import msgspec

from roles.nines import NINES_MAX, PAPER, WQ_MAX, loss, needed_ratio, nines

DURATION_S_MAX = 1000 * 365.25 * 86_400.0

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)")
_NEAR = 1e-9  # What bisection leaves; 2.9999999999 nines are three.


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    mttf_s: float
    write_interval_s: float
    wq: int
    ratio: float
    """The first in terms of the second."""
    loss: float
    """The probability that all copies are lost before the next write."""
    availability: float
    nines: float
    next_nines: int | None
    """The next whole number of nines, and what it takes; None past what a float can tell."""
    next_ratio: float | None
    next_mttf_s: float | None


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.table:
        _print_table(as_json=options.json)
        return 0
    missing = [
        name
        for name, value in (("--mttf", options.mttf), ("--write-interval", options.write_interval))
        if value is None
    ]
    if missing:
        options.parser.error(f"give {' and '.join(missing)}, as in 81m; or --table")
    report = availability(options.mttf, options.write_interval, options.wq)
    print(msgspec.json.encode(report).decode() if options.json else _text(report))
    return 0


def availability(mttf_s: float, write_interval_s: float, wq: int) -> Availability:
    ratio = mttf_s / write_interval_s
    reached = nines(ratio, wq)
    more = math.floor(reached + _NEAR) + 1
    needed = needed_ratio(more, wq) if more <= NINES_MAX else None
    return Availability(
        mttf_s=mttf_s,
        write_interval_s=write_interval_s,
        wq=wq,
        ratio=ratio,
        loss=loss(ratio, wq),
        availability=1.0 - loss(ratio, wq),
        nines=reached,
        next_nines=None if needed is None else more,
        next_ratio=needed,
        next_mttf_s=None if needed is None else needed * write_interval_s,
    )


def duration_s(text: str) -> float:
    """`5m` in seconds."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no length of time: a number and its unit, as in 90s, 5m, 12h or 30d"
        )
    seconds = float(found[1]) * _UNITS_S[found[2]]
    if not 0 < seconds <= DURATION_S_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: longer than nothing, at most 1000 years")
    return seconds


def spoken(seconds: float) -> str:
    """In the largest unit that leaves more than one of it: `3.1h`."""
    fitting = [(name, unit) for name, unit in _UNITS_S.items() if seconds >= unit]
    name, unit = fitting[-1] if fitting else ("ms", 0.001)
    return f"{seconds / unit:.4g}{name}" if seconds < 1e4 * unit else f"{seconds / unit:.0f}{name}"


def _wq(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= WQ_MAX:
        raise argparse.ArgumentTypeError(f"{text!r}: a whole number from 1 to {WQ_MAX}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="softstate sessions", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="nines")
    show = actions.add_parser(
        "nines",
        help="how likely a session survives until its next write",
        description="How likely a session survives until its next write, if bricks crash "
        "independently of each other and a write makes WQ copies anew (the SSM paper, 3.7). "
        "Durations: 90s, 5m, 12h, 30d.",
    )
    show.add_argument("--mttf", type=duration_s, help="how long a brick lives, on average")
    show.add_argument(
        "--write-interval", type=duration_s, metavar="TIME", help="between writes of a session"
    )
    show.add_argument("--wq", type=_wq, default=2, help="copies a write waits for (default 2)")
    show.add_argument("--table", action="store_true", help="print the paper's Table 2 instead")
    show.add_argument("--json", action="store_true", help="for programs")
    show.set_defaults(parser=show)
    return parser


def _text(report: Availability) -> str:
    lines = [
        f"A brick lives {spoken(report.mttf_s)}, a session is written every "
        f"{spoken(report.write_interval_s)}: {report.ratio:.4g} writes to a crash.",
        f"With WQ = {report.wq}, one session in {_one_in(report.loss)} is lost before its next "
        f"write: {_floor(report.nines)} nines.",
    ]
    if report.next_mttf_s is not None:
        goal = "1 nine" if report.next_nines == 1 else f"{report.next_nines} nines"
        lines.append(
            f"For {goal} a brick must live {spoken(report.next_mttf_s)} "
            f"({report.next_ratio:.4g} times as long as the time between writes)."
        )
    return "\n".join(lines)


def _one_in(lost: float) -> str:
    """1.05 must not read as 1, nor is anybody helped by twenty digits."""
    many = 1 / lost
    return f"{many:.2f}" if many < 10 else f"{many:,.0f}" if many < 1e12 else f"{many:.3g}"


def _floor(reached: float) -> str:
    """To two digits, never rounded up: nobody is to read three nines where there are not."""
    return f"{math.floor((reached + _NEAR) * 100) / 100:.2f}"


def _print_table(*, as_json: bool) -> None:
    rows = [
        {
            "nines": count,
            **{f"wq_{wq}": round(needed_ratio(count, wq), 4) for wq in PAPER},
            **{f"paper_wq_{wq}": PAPER[wq][count] for wq in PAPER},
        }
        for count in PAPER[2]
    ]
    if as_json:
        print(json.dumps({"rows": rows}))
        return
    print("MTTF of a brick, in times between writes of a session (in brackets, the paper's)")
    print("nines    WQ = 2               WQ = 3")
    for row in rows:
        cells = (f"{row[f'wq_{wq}']:8.2f} ({row[f'paper_wq_{wq}']:g})".ljust(21) for wq in PAPER)
        print(f"{row['nines']:5}{''.join(cells)}".rstrip())
