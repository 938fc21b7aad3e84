"""Take away what a process may open, for a moment."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def descriptors_max(count: int) -> Iterator[None]:
    """What is open stays so; above `count` nothing is opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def no_descriptors() -> Iterator[None]:
    with descriptors_max(1):
        yield
