"""A shop to click through: log in, fill the cart, kill bricks, keep the cart.

    .venv/bin/python examples/shop.py            # beside `make up`, or `softstate up`
    .venv/bin/python examples/shop.py --local    # with a cluster of its own, and buttons that kill

Each page shows which bricks have your session. Kill any of them between two clicks (`softstate
status` tells their process ids): the cart stays.
"""

# ruff: noqa: E402 (patching comes before every other import)

from gevent import monkey

monkey.patch_all()

import argparse
import logging
import signal
import sys
from collections import Counter
from contextlib import ExitStack
from typing import cast

import gevent
import psutil
from flask import Flask, redirect, render_template_string, request, session
from gevent.pywsgi import WSGIServer
from werkzeug import Response

from bus.errors import BusError
from roles import Cluster
from roles.key_ring_file import KeyRingFile
from roles.session_flask import SoftSession, SoftSessionInterface, regenerate
from roles.testing import LocalCluster

log = logging.getLogger("shop")

GOODS = {"tea": 4, "bread": 3, "cheese": 7, "apples": 2}
PAGE = """<!doctype html><html lang="en"><title>A shop on bricks</title>
<style>body{font:16px sans-serif;max-width:40em;margin:2em auto} form{display:inline}
aside{background:#eee;padding:1em;margin-top:2em}</style><h1>A shop on bricks</h1>
{% if user %}
<p>Hello <b id="user">{{ user }}</b>.
<form method="post" action="/logout"><button id="logout">Log out</button></form></p>
{% for name, price in goods.items() %}
<form method="post" action="/add/{{ name }}"><button id="add-{{ name }}">{{ name }}, {{ price }} €
</button></form>
{% endfor %}
<p>Your cart: <span id="cart">{% for name, count in cart.items() %}{{ count }} {{ name }} {% else %}
empty{% endfor %}</span>, in all <span id="total">{{ total }}</span> €.</p>
{% else %}
{% if lost %}<p id="lost">Your last session is gone ({{ lost }}): please log in anew.</p>{% endif %}
<form method="post" action="/login"><input id="name" name="name" placeholder="your name" required
maxlength="40"><button id="login">Log in</button></form>
{% endif %}
<aside>{% if where %}Version <span id="version">{{ where.version }}</span>, says your cookie, is on
<span id="bricks">{% for number, life in where.copies %}brick-{{ number }} {% endfor %}</span>
{% else %}You have no session.{% endif %}
{% if kills %}<p>{% for id in kills %}<form method="post" action="/kill/{{ id }}">
<button id="kill-{{ id }}">kill -9 {{ id }}</button></form> {% endfor %}</p>{% endif %}
</aside>"""


def shop(cluster: Cluster, local: LocalCluster | None) -> Flask:
    app = Flask(__name__)
    app.session_interface = SoftSessionInterface(cluster)
    ring = KeyRingFile(cluster.config.key_ring_path, cluster.config.sessions.application)
    kills = ["brick-1", "brick-2", "brick-3", "brick-4"] if local else []

    @app.get("/")
    def page() -> str:
        cart = session.get("cart", {})
        total = sum(GOODS[name] * count for name, count in cart.items())
        # For show only: no application has to know what is in its cookies.
        where = ring.decode(request.cookies["session"]) if session else None
        return render_template_string(
            PAGE, user=session.get("user"), goods=GOODS, cart=cart, total=total, where=where,
            kills=kills, lost=cast(SoftSession, session).reason,
        )  # fmt: skip

    @app.post("/login")
    def login() -> Response:
        session["user"] = request.form["name"][:40]
        regenerate()  # So that nobody knows our session id from before.
        return redirect("/")

    @app.post("/add/<name>")
    def add(name: str) -> Response:
        if name in GOODS and "user" in session:
            session["cart"] = Counter(session.get("cart", {})) + Counter([name])
        return redirect("/")

    @app.post("/logout")
    def logout() -> Response:
        session.clear()
        return redirect("/")

    @app.post("/kill/<brick>")
    def kill(brick: str) -> Response | tuple[str, int]:
        if local is not None and brick in kills:
            try:
                local.kill(brick)
            except (ValueError, psutil.NoSuchProcess, BusError):  # Clicked twice.
                return f'{brick} is not there just now. <a href="/">Back to the shop</a>', 409
            gevent.spawn(bring_back, local, brick)
        return redirect("/")

    return app


def bring_back(local: LocalCluster, brick: str) -> None:
    """Empty, as it has no disk."""
    try:
        local.start(brick)
    except BusError as error:
        log.warning("%s does not come back: %s", brick, error)


def main() -> None:
    parser = argparse.ArgumentParser(description="A shop, as an example of sessions.")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--config", help="the cluster.toml; found as commands find it if left out")
    parser.add_argument("--local", action="store_true", help="start a cluster of its own")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    try:
        serve(options)
    except BusError as error:  # No cluster, no key ring: its sentence says what to do.
        sys.exit(f"shop: {error}")


def serve(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        local = stack.enter_context(LocalCluster(bricks=4)) if options.local else None
        app = shop(local.cluster if local else Cluster.load(options.config), local)
        server = WSGIServer(("127.0.0.1", options.port), app, log=None)
        for number in (signal.SIGINT, signal.SIGTERM):
            gevent.signal_handler(number, server.stop)
        server.start()
        print(f"the shop is open: http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
