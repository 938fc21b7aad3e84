"""Who tells of what all agents noticed: ranks and times in, events out."""

from roles.telling import TELLERS, WAITING_MAX, Telling

DIED = ("died", "hub-1", "no beacon for 3.0 s")


def test_the_first_agent_tells_at_once_and_only_once() -> None:  # T1
    telling = Telling(turn_s=2.0)
    telling.noticed(DIED, rank=0, now=10.0)
    assert telling.wake_at == 10.0
    assert telling.due(10.0) == [DIED]
    assert telling.due(11.0) == []


def test_the_next_agent_tells_what_nobody_told_before_its_turn() -> None:  # T1
    telling = Telling(turn_s=2.0)
    telling.noticed(DIED, rank=1, now=10.0)
    assert (telling.due(11.9), telling.wake_at) == ([], 12.0)
    assert telling.due(12.0) == [DIED]


def test_what_was_told_in_the_meantime_is_not_told_again() -> None:  # T2
    telling = Telling(turn_s=2.0)
    telling.noticed(DIED, rank=1, now=10.0)
    telling.heard("died", "hub-1")
    assert telling.due(12.0) == []


def test_one_event_does_not_stand_for_another() -> None:  # T1
    telling = Telling(turn_s=2.0)
    telling.noticed(DIED, rank=1, now=10.0)
    telling.heard("suspected", "hub-1")
    telling.heard("died", "hub-2")
    assert telling.due(12.0) == [DIED]


def test_it_waits_no_longer_for_a_second_notice_of_the_same() -> None:
    telling = Telling(turn_s=2.0)
    telling.noticed(DIED, rank=1, now=10.0)
    telling.noticed(DIED, rank=1, now=11.5)
    assert telling.due(12.0) == [DIED]


def test_few_agents_have_a_turn_and_few_things_wait_for_it() -> None:  # T3
    telling = Telling(turn_s=2.0)
    telling.noticed(DIED, rank=TELLERS, now=10.0)
    assert telling.due(1000.0) == []
    for number in range(WAITING_MAX + 5):
        telling.noticed(("died", f"brick-{number}", ""), rank=0, now=10.0)
    assert len(telling.due(10.0)) == WAITING_MAX
