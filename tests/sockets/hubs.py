"""Hubs in the process of the test, each with sockets of its own, to be ended and started again."""

from pathlib import Path

from bus.config import local, publish_address
from bus.identity import Identity
from bus.messages import Message
from bus.news import News
from bus.pump import Pump, Relay
from bus.security import Security
from tests.waiting import until

TOPIC = "note"
PATIENCE_S = 5.0


class Note(Message, frozen=True, tag="test.note"):
    number: int


PROBE = Note(-1)


class Hubs:
    def __init__(self, directory: Path, count: int, security: Security | None = None) -> None:
        self.addresses = local(directory, run={"hub": count}).hubs
        self.security = security
        self.pumps: list[Pump] = []
        self.relays: list[Relay | None] = []
        for address in self.addresses:
            self.pumps.append(Pump(security))
            self.relays.append(Relay(self.pumps[-1], address, publish_address(address)))

    def end(self, place: int) -> None:
        self.pumps[place].close()
        self.relays[place] = None

    def start(self, place: int) -> None:
        address = self.addresses[place]
        self.pumps[place] = Pump(self.security)
        self.relays[place] = Relay(self.pumps[place], address, publish_address(address))

    def close(self) -> None:
        for pump in self.pumps:
            pump.close()


class Listener:
    """One process's news: what it heard, but for probes, as (sender, number)."""

    def __init__(self, name: str, hubs: tuple[str, ...], security: Security | None = None) -> None:
        self.pump = Pump(security)
        self.news = News(self.pump, Identity(name, name, "n1", 1), hubs)
        self.heard: list[tuple[str, int]] = []
        self.probes = 0
        self.news.subscribe(TOPIC, Note, lambda header, note: self._heard(header.sender, note))

    def _heard(self, sender: str, note: Note) -> None:
        if note == PROBE:
            self.probes += 1
        else:
            self.heard.append((sender, note.number))

    def publish(self, number: int) -> None:
        self.news.publish(TOPIC, Note(number))

    def wait_until_hearing(self, other: "Listener", hubs: int = 1) -> None:
        """Until news of `other` comes to us through that many hubs."""
        probes, repeated = self.probes, self.news.windows.repeated

        def hearing() -> bool:
            other.news.publish(TOPIC, PROBE)
            return self.probes > probes and (hubs == 1 or self.news.windows.repeated > repeated)

        until(hearing, PATIENCE_S, f"news through {hubs} hubs")

    def wait_for(self, count: int) -> None:
        until(lambda: len(self.heard) >= count, PATIENCE_S, f"{count} notes")

    def close(self) -> None:
        self.news.close()
        self.pump.close()
