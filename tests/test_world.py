"""The simulator itself: what its verbs do and do not do.

Method: actors that publish or send one frame when started and note whatever reaches them.
"""

import pytest

from tests.world import NEVER, Effect, Note, Publish, Send, World


class Talker:
    """Says `says` once, at its start; notes what it hears and receives."""

    def __init__(self, now: float, says: list[Effect]) -> None:
        self._says = says
        self.wake_at = now

    def advance(self, now: float) -> list[Effect]:
        self.wake_at = NEVER
        return self._says

    def receive(self, sender: str, frame: bytes, now: float) -> list[Effect]:
        return [Note(f"received {frame.decode()} from {sender}")]

    def hear(self, sender: str, frame: bytes, now: float) -> list[Effect]:
        return [Note(f"heard {frame.decode()} from {sender}")]


def add(world: World, name: str, *says: Effect) -> None:
    world.add(name, lambda now: Talker(now, list(says)))


def noted(world: World) -> list[tuple[str, object]]:
    return [(name, what) for _, name, what in world.noted]


def test_published_frame_reaches_everyone_once_through_each_hub_that_is_up() -> None:
    world = World(1, hubs=["hub-1", "hub-2", "hub-3"])
    world.kill("hub-3")
    add(world, "a", Publish(b"x"))
    world.run(1)
    assert noted(world) == [("a", "heard x from a")] * 2


def test_paused_hub_passes_on_late_what_it_held_and_a_killed_one_never() -> None:
    world = World(1, hubs=["hub-1", "hub-2"])
    world.pause("hub-1", 5)
    world.pause("hub-2", 5)
    add(world, "a", Publish(b"x"))
    world.run(1)
    world.kill("hub-2")
    world.start("hub-2")
    world.run(3)
    assert noted(world) == []
    world.run(2)
    assert noted(world) == [("a", "heard x from a")]


def test_cut_is_one_way() -> None:
    world = World(1)
    world.cut("a", "b")
    add(world, "a", Send("b", b"x"))
    add(world, "b", Send("a", b"y"))
    world.run(1)
    assert noted(world) == [("a", "received y from b")]


def test_news_can_be_cut_while_the_process_of_the_hub_is_still_reached() -> None:
    world = World(1, hubs=["hub-1"])
    add(world, "hub-1")
    world.cut_news("a", "hub-1")
    add(world, "a", Publish(b"x"), Send("hub-1", b"y"))
    world.run(1)
    assert noted(world) == [("hub-1", "received y from a")]


def test_paused_process_takes_up_what_came_meanwhile_when_it_resumes() -> None:
    world = World(1)
    add(world, "b")
    world.pause("b", 3)
    add(world, "a", Send("b", b"x"))
    world.run(2.9)
    assert noted(world) == []
    world.run(0.2)
    assert noted(world) == [("b", "received x from a")]


def test_started_again_an_actor_remembers_nothing() -> None:
    world = World(1)
    add(world, "b")
    add(world, "a", Send("b", b"x"))
    world.run(1)
    world.start("a")
    world.run(1)
    assert noted(world) == [("b", "received x from a")] * 2


def test_healed_world_has_everyone_up_and_nothing_cut() -> None:
    world = World(1, hubs=["hub-1"])
    add(world, "a", Publish(b"x"))
    world.run(1)
    world.noted.clear()
    world.kill("hub-1")
    world.kill("a")
    world.isolate("a")
    world.heal()
    world.run(1)
    assert noted(world) == [("a", "heard x from a")]


def test_failed_check_is_told_with_the_seed_and_the_last_events() -> None:
    world = World(17)
    add(world, "b")
    add(world, "a", Send("b", b"x"))

    def check() -> None:
        assert not world.noted, "something came"

    with pytest.raises(AssertionError, match=r"(?s)seed 17, t=.*something came.*b: received x"):
        world.run(1, check)
