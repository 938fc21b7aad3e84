"""How many connections a process takes depends on how many files it may have open."""

import resource

from bus.descriptors import WANTED, connections_allowed, raise_limit
from tests.descriptors import descriptors_max


def test_connections_are_bounded_by_a_quarter_of_the_descriptors() -> None:
    with descriptors_max(400):
        assert [connections_allowed(wanted) for wanted in (4096, 100, 99)] == [100, 100, 99]


def test_limit_is_raised_to_what_the_machine_allows() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with descriptors_max(400):
        raise_limit()
        allowed = WANTED if hard == resource.RLIM_INFINITY else min(hard, WANTED)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (allowed, hard)
