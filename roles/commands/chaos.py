"""Make a running cluster sick on purpose: crash, hang, slow, leak, drop, partition and more."""

import argparse
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import IO

import gevent
import msgspec

from bus.config import NODE, find, load
from bus.errors import ConfigError
from roles.chaos import (
    AHEAD_S,
    FOR_S,
    LEAK_BYTES_PER_S,
    LOST_SHARE,
    SEED_MAX,
    SLOW_S,
    Chaos,
    Injected,
)
from roles.chaos_record import FOR_S_MAX, Record, line
from roles.cluster import Cluster

Verb = Callable[[Chaos, list[str], argparse.Namespace], Injected]

TO_ALL = frozenset({"crash", "hang", "slow", "drop"})
"""What may be done to all of a role at once, with `--all`."""

OF_NODES = frozenset({"node", "packets", "partition"})

VERBS: dict[str, tuple[str, Verb]] = {
    "crash": ("kill it (SIGKILL)", lambda chaos, to, _: chaos.crash(*to)),
    "hang": ("stop it in its tracks", lambda chaos, to, by: chaos.hang(*to, for_s=by.length)),
    "slow": (
        f"--amount={SLOW_S * 1000:g} ms of standing still before each message that comes in",
        lambda chaos, to, by: chaos.slow(*to, for_s=by.length, seconds=_amount(by, SLOW_S, 0.001)),
    ),
    "leak": (
        f"--amount={LEAK_BYTES_PER_S / 1e6:g} MB more memory each second",
        lambda chaos, to, by: chaos.leak(
            *to, for_s=by.length, bytes_per_s=_amount(by, LEAK_BYTES_PER_S, 1e6)
        ),
    ),
    "drop": (
        f"--amount={LOST_SHARE * 100:g} % of what it sends is lost",
        lambda chaos, to, by: chaos.drop(*to, for_s=by.length, share=_amount(by, LOST_SHARE, 0.01)),
    ),
    "clock": (
        f"its wall clock is --amount={AHEAD_S:g} s ahead; negative: behind",
        lambda chaos, to, by: chaos.clock(*to, for_s=by.length, ahead_s=_amount(by, AHEAD_S, 1.0)),
    ),
    "flip-value": (
        "a bit flips in --amount=1 of the values that a brick holds",
        lambda chaos, to, by: chaos.flip_value(*to, count=int(_amount(by, 1.0, 1.0))),
    ),
    "flip-image": (
        "bits flip in its memory, near the stack pointer, until it ends",
        lambda chaos, to, _: chaos.flip_image(*to),
    ),
    "disk": (
        "the store of the lease managers takes no more; without a target, of all of them",
        lambda chaos, to, by: chaos.disk(*to, for_s=by.length),
    ),
    "hub": (
        "lose hubs, or without a target any one: killed; with --stop stopped",
        lambda chaos, to, by: chaos.hub(*to, for_s=by.length, hang=by.stop),
    ),
    "node": ("lose a node for a while", lambda chaos, to, by: chaos.node(*to, for_s=by.length)),
    "packets": (
        f"--amount={LOST_SHARE * 100:g} % of packets from and to a node are lost "
        "(needs `up --hosts`)",
        lambda chaos, to, by: chaos.packets(
            *to, for_s=by.length, share=_amount(by, LOST_SHARE, 0.01)
        ),
    ),
    "partition": (
        "two nodes no longer reach each other; with --one-way, the first not the second "
        "(needs `up --hosts`)",
        lambda chaos, to, by: _partition(chaos, to, by),
    ),
}


def main(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse_intermixed_args(arguments)
    cluster = Cluster(load(find(options.config)))
    records: list[Record] = []
    with ExitStack() as stack:
        history = stack.enter_context(_opened(options.history)) if options.history else None

        def told(record: Record) -> None:
            records.append(record)
            if history is not None:
                history.write(msgspec.json.encode(record).decode() + "\n")
                history.flush()
            if not options.json:
                print(line(record, time.strftime("%H:%M:%S")), flush=True)

        hub = gevent.get_hub()
        hub.NOT_ERROR = (*hub.NOT_ERROR, KeyboardInterrupt)  # Ctrl-C is no news to print.
        chaos = stack.enter_context(Chaos(cluster, seed=options.seed, told=told))
        if not options.json:
            print(f"seed {chaos.seed}", flush=True)
        targets = _targets(chaos, options)
        injected = VERBS[options.verb][1](chaos, targets, options)
        injected.wait()
    if options.json:
        print(msgspec.json.encode({"seed": chaos.seed, "records": records}).decode())
    return 1 if injected.trouble else 0


def _targets(chaos: Chaos, options: argparse.Namespace) -> list[str]:
    words: list[str] = options.targets
    if options.all:
        if words or options.verb not in TO_ALL:
            raise ConfigError(f"--all ROLE goes with {', '.join(sorted(TO_ALL))}, and no target")
        return chaos.everyone(options.all)
    if words[:1] != ["random"]:
        return words
    if len(words) != 2:
        raise ConfigError("one word belongs to `random`: the role, as in `random brick`")
    picked = chaos.pick(NODE if options.verb in OF_NODES else words[1])
    if options.verb not in OF_NODES:
        return picked
    return [each.node for each in chaos.config.components() if each.id in picked]


def _partition(chaos: Chaos, to: list[str], by: argparse.Namespace) -> Injected:
    if len(to) != 2:
        raise ConfigError("a partition is between two nodes: `softstate chaos partition n1 n2`")
    return chaos.partition(to[0], to[1], for_s=by.length, one_way=by.one_way)


def _amount(options: argparse.Namespace, default: float, unit: float) -> float:
    return default if options.amount is None else options.amount * unit


def _opened(path: str) -> IO[str]:
    try:
        return open(path, "a", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name another file for --history") from error


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) > SEED_MAX:
        raise argparse.ArgumentTypeError(f"{text}: a whole number from 0 to {SEED_MAX}")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {verb:<{width}}  {what}" for verb, (what, _) in VERBS.items())
    parser = argparse.ArgumentParser(
        prog="softstate chaos",
        description=f"{__doc__}\nOnly processes of a cluster whose configuration says "
        "`chaos = true` are touched.\n\nverbs:\n" + verbs,
        epilog="Targets are ids (brick-2), names of nodes for node, packets and partition, or "
        "`random ROLE`.\ndocs/chaos.md tells what each fault is a model of.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("verb", metavar="VERB", choices=VERBS)
    add("targets", metavar="TARGET", nargs="*")
    add(
        "--for",
        dest="length",
        type=float,
        default=FOR_S,
        metavar="S",
        help=f"how long, in seconds (default {FOR_S:g}, at most {FOR_S_MAX:g})",
    )
    add("--amount", type=float, metavar="X", help="how bad, in the unit of the verb")
    add("--all", metavar="ROLE", help="all of that role at once")
    add("--one-way", action="store_true", help="of a partition")
    add("--stop", action="store_true", help="of hubs")
    add("--seed", type=_seed, metavar="N", help="what chance decides by; drawn if not given")
    add("--history", metavar="FILE", help="append what was done, a line of JSON each")
    add("--config", metavar="FILE", help="the cluster.toml of the cluster")
    add("--json", action="store_true", help="for programs")
    return parser
