"""Sessions that hardly rest: each writes, reads what it wrote, and writes again. Calls a stub.

As in the paper, but for who decides when: here each call is the next step of some session. The
crowd follows the load: a session that has rested long enough comes first, the latest of them; if
there is none, a new one. So twice the load is twice the sessions, and after a storm those go who
came with it. What went wrong is raised, and counts as a failure; the session then goes on as an
application would: after a conflict with the version that is there, after a loss as a new one.

What always holds:
  Y1  A read must bring what was last written, or it is `WrongValueError`.
  Y2  There are at most `sessions_max`, each with at most one request in flight.
"""

from collections import deque
from itertools import count

from bus.clock import now
from bus.errors import CookieCorrupted, StateConflict, StateExpired, StateLost
from loadtest.open_loop import NoRoomError
from roles.stub import Stub

TTL_S = 60.0
REST_S = 0.25


class WrongValueError(Exception):
    """A read answered with something that its session never wrote: nothing may excuse that."""


class _Session:
    __slots__ = ("cookie", "is_read", "key", "rests_until", "value")

    def __init__(self, key: str) -> None:
        self.key = key
        self.cookie: str | None = None
        self.value = b""
        self.is_read = True
        self.rests_until = 0.0


class Crowd:
    """Calling it takes the next step of the next session."""

    def __init__(self, stub: Stub, sessions_max: int, value_bytes: int, name: str = "user") -> None:
        self._stub = stub
        self._sessions_max = sessions_max
        self._name = name
        self._resting: deque[_Session] = deque()
        """By when they have rested enough."""
        self._rested: list[_Session] = []
        self._filling = bytes(value_bytes)
        self._numbers = count()
        self.sessions = 0

    def __call__(self) -> None:
        session = self._next()
        try:
            self._step(session)
        except StateConflict as error:
            # A write of ours that was given up had been done by some; or so it may be.
            session.cookie = error.cookie or None
            session.is_read = True
            raise
        except (StateLost, StateExpired, CookieCorrupted):
            session.cookie = None
            session.is_read = True
            raise
        finally:
            session.rests_until = now() + REST_S
            self._resting.append(session)

    def _next(self) -> _Session:
        at = now()
        while self._resting and self._resting[0].rests_until <= at:
            self._rested.append(self._resting.popleft())
        if self._rested:
            return self._rested.pop()
        if self.sessions < self._sessions_max:
            self.sessions += 1
            return _Session(f"{self._name}-{self.sessions}")
        if self._resting:
            return self._resting.popleft()
        raise NoRoomError("every session has a request in flight")  # Y2

    def _step(self, session: _Session) -> None:
        if session.is_read or session.cookie is None:
            mark = b"%d " % next(self._numbers)
            value = mark + self._filling[len(mark) :]
            session.cookie = self._stub.write(
                session.key, value, ttl_s=TTL_S, cookie=session.cookie
            )
            session.value, session.is_read = value, False
            return
        session.is_read = True  # Whatever comes of it, a write is next.
        if self._stub.read(session.cookie) != session.value:
            raise WrongValueError(f"{session.key} read what it did not write")  # Y1
