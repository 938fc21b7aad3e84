"""What a tick is made of. Method: peers as the liveness table shows them, written out."""

from bus.config_shape import SessionsConfig
from bus.messages import PeerSeen, PeersSeen, State
from bus.peers import Peer
from pinpoint.gathering import SAW_MAX, Hearsay, gather, needed_of
from pinpoint.samples import Demand, Sample, StubSaw, Tick


def peer(
    component_id: str, told: dict[str, float], *, linked: bool = False, state: State = "live"
) -> Peer:
    return Peer(
        id=component_id,
        incarnation=3,
        state=state,
        heard_at=99.5,
        role=component_id.partition("-")[0],
        node="n1",
        pid=1,
        endpoint="tcp://127.0.0.1:1",
        linked=linked,
        restarts=0,
        age_s=10.0,
        metrics_url="",
        statistics=told,
    )


def stub(component_id: str, refusals: float, **more: bool | State) -> Peer:
    told = {
        "session_reads_per_s": 10.0,
        "session_writes_per_s": 5.0,
        "session_refusals_per_s": refusals,
    }
    return peer(component_id, told, **more)  # type: ignore[arg-type]


def test_tick_has_what_is_ours_and_the_demand_of_all_who_ask() -> None:
    saw = [StubSaw("linked-1", "brick", 1.0, [PeerSeen("brick-1", 3, 9, 9, 0, 0, 0.001, 4.0)])]
    peers = [
        peer("brick-1", {"items": 2.0}),
        peer("hub-1", {}),
        stub("linked-1", 2.0, linked=True),
        stub("frontend-1", 1.0),
        stub("linked-2", 900.0, linked=True, state="dead"),
    ]
    assert gather(peers, saw, 100.0, blind=False) == Tick(
        100.0,
        [
            Sample("brick-1", "brick", "n1", 3, "live", 10.5, 0.5, {"items": 2.0}),
            Sample("hub-1", "hub", "n1", 3, "live", 10.5, 0.5, {}),
            Sample("frontend-1", "frontend", "n1", 3, "live", 10.5, 0.5, peers[3].statistics),
        ],
        saw,
        Demand(asked_per_s=33.0, refused_per_s=3.0),
        blind=False,
    )


def test_who_claims_to_ask_less_than_nothing_takes_nothing_from_the_others() -> None:
    liar = stub("linked-1", -1e17, linked=True)
    demand = gather([liar, stub("linked-2", 1.0, linked=True)], [], 100.0, blind=True).demand
    assert demand == Demand(asked_per_s=16.0, refused_per_s=1.0)


def test_tellings_between_two_ticks_are_bounded_and_each_is_taken_once() -> None:
    hearsay = Hearsay()
    for _ in range(SAW_MAX + 3):
        hearsay.heard("linked-1", PeersSeen("brick", 1.0, []))
    assert hearsay.take() == [StubSaw("linked-1", "brick", 1.0, [])] * SAW_MAX
    assert (hearsay.take(), hearsay.dropped) == ([], 3)


def test_one_brick_more_than_a_write_must_reach_is_needed() -> None:
    assert needed_of(SessionsConfig(WQ=2)) == {"brick": 3}
    sites = SessionsConfig(W_local=2, WQ_local=2, W_remote=1)
    assert needed_of(sites) == {"brick": 4}
