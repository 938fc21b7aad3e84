"""When a hub re-binds, and what it does if it cannot. The relay and the member are fakes."""

from itertools import pairwise

import gevent
import pytest
from gevent.event import Event as Flag

from bus.errors import ConfigError
from roles.hub import rebind_after_s, rebind_when


class Relay:
    def __init__(self, outcomes: list[Exception | None]) -> None:
        self.outcomes = outcomes

    def rebind(self) -> None:
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome


class Member:
    def __init__(self) -> None:
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        self.failure = error


def test_hub_that_cannot_bind_again_fails() -> None:
    taken = ConfigError("tcp://127.0.0.1:7000 is taken")
    relay, member, revoked = Relay([None, taken]), Member(), Flag()
    rebinding = gevent.spawn(rebind_when, revoked, 0.0, relay, member)
    revoked.set()
    gevent.sleep(0.01)
    assert (relay.outcomes, member.failure) == ([taken], None)
    revoked.set()
    rebinding.join(timeout=1)
    assert (relay.outcomes, member.failure) == ([], taken)


@pytest.mark.parametrize("hubs", [1, 2, 5, 16])
def test_hubs_rebind_one_by_one_and_all_soon(hubs: int) -> None:
    after_s = [rebind_after_s(place, hubs) for place in range(hubs)]
    gaps = [later - sooner for sooner, later in pairwise(after_s)]
    assert after_s[0] == 0
    assert after_s[-1] <= 6.0  # And 2 s to see that the list changed: within 10 s.
    assert all(gap == pytest.approx(min(1.5, 6.0 / (hubs - 1))) for gap in gaps)
