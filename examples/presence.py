"""Who is online? A Flask service on gevent whose owners keep that in memory, and no database.

    softstate up                                      # or `make up`, in another terminal
    python -m examples.presence owner --port 8001
    python -m examples.presence owner --port 8002
    python -m examples.presence frontend --port 8000
    curl -X PUT localhost:8000/presence/alice -d 'in the office'
    curl localhost:8000/presence/alice

Each name is owned by one owner at a time; the frontend finds which without asking anyone. Kill an
owner with `kill -9`: the frontend hears which names lost their state, and puts back what it knows
as soon as others own them. End one with Ctrl-C: its names move within a second.
"""

# ruff: noqa: E402 (patching comes before every other import)

from gevent import monkey

monkey.patch_all()  # As most Flask services on gevent do; softstate works with and without.

import argparse
import json
import logging
import signal
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from functools import partial

import gevent
from flask import Flask, Response, request
from gevent.pywsgi import WSGIServer

from roles import Cluster, KeyRange, LeaseLost, Lookup, NotOwner, Owner, Route
from roles.key_range import position

NAMESPACE = "presence"
NOT_FOUND, MISDIRECTED = 404, 421
TIMEOUT_S = 2.0

log = logging.getLogger("presence")


def owner_app(owner: Owner, online: dict[str, str]) -> Flask:
    app = Flask(__name__)

    @app.route("/presence/<name>", methods=["GET", "PUT"])
    def presence(name: str) -> Response | tuple[Response | str, int]:
        try:
            with owner.guard(name):
                if request.method == "PUT":
                    online[name] = request.get_data(as_text=True)
                return Response(online[name]) if name in online else ("", 404)
        except (NotOwner, LeaseLost):  # Not ours, or no longer: whoever asked tries elsewhere.
            route = owner.route(name)
            known = {} if route is None else {"url": route.url, "number": route.number}
            return Response(json.dumps(known)), MISDIRECTED

    return app


def run_owner(cluster: Cluster, port: int) -> None:
    online: dict[str, str] = {}

    def changed(granted: list[KeyRange], revoked: list[KeyRange]) -> None:
        for name in [name for name in online if any(position(name) in lost for lost in revoked)]:
            del online[name]  # Another owner speaks for it now.
        log.info("owns %d ranges more, %d fewer", len(granted), len(revoked))

    url = f"http://127.0.0.1:{port}"
    owner = Owner(cluster, namespace=NAMESPACE, url=url, on_change=changed)
    owner.start()
    serve(owner_app(owner, online), port, lambda: owner.close(drain_s=2))


def frontend_app(lookup: Lookup, known: dict[str, str]) -> Flask:
    app = Flask(__name__)

    @app.route("/presence/<name>", methods=["GET", "PUT"])
    def presence(name: str) -> Response | tuple[str, int]:
        body = request.get_data(as_text=True) if request.method == "PUT" else None
        try:
            answer = lookup.call(name, lambda route: ask(route, name, body), timeout_s=15)
        except NotOwner as error:
            return f"{error}\n", 503
        if body is not None:
            known[name] = body
        return ("", 404) if answer is None else Response(answer)

    return app


def run_frontend(cluster: Cluster, port: int) -> None:
    known: dict[str, str] = {}  # What passed through here: enough to put soft state back.

    def lost(ranges: list[KeyRange]) -> None:
        names = [name for name in known if any(position(name) in each for each in ranges)]
        log.info("state of %d ranges is gone; putting back %d names", len(ranges), len(names))
        gevent.spawn(put_back, names)

    def put_back(names: list[str]) -> None:
        done = 0
        for name in names:
            try:
                lookup.call(name, partial(ask, name=name, body=known[name]), timeout_s=30)
                done += 1
            except NotOwner as error:
                log.warning("%s was not put back: %s", name, error)
        log.info("put back %d names", done)

    lookup = Lookup(cluster, namespace=NAMESPACE, on_loss=lost)
    lookup.start()
    lookup.ready()
    serve(frontend_app(lookup, known), port, lookup.close)


def ask(route: Route, name: str, body: str | None) -> str | None:
    """Read or write one name at its owner; `NotOwner` if that is somewhere else by now."""
    data = None if body is None else body.encode()
    method = "GET" if body is None else "PUT"
    url = f"{route.url}/presence/{urllib.parse.quote(name, safe='')}"
    question = urllib.request.Request(url, data=data, method=method)
    try:
        with urllib.request.urlopen(question, timeout=TIMEOUT_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        if error.code == NOT_FOUND:
            return None
        hint = json.loads(error.read()) if error.code == MISDIRECTED else {}
        raise NotOwner(
            f"{route.url} does not own {name}: {error}", Route(**hint) if hint else None
        ) from None
    except OSError as error:
        raise NotOwner(f"{route.url} does not answer: {error}") from None


def serve(app: Flask, port: int, close: Callable[[], None]) -> None:
    server = WSGIServer(("127.0.0.1", port), app, log=None)

    def end() -> None:
        close()  # First, while we still serve: who asks meanwhile is sent on.
        server.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        gevent.signal_handler(number, end)
    log.info("serving at http://127.0.0.1:%d", port)
    server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description="Who is online? An example of leases.")
    parser.add_argument("role", choices=["owner", "frontend"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--config", help="the cluster.toml; found as commands find it if left out")
    options = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s {options.role}:{options.port} %(message)s"
    )
    cluster = Cluster.load(options.config)
    (run_owner if options.role == "owner" else run_frontend)(cluster, options.port)


if __name__ == "__main__":
    main()
