"""Every error this package raises on purpose.

Two questions sort them: who broke the rule, and is it worth trying again?
What is expected to happen (a request refused, a server busy) is no error:
it is a value the caller must look at (`bus.messages.Refused`).
"""

from typing import Any


class BusError(Exception):
    """Base of all of ours: `except BusError` catches nothing we did not raise."""


class ConfigError(BusError):
    """The settings contradict themselves, or the machine cannot do what they ask.

    Raised at construction, before any traffic; its sentence says what to change.
    """


class RemoteProtocolError(BusError):
    """A peer broke the protocol. Drop the message, count it, stay up."""


class LinkError(BusError):
    """The socket let us down."""


class SendQueueFullError(LinkError):
    """The peer is slower than we are. Not sent; carries the peer."""


class RequestTimeoutError(BusError, TimeoutError):
    """No answer by the deadline. The request may or may not have been carried out."""


class NotReady(BusError, TimeoutError):  # noqa: N818 (a public name, fixed by the design)
    """What was waited for did not come about in time."""


class NotOwner(BusError):  # noqa: N818 (a public name, fixed by the design)
    """Who was asked does not own the key. `route` says who may, if that is known."""

    def __init__(self, sentence: str, route: Any = None) -> None:  # noqa: ANN401 (of a layer above)
        super().__init__(sentence)
        self.route = route
        """A `roles.Route`, or None."""


class LeaseLost(BusError):  # noqa: N818 (a public name, fixed by the design)
    """The key was not held all the time the work on it took. It may or may not have had effect."""


class SystemOverloaded(BusError):  # noqa: N818 (a public name, fixed by the design)
    """Too few bricks answered in time, or it was not worth asking. Nothing is known of a write
    that was sent. Try again after `retry_after_s`, not before."""

    def __init__(self, sentence: str, retry_after_s: float) -> None:
        super().__init__(sentence)
        self.retry_after_s = retry_after_s


class CookieCorrupted(BusError):  # noqa: N818 (a public name, fixed by the design)
    """No cookie of ours: forged, damaged, cut short, or of another application."""


class StateExpired(BusError):  # noqa: N818 (a public name, fixed by the design)
    """The session was deleted, or its time is over."""


class StateLost(BusError):  # noqa: N818 (a public name, fixed by the design)
    """Every copy that the cookie names is known to be gone."""


class StateCorrupted(BusError):  # noqa: N818 (a public name, fixed by the design)
    """A value came that is not the one that was written."""


class StateConflict(BusError):  # noqa: N818 (a public name, fixed by the design)
    """Another request has written this session since. `cookie` names what is there now."""

    def __init__(self, sentence: str, cookie: str) -> None:
        super().__init__(sentence)
        self.cookie = cookie
