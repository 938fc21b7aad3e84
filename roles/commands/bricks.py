"""Show the bricks and what they hold; `roll` restarts them one by one, and loses no session;
`start` brings back those that ended."""

import argparse
import sys

import msgspec

from bus.agents import order
from bus.config import BRICK, Config, Planned, find, load
from bus.errors import ConfigError, NotReady
from bus.events import printable
from bus.member import Member
from bus.messages import Refused
from bus.peers import Peer
from bus.process_orders import StartProcess
from roles.brick_roll import START_S_MAX, Rolled, check_enough, live_bricks, roll, until
from roles.cluster import Cluster
from roles.observer import CONNECT_S, PERIODS_MAX, Observer

_HEADINGS = (
    "ID",
    "NODE",
    "STATE",
    "SESSIONS",
    "MEMORY",
    "FULL",
    "READS/s",
    "WRITES/s",
    "REFUSED/s",
    "DATA",
)
_WORD_LENGTH_MAX = 40


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    config = load(find(options.config))
    if options.action == "roll":
        return _roll(config, yes=options.yes, as_json=options.json)
    if options.action == "start":
        return _start(config, as_json=options.json)
    rows = [row(peer, config.sessions.memory_bytes_max) for peer in _heard(config)]
    if options.json:
        print(msgspec.json.encode({"bricks": rows}).decode())
    else:
        print(table(rows), end="")
    return 0


def row(peer: Peer, memory_bytes_max: int) -> dict[str, str | int | float]:
    """One brick, as `--json` has it."""
    statistics = peer.statistics
    return {
        "id": peer.id,
        "node": peer.node,
        "state": peer.state,
        "items": int(statistics.get("items", 0)),
        "memory_bytes": int(statistics.get("memory_bytes", 0)),
        "memory_bytes_max": memory_bytes_max,
        "reads_per_s": statistics.get("reads_per_s", 0.0),
        "writes_per_s": statistics.get("writes_per_s", 0.0),
        "refused_per_s": statistics.get("refused_per_s", 0.0),
        "data_incarnation": int(statistics.get("data_incarnation", 0)),
    }


def table(rows: list[dict[str, str | int | float]]) -> str:
    if not rows:
        return "no brick\n"
    lines = [_HEADINGS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "".join(
        "  ".join(
            f"{cell:<{width}}" if number < 3 else f"{cell:>{width}}"
            for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ).rstrip()
        + "\n"
        for cells in lines
    )


def _cells(row: dict[str, str | int | float]) -> tuple[str, ...]:
    words = [printable(str(row[name]), _WORD_LENGTH_MAX) for name in ("id", "node", "state")]
    rates = [f"{row[name]:.0f}" for name in ("reads_per_s", "writes_per_s", "refused_per_s")]
    held = float(row["memory_bytes"])
    memory = f"{held / 1e6:.1f} MB", f"{held / float(row['memory_bytes_max']):.0%}"
    return *words, str(row["items"]), *memory, *rates, str(row["data_incarnation"])


def _heard(config: Config) -> list[Peer]:
    """The bricks that beacon, by number; those that are known to have ended are not among them."""
    planned = {each.id for each in config.components() if each.role == BRICK}
    with Observer(config) as observer:

        def bricks() -> list[Peer]:
            return [peer for peer in observer.peers() if peer.role == BRICK]

        observer.wait_for_agents(1)
        until(lambda: planned <= {peer.id for peer in bricks()}, config.beacons.period_s * 1.5)
        return sorted(bricks(), key=lambda peer: (len(peer.id), peer.id))


def _roll(config: Config, *, yes: bool, as_json: bool) -> int:
    cluster = Cluster(config)
    member = cluster.member("roller")
    done: list[Rolled] = []
    try:
        missing = _missing(member)
        bricks = live_bricks(member)
        check_enough(member, bricks)
        if missing:
            names = ", ".join(each.id for each in missing)
            raise NotReady(f"not live: {names}; first bring them back: `softstate bricks start`")
        if not yes:
            _confirm(len(bricks))
        for rolled in roll(member, [peer.id for peer in bricks]):
            done.append(rolled)
            if not as_json:
                noun = "session" if rolled.items == 1 else "sessions"
                print(f"{rolled.id}: back in {rolled.away_s:.1f} s with {rolled.items} {noun}")
                sys.stdout.flush()
    finally:
        cluster.release()
        if as_json:
            print(msgspec.json.encode({"rolled": done}).decode())
    return 0


def _start(config: Config, *, as_json: bool) -> int:
    """Have the agents start what is not live. One that hangs lives, and is not started."""
    cluster = Cluster(config)
    member = cluster.member("roller")
    started: list[str] = []
    try:
        for each in _missing(member):
            answer = order(member, each.node, StartProcess(each.id), START_S_MAX)
            if isinstance(answer, Refused):
                raise NotReady(f"{each.id} was not started: {answer.reason}, {answer.detail}")
            started.append(each.id)
        if not until(lambda: not _absent(member), START_S_MAX):
            names = ", ".join(each.id for each in _absent(member))
            raise NotReady(f"not live after {START_S_MAX:.0f} s: {names}; see `softstate events`")
    finally:
        cluster.release()
        if as_json:
            print(msgspec.json.encode({"started": started}).decode())
    if not as_json:
        print(f"started {', '.join(started)}" if started else "all bricks are live")
    return 0


def _missing(member: Member) -> list[Planned]:
    """The planned bricks that are not live, once all that are have had time to be heard."""
    patience_s = CONNECT_S + PERIODS_MAX * member.config.beacons.period_s
    until(lambda: not _absent(member), patience_s)
    return _absent(member)


def _absent(member: Member) -> list[Planned]:
    live = {peer.id for peer in live_bricks(member)}
    planned = [each for each in member.config.components() if each.role == BRICK]
    return [each for each in planned if each.id not in live]


def _confirm(count: int) -> None:
    if not sys.stdin.isatty():
        raise ConfigError(f"this restarts {count} bricks, one after the other: say --yes")
    answer = input(f"Restart {count} bricks, one after the other? [y/N] ")
    if answer.strip().lower() not in ("y", "yes"):
        raise ConfigError("nothing was done")


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="softstate bricks", description=__doc__)
    add = parser.add_argument
    add(
        "action",
        nargs="?",
        choices=["list", "roll", "start"],
        help="list: show them, as without a word; roll: restart them, one at a time, tables and "
        "all; start: bring back, empty, those that ended",
    )
    add("--config", metavar="FILE", help="the cluster to look at")
    add("--json", action="store_true", help="for programs")
    add("--yes", action="store_true", help="roll without asking")
    return parser.parse_args(arguments)
