"""How many files this process may have open, and how many connections that allows.

A process without a descriptor left can neither be reached nor look at itself; so what others can
take, connections, is bounded well below what there is.
"""

import resource

from bus.config_shape import CONNECTIONS_SHARE

WANTED = 1 << 20
"""More than any process of ours needs; a machine that allows any number need not grant it."""


def raise_limit() -> None:
    """Take what the machine allows: login shells and services often begin with 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def connections_allowed(wanted: int) -> int:
    """How many connections a door may take: `wanted`, or what our descriptors allow."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, soft // CONNECTIONS_SHARE)
