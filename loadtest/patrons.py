"""Sessions that come again and again, in turn: each writes, loads what it wrote, and writes again.

Calls a stub. Unlike the crowd of `loadtest.hyperactive` each comes as often as all the others, so
that none rests through several faults: copies that were lost are made anew with the next request,
and a session that nobody uses while two bricks are replaced may well be gone, as the paper says.

What always holds:
  Z1  A load brings what the session's ledger allows, or it is a loss.
  Z2  There are `sessions`, each with at most one request in flight.
"""

from collections import deque
from collections.abc import Callable
from random import Random

from bus.clock import now
from bus.errors import (
    BusError,
    CookieCorrupted,
    StateConflict,
    StateCorrupted,
    StateExpired,
    StateLost,
)
from loadtest.heal_requests import Carry, Failure, Loss, Request
from loadtest.ledger import Ledger, value_of
from loadtest.open_loop import NoRoomError
from roles.stub import Stub

TTL_S = 3600.0
PASSING_TTL_S = 5.0, 20.0
LOSSES = StateLost, StateExpired, StateCorrupted, CookieCorrupted
Named = Callable[[str], list[str]]
"""Which bricks a cookie names."""

FAILURES_MAX = 1000  # That are told one by one.
DETAIL_LENGTH_MAX = 200


class WrongValueError(BusError):
    """A load answered with something that its session cannot hold: nothing may excuse that."""


class _Session:
    __slots__ = ("cookie", "good_at", "ledger", "writes")

    def __init__(self, key: str) -> None:
        self.ledger = Ledger(key)
        self.cookie: str | None = None
        self.writes = True
        self.good_at = 0.0


class Patrons:
    """Calling it takes the next step of the next session."""

    def __init__(
        self, stub: Stub, named: Named, random: Random, *, name: str, carry: Carry
    ) -> None:
        self._stub = stub
        self._named = named
        self._random = random
        self._bytes = carry.bytes_min, carry.bytes_max
        self._passing, self._passed, self._name = carry.passing, 0, name
        self._waiting = deque(_Session(f"{name}-{number}") for number in range(carry.sessions))
        self.failed = 0
        self.failures: list[Failure] = []
        self.losses: list[Loss] = []
        self.sessions = 0
        """That were acknowledged at least once."""

    def __call__(self) -> None:
        if self._passing and self._random.random() < self._passing:
            self._pass_by()
            return
        if not self._waiting:
            raise NoRoomError("every session has a request in flight")  # Z2
        session = self._waiting.popleft()
        request: Request = "write" if session.cookie is None or session.writes else "load"
        try:
            if session.cookie is None or session.writes:
                self._write(session)
            else:
                self._load(session, session.cookie)
        except Exception as error:
            self._note(session, error, request)
            raise
        finally:
            self._waiting.append(session)

    def load_all(self) -> None:
        """Every session once more, one after the other; failures are noted, and not raised."""
        for session in tuple(self._waiting):
            if session.cookie is None:
                continue
            try:
                self._load(session, session.cookie)
            except BusError as error:
                self._note(session, error, "last load")

    def _pass_by(self) -> None:
        self._passed += 1
        key = f"{self._name}-passing-{self._passed}"
        value = value_of(key, 1, self._random.randint(*self._bytes))
        try:
            self._stub.write(key, value, ttl_s=self._random.uniform(*PASSING_TTL_S))
        except Exception as error:
            self._note_failure(key, error, "write")
            raise

    def _write(self, session: _Session) -> None:
        ledger = session.ledger
        number = ledger.next_number()
        value = value_of(ledger.key, number, self._random.randint(*self._bytes))
        is_first = session.cookie is None
        try:
            session.cookie = self._stub.write(ledger.key, value, ttl_s=TTL_S, cookie=session.cookie)
        except Exception:
            ledger.in_doubt(number)
            session.writes = session.cookie is None  # Look what is there now.
            raise
        ledger.done(number)
        session.good_at = now()
        session.writes = False
        self.sessions += is_first

    def _load(self, session: _Session, cookie: str) -> None:
        found = self._stub.load(cookie)
        if not session.ledger.is_right(found.value):
            raise WrongValueError(f"{session.ledger.key} holds what it cannot hold")  # Z1
        session.cookie = found.cookie
        session.good_at = now()
        session.writes = True

    def _note(self, session: _Session, error: Exception, request: Request) -> None:
        key = session.ledger.key
        self._note_failure(key, error, request)
        if isinstance(error, StateConflict):
            # A write of ours in doubt was done by some, and is what is there now.
            session.cookie = error.cookie or session.cookie
        elif isinstance(error, (*LOSSES, WrongValueError)):
            copies = self._named(session.cookie or "")
            loss = Loss(now(), key, type(error).__name__, session.good_at, copies)
            self.losses.append(loss)
            session.cookie, session.writes = None, True  # It begins anew.
            session.ledger = Ledger(key)

    def _note_failure(self, key: str, error: Exception, request: Request) -> None:
        self.failed += 1
        if len(self.failures) < FAILURES_MAX:
            detail = str(error)[:DETAIL_LENGTH_MAX]
            self.failures.append(Failure(now(), key, request, type(error).__name__, detail))
