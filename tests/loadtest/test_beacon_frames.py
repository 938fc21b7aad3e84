"""Made-up beacons are real ones on the wire: the bus's own code reads them."""

from bus.frames import MessageDecoder, unjoin
from bus.headers import News
from bus.messages import Beacon
from loadtest.beacon_frames import FIRST_SEQUENCE, Impostor, sequence_in


def test_frame_of_an_impostor_is_read_by_the_bus_as_a_beacon() -> None:
    topic, _, frame = Impostor(42).frame(7).partition(b"\0")
    [(news, body)], unreadable = unjoin(frame)
    assert isinstance(news, News)
    assert (topic, news.sender, news.sequence, body, unreadable) == (
        b"beacon",
        "process-000042",
        FIRST_SEQUENCE + 7,
        b"",
        0,
    )
    assert isinstance(MessageDecoder(Beacon).decode(news.message), Beacon)


def test_sequence_number_is_at_the_same_place_in_every_frame() -> None:
    at = Impostor(0).sequence_at
    for impostor in (0, 1, 999):
        for number in (0, 1, 255, 10**9):
            assert sequence_in(Impostor(impostor).frame(number), at) == number


def test_frames_are_about_as_long_as_real_beacons() -> None:
    sizes = {len(Impostor(number).frame(number)) for number in range(1000)}
    assert len(sizes) == 1
    assert 150 <= min(sizes) <= 250
