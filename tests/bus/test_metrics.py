"""`/metrics`: what a scraper gets, and that no scraper can do harm.

Method: a real server on loopback, spoken to through plain gevent sockets; the answer is read by
Prometheus' own parser. Where a limit is tested it is set low.
"""

import gc
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import gevent
import pytest
from gevent import socket
from prometheus_client.parser import text_string_to_metric_families

from bus.clock import now
from bus.errors import ConfigError
from bus.identity import Identity
from bus.metrics import CONNECTIONS_MAX, MetricsServer
from bus.statistics import Statistics

IDENTITY = Identity("brick-2", "brick", "n1", 17)
WHO = {"id": "brick-2", "role": "brick", "node": "n1"}


@contextmanager
def serving(
    statistics: Statistics, connection_s_max: float = 5.0, request_s_max: float = 5.0
) -> Iterator[MetricsServer]:
    server = MetricsServer(
        statistics,
        IDENTITY,
        "127.0.0.1",
        connection_s_max=connection_s_max,
        request_s_max=request_s_max,
    )
    server.start()
    try:
        yield server
    finally:
        server.close()


def connect(server: MetricsServer) -> socket.socket:
    place = urlsplit(server.url)
    assert place.hostname
    assert place.port
    return socket.create_connection((place.hostname, place.port), timeout=5)


def request(connection: socket.socket, path: str, method: str = "GET") -> tuple[int, str]:
    """One request on a kept connection: its status and its body."""
    connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    with connection.makefile("rb") as stream:
        status = int(stream.readline().split()[1])
        length = 0
        while (header := stream.readline().strip()) != b"":
            name, _, value = header.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, stream.read(length if method != "HEAD" else 0).decode()


def once(server: MetricsServer, path: str, method: str = "GET") -> tuple[int, str]:
    with connect(server) as connection:
        return request(connection, path, method)


def ask_for_ever(connection: socket.socket) -> None:
    """Ask and never read: the answers fill every buffer there is."""
    while True:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 100)


def scraped(server: MetricsServer) -> dict[str, tuple[dict[str, str], float]]:
    status, text = once(server, "/metrics")
    assert status == 200
    families = text_string_to_metric_families(text)
    return {s.name: (s.labels, s.value) for family in families for s in family.samples}


def test_scrape_holds_every_statistic_under_its_prometheus_name() -> None:
    statistics = Statistics()
    statistics.rate("reads", "Reads answered").add(3)
    statistics.counter("drops", "Frames dropped").add(2)
    statistics.size("wait_s", "Longest wait").set(0.25)
    with serving(statistics) as server:
        ours = {name: s for name, s in scraped(server).items() if name.startswith("softstate_")}
    assert ours == {
        "softstate_incarnation": (WHO, 17.0),
        "softstate_statistics_failed_total": (WHO, 0.0),
        "softstate_reads_total": (WHO, 3.0),
        "softstate_drops_total": (WHO, 2.0),
        "softstate_wait_seconds": (WHO, 0.25),
    }


def test_scrape_holds_processor_time_and_memory_of_the_process() -> None:
    with serving(Statistics()) as server:
        samples = scraped(server)
    assert samples["process_cpu_seconds_total"][1] > 0
    assert samples["process_resident_memory_bytes"][1] > 1_000_000


def test_two_servers_in_one_process_do_not_mix() -> None:
    one, other = Statistics(), Statistics()
    one.counter("only_here", "Something")
    with serving(one) as first, serving(other) as second:
        assert "softstate_only_here_total" in scraped(first)
        assert "softstate_only_here_total" not in scraped(second)


@pytest.mark.parametrize(
    ("method", "path", "answer"),
    [
        ("GET", "/healthz", (200, "ok\n")),
        ("HEAD", "/healthz", (200, "")),
        ("GET", "/", (404, "here are /metrics and /healthz\n")),
        ("GET", "/metrics/../etc/passwd", (404, "here are /metrics and /healthz\n")),
        ("POST", "/metrics", (405, "only GET here\n")),
    ],
)
def test_other_requests_get_a_plain_answer(method: str, path: str, answer: tuple[int, str]) -> None:
    with serving(Statistics()) as server:
        assert once(server, path, method) == answer


def test_kept_connection_is_answered_at_once() -> None:
    with serving(Statistics()) as server, connect(server) as connection:
        request(connection, "/metrics")
        took_s = []
        for _ in range(5):
            began = now()
            request(connection, "/metrics")
            took_s.append(now() - began)
        assert sorted(took_s)[2] < 0.03  # With Nagle's algorithm on, 0.04 each.


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"connection_s_max": 0.3}, {"request_s_max": 0.3}], ids=str)
@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\nHost:"])
def test_connections_that_do_not_ask_are_closed_and_make_room(
    limits: dict[str, float], said: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(Statistics(), **limits) as server, ExitStack() as stack:
        for _ in range(CONNECTIONS_MAX):
            stack.enter_context(connect(server)).sendall(said)
        began = now()  # Connections are accepted in their order, so ours is one too many.
        assert once(server, "/healthz") == (200, "ok\n")
        assert 0.1 < now() - began < 2.0
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_scrape_may_take_longer_than_its_request_may(capfd: pytest.CaptureFixture[str]) -> None:
    statistics = Statistics()

    def slow() -> float:
        gevent.sleep(0.3)
        return 1.0

    statistics.size("slow", "Takes its time", slow)
    with serving(statistics, request_s_max=0.1) as server:
        assert scraped(server)["softstate_slow"] == (WHO, 1.0)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_reader_that_stops_reading_is_cut_off_in_silence(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    statistics = Statistics()
    for letter in "abcdefghijklmnopqrstuvwxyz":
        statistics.size(letter, "x" * 5000)
    with serving(statistics, connection_s_max=0.3) as server, connect(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        with caplog.at_level(logging.WARNING), pytest.raises(OSError, match=r"reset|pipe"):
            ask_for_ever(connection)
        assert once(server, "/healthz") == (200, "ok\n")
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01" * 99, b"G" * 20_000, b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 50]
)
def test_garbage_harms_nobody(garbage: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    with serving(Statistics()) as server:
        with connect(server) as connection:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                while connection.recv(4096):
                    pass
        assert once(server, "/healthz") == (200, "ok\n")
    assert capfd.readouterr() == ("", "")


def test_address_of_another_machine_is_refused_with_what_to_do() -> None:
    server = MetricsServer(Statistics(), IDENTITY, "192.0.2.1")
    with pytest.raises(ConfigError, match=r"cannot serve metrics on 192.0.2.1: .*; set the node's"):
        server.start()
    assert server.url == ""
    server.close()


def test_closed_server_leaves_nothing_open() -> None:
    with serving(Statistics()) as server, connect(server) as connection:
        request(connection, "/metrics")
        server.close()
        assert server.url == ""
        assert connection.recv(1) == b""
    gc.collect()  # A socket left open would warn here, and warnings are errors.
