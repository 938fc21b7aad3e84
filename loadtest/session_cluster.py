"""A cluster of bricks for the session benchmarks, in a process of its own.

Its event loop turns however long the benchmark waits for others, so it is never taken for dead.
"""

import sys

import msgspec

from bus.clock import now
from loadtest.child import answer_all, tell
from loadtest.greenlets import read_line
from loadtest.session_requests import ClusterAsked, ClusterUp, Obeyed, Order
from roles.testing import LocalCluster


def main(asked_text: str) -> None:
    """Be up until the benchmark hangs up."""
    asked = msgspec.json.decode(asked_text, type=ClusterAsked)
    with LocalCluster(
        hubs=2,
        nodes=asked.nodes,
        bricks=asked.bricks,
        preset=asked.preset,
        heal=False,  # What a benchmark kills is dead for as long as it says.
        settings={"sessions": asked.sessions},
    ) as local:
        rows = [row for row in local.components() if not row.linked and row.pid]
        bricks = {row.id: row.pid for row in rows if row.role == "brick"}
        tell(ClusterUp(local.cluster.config.source, bricks, [row.pid for row in rows]))

        def obey(order: Order) -> Obeyed:
            if order.verb == "kill":
                local.kill(order.id)
                return Obeyed(now(), 0)
            local.start(order.id)
            pid = local.wait_live(order.id).pid
            return Obeyed(now(), pid)

        answer_all(Order, obey, read_line)


if __name__ == "__main__":
    main(*sys.argv[1:])
