"""Goal: a tick has all that is ours to judge, and nothing that cannot be written down and read.

Method: peers as the liveness table shows them, and what askers tell, written out or drawn; what is
recorded of a tick is read again, and judged again.
"""

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.config_shape import PinpointConfig, SessionsConfig
from bus.messages import PeerSeen, PeersSeen, State
from bus.peers import Peer
from pinpoint.gathering import Hearsay, gather, needed_of
from pinpoint.judge import Judge
from pinpoint.outside import ASKERS_MAX, TOLD_MAX
from pinpoint.recording import Header, line_of, read_line
from pinpoint.replay import replay
from pinpoint.samples import Demand, Sample, StubSaw, Tick
from tests.pinpoint.crowd import SICK, Herd


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


@pytest.mark.parametrize(
    "told",
    [
        {"session_reads_per_s": 1e9},
        {"session_reads_per_s": math.inf},
        {"session_refusals_per_s": math.nan},
        {"session_refusals_per_s": 1e308, "session_reads_per_s": 1e308},
    ],
)
def test_who_claims_to_ask_what_nobody_can_is_not_counted(told: dict[str, float]) -> None:
    liar = peer("linked-1", {"session_refusals_per_s": 1.0, **told}, linked=True)
    demand = gather([liar, stub("linked-2", 1.0, linked=True)], [], 100.0, blind=True).demand
    assert demand == Demand(asked_per_s=16.0, refused_per_s=1.0)


def asker(number: int, asked: float, refused: float) -> Peer:
    told = {"session_reads_per_s": asked - refused, "session_refusals_per_s": refused}
    return peer(f"linked-{number}", told, linked=True)


def test_one_of_three_or_more_counts_for_ten_at_most() -> None:
    idle = asker(9, 0.0, 0.0)
    honest = [asker(n, 100.0, 90.0) for n in (1, 2, 3)]
    liar = asker(4, 9e5, 0.0)
    assert gather([*honest, liar, idle], [], 1.0, blind=False).demand == Demand(1300.0, 270.0)
    calm = [asker(n, 100.0, 0.0) for n in (1, 2, 3)]
    assert gather([*calm, asker(4, 4.0, 4.0)], [], 1.0, blind=False).demand == Demand(304.0, 4.0)
    two = gather([honest[0], liar, idle], [], 1.0, blind=False).demand
    assert two == Demand(900_100.0, 90.0)  # Nobody can say which of them is right.


def row(component_id: str = "brick-1", wait_s: float = 0.001, room: float = 4.0) -> PeerSeen:
    return PeerSeen(component_id, 3, 9, 9, 0, 0, wait_s, room)


def test_rows_that_cannot_be_are_dropped_and_counted_and_the_others_stay() -> None:
    hearsay = Hearsay()
    rows = [
        row(),
        row(wait_s=0.5),  # Once more of the same life.
        row("brick-2", wait_s=math.nan),
        row("brick-2", wait_s=1e300),
        row("brick-2", room=math.inf),
        row("brick-2", room=-1.0),
        msgspec.structs.replace(row("brick-2"), silent=-1),
        msgspec.structs.replace(row("brick-2"), asked=10**12),
        row("b" * 999),
        row("brick-3"),
    ]
    hearsay.heard("linked-1", PeersSeen("brick", 1.0, rows))
    hearsay.heard("linked-1", PeersSeen("brick", math.nan, [row()]))
    hearsay.heard("linked-1", PeersSeen("b" * 999, 1.0, [row()]))
    hearsay.heard("l" * 999, PeersSeen("brick", 1.0, [row()]))
    hearsay.heard("linked-1", PeersSeen("brick", 0.5, [row()]))
    assert hearsay.dropped == 11
    assert hearsay.take() == [
        StubSaw("linked-1", "brick", 1.0, [row(), row("brick-3")]),
        StubSaw("linked-1", "brick", 0.5, [row()]),
    ]
    assert hearsay.take() == []


def test_who_tells_too_much_loses_the_rest_of_it_and_silences_nobody_else() -> None:
    hearsay = Hearsay()
    rows = [row(f"brick-{n}") for n in range(600)]
    loud = PeersSeen("brick", 1.0, rows)
    for _ in range(100):
        hearsay.heard("loud", loud)
    hearsay.heard("linked-1", PeersSeen("brick", 1.0, [row()]))
    assert hearsay.dropped == 100 * 600 - TOLD_MAX
    assert hearsay.take() == [
        StubSaw("loud", "brick", 1.0, rows),
        StubSaw("loud", "brick", 1.0, rows[: TOLD_MAX - 600]),
        StubSaw("linked-1", "brick", 1.0, [row()]),
    ]
    hearsay.heard("loud", PeersSeen("brick", 1.0, rows[:1]))
    assert hearsay.take() == [StubSaw("loud", "brick", 1.0, rows[:1])]


def test_askers_between_two_ticks_are_bounded() -> None:
    hearsay = Hearsay()
    for number in range(ASKERS_MAX + 3):
        hearsay.heard(f"linked-{number}", PeersSeen("brick", 1.0, [row()]))
    assert (len(hearsay.take()), hearsay.dropped) == (ASKERS_MAX, 3)


def test_statistics_and_ages_that_no_line_can_hold_are_not_in_a_tick() -> None:
    odd = peer("brick-1", {"items": 2.0, "cpu": math.nan, "rss_bytes": -math.inf})
    odd = msgspec.structs.replace(odd, age_s=math.inf)
    tick = gather([odd], [], 100.0, blind=False)
    assert tick.samples == [Sample("brick-1", "brick", "n1", 3, "live", 0.5, 0.5, {"items": 2.0})]
    assert read_line(line_of(tick)) == tick


any_float = st.floats() | st.floats(0, 2) | st.integers(-3, 10**6).map(float)
any_count = st.integers(-(2**63), 2**64 - 1) | st.integers(0, 200)
any_row = st.builds(
    PeerSeen,
    id=st.text(max_size=9) | st.sampled_from([f"brick-{n}" for n in range(1, 7)]),
    incarnation=any_count | st.just(1),
    asked=any_count,
    answered=any_count,
    refused=any_count,
    silent=any_count,
    wait_s=any_float,
    room=any_float,
)
any_telling = st.builds(
    PeersSeen,
    role=st.text(max_size=9) | st.just("brick"),
    period_s=any_float | st.just(1.0),
    seen=st.lists(any_row, max_size=12),
)
HEADER = Header(
    by="pinpoint-1",
    incarnation=7,
    part=0,
    period_s=1.0,
    needed={"brick": 3},
    settings=PinpointConfig(),
)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.text(max_size=9), any_telling), max_size=6),
    st.dictionaries(st.text(max_size=9) | st.just("session_refusals_per_s"), any_float),
)
def test_whatever_is_told_is_judged_alike_when_it_is_replayed(
    told: list[tuple[str, PeersSeen]], statistics: dict[str, float]
) -> None:
    wire = msgspec.msgpack.Decoder(PeersSeen)
    told = [(asker, wire.decode(msgspec.msgpack.encode(each))) for asker, each in told]
    herd, judge, hearsay = Herd(6, 5), Judge(HEADER.settings, HEADER.needed), Hearsay()
    lines, live = [line_of(HEADER)], []
    for second in range(30):
        well = herd.tick({"brick-3": SICK} if second >= 15 else None)
        for asker, each in told:
            hearsay.heard(asker, each)
        heard = gather([peer("linked-1", statistics)], hearsay.take(), well.at, blind=False)
        tick = msgspec.structs.replace(
            heard, samples=[*well.samples, *heard.samples], saw=[*heard.saw, *well.saw]
        )
        lines.append(line_of(tick))
        assert read_line(lines[-1]) == tick
        live += [(each.id, each.sentence) for each in judge.tick(tick).condemned]
    replayed = replay(lines)
    assert replayed.unreadable == 0
    assert [(each.id, each.reason) for each in replayed.condemned] == live


def test_one_brick_more_than_a_write_must_reach_is_needed() -> None:
    assert needed_of(SessionsConfig(WQ=2)) == {"brick": 3}
    sites = SessionsConfig(W_local=2, WQ_local=2, W_remote=1)
    assert needed_of(sites) == {"brick": 4}
