"""One small application in Flask, in Django and in plain WSGI: what the tests of sessions serve.

    python -m tests.roles.web_apps flask PORT
    gunicorn -k gevent 'tests.roles.web_apps:application("flask")'

Run, never imported, by tests: it patches, as servers on gevent do. The cluster is named in
SOFTSTATE_TEST_CONFIG, the life of a session in SOFTSTATE_TEST_TTL_S.
"""

# ruff: noqa: E402 (patching comes before every other import)

from gevent import monkey

monkey.patch_all()

import json
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from gevent.event import Event
from gevent.pywsgi import WSGIServer

from roles.cluster import Cluster

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication
    from django.http import HttpRequest, HttpResponse

CONFIG = os.environ["SOFTSTATE_TEST_CONFIG"]
TTL_S = float(os.environ.get("SOFTSTATE_TEST_TTL_S", "600"))
PRIORITY = "X-Test-Priority"

waiting: list[Event] = []
"""Requests that have read their session and wait to be released."""


class Session:
    """The session of a request, whatever the framework calls what one does with it."""

    def __init__(
        self, items: Callable[[], Any], new_id: Callable[[], None], end: Callable[[], None]
    ) -> None:
        self.items = items
        self.new_id = new_id
        self.end = end


def act(path: str, query: dict[str, str], session: Session) -> object:
    match path.strip("/"):
        case "idle":
            return {"pid": os.getpid()}
        case "waiting":
            return len(waiting)
        case "release":
            for each in waiting:
                each.set()
            waiting.clear()
            return "released"
        case of_session:
            return _act_on_session(of_session, query, session)


def _act_on_session(path: str, query: dict[str, str], session: Session) -> object:
    items = session.items()
    match path:
        case "all":
            return dict(items.items())
        case "lost":
            return [items.was_lost, items.reason]
        case "set":
            items[query["key"]] = query["value"]
        case "append":
            items.setdefault("list", [])
            items["list"].append(query["value"])
        case "slow":
            _wait(items)
            items[query["key"]] = query["value"]
        case "login" | "slow-login" | "login-that-fails":
            _log_in(path, query, session)
        case "logout":
            session.end()
        case "bad":
            items["bad"] = {1, 2}
        case _:
            raise AssertionError(path)
    return dict(items.items())


def _log_in(path: str, query: dict[str, str], session: Session) -> None:
    items = session.items()
    if path == "slow-login":
        _wait(items)
    session.new_id()
    assert path != "login-that-fails"
    items["user"] = query["user"]


def _wait(items: Any) -> None:  # noqa: ANN401
    dict(items.items())  # Reads it.
    released = Event()
    waiting.append(released)
    released.wait(20)


def flask_app() -> "WSGIApplication":
    import flask

    from roles.session_flask import SoftSessionInterface, regenerate

    def priority(request: flask.Request) -> int:
        return int(request.headers.get(PRIORITY, "0"))

    app = flask.Flask(__name__)
    app.session_interface = SoftSessionInterface(
        Cluster.load(CONFIG), ttl_s=TTL_S, priority_of=priority
    )

    @app.route("/<path>", methods=["GET", "POST"])
    def serve(path: str) -> flask.Response:
        session = Session(lambda: flask.session, regenerate, flask.session.clear)
        return flask.jsonify(act(path, flask.request.args.to_dict(), session))

    @app.route("/dates", methods=["GET", "POST"])
    def dates() -> flask.Response:
        """What Flask's own sessions hold beyond JSON."""
        if flask.request.method == "POST":
            flask.session["pair"] = (1, b"bytes")
            flask.flash("hello")
            return flask.jsonify("done")
        return flask.jsonify([repr(flask.session["pair"]), flask.get_flashed_messages()])

    return app


def django_app() -> "WSGIApplication":
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application
    from django.http import JsonResponse
    from django.urls import path as url_path

    def serve(request: "HttpRequest", path: str) -> "HttpResponse":
        items: Any = request.session
        session = Session(lambda: items, items.cycle_key, items.flush)
        return JsonResponse(act(path, request.GET.dict(), session), safe=False)

    class Urls:
        urlpatterns = [url_path("<path>", serve)]  # noqa: RUF012 (Django's way)

    settings.configure(
        ALLOWED_HOSTS=["127.0.0.1"],
        SECRET_KEY="of tests",
        ROOT_URLCONF=Urls,
        MIDDLEWARE=["roles.session_django.SoftSessionMiddleware"],
        SESSION_ENGINE="roles.session_django",
        SESSION_COOKIE_NAME="session",
        SESSION_COOKIE_AGE=TTL_S,
        SESSION_SAVE_EVERY_REQUEST=True,
        SOFTSTATE_CLUSTER=CONFIG,
        SOFTSTATE_PRIORITY_OF="tests.roles.web_apps.django_priority",
    )
    django.setup()
    return get_wsgi_application()


def django_priority(request: "HttpRequest") -> int:
    return int(request.headers.get(PRIORITY, "0"))


def wsgi_app() -> "WSGIApplication":
    from roles.session_wsgi import SESSION, SoftSessionMiddleware

    def serve(environ: dict[str, Any], start_response: "StartResponse") -> Iterable[bytes]:
        items = environ[SESSION]
        session = Session(lambda: items, items.regenerate, items.clear)
        answer = act(environ["PATH_INFO"], dict(parse_qsl(environ["QUERY_STRING"])), session)
        start_response("200 OK", [("Content-Type", "application/json")])
        yield b""  # As a generator may: before it says anything.
        yield json.dumps(answer).encode()

    def priority(environ: dict[str, Any]) -> int:
        return int(environ.get("HTTP_X_TEST_PRIORITY", "0"))

    return SoftSessionMiddleware(serve, CONFIG, ttl_s=TTL_S, priority_of=priority)


def application(kind: str) -> "WSGIApplication":
    return {"flask": flask_app, "django": django_app, "wsgi": wsgi_app}[kind]()


def main() -> None:
    server = WSGIServer(("127.0.0.1", int(sys.argv[2])), application(sys.argv[1]), log=None)
    server.start()
    print("serving", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
