"""`/metrics` of one process, for Prometheus. Reads the statistics, changes nothing.

A small HTTP server on a free port of the node's address; the port rides in the beacon
(`metrics_url`), so nothing has to be configured. It runs in greenlets of its own and touches no
socket of the bus: a scraper that is slow, stuck or hostile costs its own connection and no more.

What always holds:
  M1  At most `CONNECTIONS_MAX` connections, each for `CONNECTION_S_MAX`, and for `REQUEST_S_MAX`
      without a whole request; the rest wait outside.
  M2  Labels are who the process is (id, role, node). They survive restarts, so the number of
      series is the number of components times the number of statistics, and never grows.
  M3  Accepted sockets send at once: pywsgi writes head and body apart, and Nagle's algorithm
      would make every scrape on a kept connection wait 40 ms for an acknowledgement.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Literal

import gevent
from gevent import socket
from gevent.pool import Pool
from gevent.pywsgi import WSGIHandler, WSGIServer
from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bus.errors import ConfigError
from bus.identity import Identity
from bus.statistics import PROMETHEUS_PREFIX, Statistics

CONNECTIONS_MAX = 8  # A pair of Prometheus servers, an agent and a person, twice over.
CONNECTION_S_MAX = 10.0  # Then it is closed, used or not; a scraper just connects again.
REQUEST_S_MAX = 2.0  # A scraper that connects has something to ask; one that waits may come back.

log = logging.getLogger(__name__)

Environ = dict[str, Any]
StartResponse = Callable[[str, list[tuple[str, str]]], object]


class StatisticsCollector(Collector):
    """What prometheus_client asks at each scrape."""

    labels: ClassVar[list[str]] = ["id", "role", "node"]

    def __init__(self, statistics: Statistics, identity: Identity) -> None:
        self._statistics = statistics
        self._identity = identity

    def collect(self) -> Iterable[Metric]:
        identity = self._identity
        values = [identity.id, identity.role, identity.node]  # M2
        incarnation = GaugeMetricFamily(
            PROMETHEUS_PREFIX + "incarnation", "Grows with each life of this id", labels=self.labels
        )
        incarnation.add_metric(values, identity.incarnation)
        yield incarnation
        for name, kind, text, value in self._statistics.families():
            family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
            metric = family(name, text, labels=self.labels)
            metric.add_metric(values, value)
            yield metric


class MetricsServer:
    """Serves `/metrics` and `/healthz` from `start` to `close`."""

    def __init__(
        self,
        statistics: Statistics,
        identity: Identity,
        address: str,
        *,
        connection_s_max: float = CONNECTION_S_MAX,
        request_s_max: float = REQUEST_S_MAX,
    ) -> None:
        self._address = address
        self._connection_s_max = connection_s_max
        self._request_s_max = request_s_max
        self._server: _Server | None = None
        registry = CollectorRegistry()  # Our own: a program we are linked into has another.
        registry.register(StatisticsCollector(statistics, identity))
        ProcessCollector(registry=registry)
        self._exposition = make_wsgi_app(registry, disable_compression=True)

    @property
    def url(self) -> str:
        """Where to scrape, `http://127.0.0.1:40123/metrics`; empty unless started."""
        if self._server is None:
            return ""
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"http://{host}:{self._server.server_port}/metrics"

    def start(self) -> None:
        server = _Server(
            self._listen(),
            self._answer,
            spawn=Pool(CONNECTIONS_MAX),
            log=None,
            error_log=None,
            handler_class=_Handler,
            environ={"SERVER_NAME": self._address},  # Else pywsgi asks DNS, and waits for it.
        )
        server.connection_s_max = self._connection_s_max
        server.request_s_max = self._request_s_max
        server.start()
        self._server = server

    def close(self) -> None:
        if self._server is not None:
            self._server.stop(timeout=0)
            self._server = None

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.bind((self._address, 0))
            listener.listen(CONNECTIONS_MAX)
        except OSError as error:
            listener.close()
            raise ConfigError(
                f"cannot serve metrics on {self._address}: {error.strerror or error}; "
                "set the node's address to one of this machine, or metrics.enabled = false"
            ) from error
        return listener

    def _answer(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _say(start_response, "405 Method Not Allowed", "only GET here")
        match environ["PATH_INFO"]:
            case "/metrics":
                body: Iterable[bytes] = self._exposition(environ, start_response)
                return body
            case "/healthz":
                return _say(start_response, "200 OK", "ok")
            case _:
                return _say(start_response, "404 Not Found", "here are /metrics and /healthz")


def _say(start_response: StartResponse, status: str, sentence: str) -> list[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [sentence.encode() + b"\n"]


class _Server(WSGIServer):
    connection_s_max: float
    request_s_max: float

    def handle(self, connection: socket.socket, address: str) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # M3
        with suppress(gevent.Timeout), gevent.Timeout(self.connection_s_max):  # M1
            super().handle(connection, address)


class _Handler(WSGIHandler):
    server: _Server

    def handle_one_request(self) -> tuple[str, bytes] | Literal[True] | None:
        with gevent.Timeout(self.server.request_s_max) as self._reading:  # M1
            return super().handle_one_request()

    def get_environ(self) -> Environ:
        self._reading.cancel()  # It has been read: now only the limit of the connection counts.
        return super().get_environ()

    def handle_error(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close without a word: sending one more answer to a peer that does not read would wait."""
        self.close_connection = True
        if not isinstance(error, gevent.Timeout | gevent.GreenletExit):
            log.warning("a scrape failed: %s: %s", kind.__name__ if kind else "?", error)
