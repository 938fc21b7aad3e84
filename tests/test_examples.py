"""The example a newcomer runs first does what it says: greeters find and greet each other.

Method: two nodes with one greeter each, as real processes. What they count is read from their
beacons, as any program that joins the cluster would read it, and what they log from their output.
"""

import pytest

from roles.testing import LocalCluster
from tests.waiting import until


@pytest.mark.slow
def test_two_greeters_on_two_nodes_greet_each_other_and_count_it() -> None:
    roles = {"greeter": "examples.hello_role:main"}
    with LocalCluster(nodes=2, hubs=2, greeters=2, preset="fast", roles=roles) as local:
        member = local.cluster.member()
        try:

            def counted() -> dict[str, tuple[bool, float]]:
                """Of each greeter: whether it gave greetings of late, and how many it knows."""
                return {
                    peer.id: (
                        peer.statistics.get("greetings_per_s", 0.0) > 0,
                        peer.statistics.get("friends", 0.0),
                    )
                    for peer in member.peers("greeter")
                }

            seen: dict[str, tuple[bool, float]] = {}

            def both_counted() -> bool:
                # A beacon covers a fifth of a second and there is one greeting a second, so the
                # two rates need not show in the same beacon.
                seen.update({name: counts for name, counts in counted().items() if counts[0]})
                return len(seen) == 2

            until(both_counted, 15, "both greeters say in their beacons that they gave greetings")
            assert seen == {"greeter-1": (True, 1.0), "greeter-2": (True, 1.0)}
            answer = "greeter-2: hello greeter-1, this is greeter-2"
            until(lambda: answer in local.output("greeter-1"), 15, "greeter-1 logs the answer")
        finally:
            local.cluster.release()


@pytest.mark.slow
def test_greeter_goes_on_with_the_others_when_one_is_killed() -> None:
    roles = {"greeter": "examples.hello_role:main"}
    with LocalCluster(nodes=2, hubs=2, greeters=3, preset="fast", heal=False, roles=roles) as local:
        local.kill("greeter-2")
        heard = local.output("greeter-1").count("this is greeter-3")
        until(
            lambda: local.output("greeter-1").count("this is greeter-3") > heard + 1,
            15,
            "greeter-1 is greeted by greeter-3 after greeter-2 died",
        )
