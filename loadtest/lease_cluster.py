"""A cluster for the lease benchmark, in a process of its own: hubs and managers as they really run.

Its event loop turns however long the benchmark waits for others, so it is never taken for dead.
"""

import sys

from loadtest.child import tell
from loadtest.greenlets import read_line
from loadtest.lease_requests import Cluster
from roles.testing import LocalCluster


def main(managers: str) -> None:
    """Be up until the benchmark hangs up."""
    with LocalCluster(hubs=2, nodes=1, managers=int(managers), preset="lan") as local:
        config = local.cluster.config
        found = {row.id: row.pid for row in local.components() if row.role == "manager"}
        tell(Cluster(config.source, list(config.hubs), found))
        while read_line():
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
