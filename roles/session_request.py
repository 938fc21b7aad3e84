"""One request of a stub to several bricks: whom it awaits, and who waits for it. Carries out.

The caller goes on when the tally is settled. What comes later still tells the limiters how the
bricks are: the request lasts until everyone asked has answered or the time is over. Others are
asked as well, once, when half of the time was not enough, or when those asked cannot do it.
"""

import math
from collections.abc import Callable, Collection, Sequence

from gevent.hub import Hub
from greenlet import getcurrent, greenlet

from bus.client import Client, FanOut
from bus.clock import now
from bus.errors import LinkError
from bus.messages import Message, Refused
from bus.replies import Reply
from roles.brick_view import Brick, BrickView
from roles.session_census import Census
from roles.session_messages import SessionAnswer, is_full
from roles.session_tally import ReadTally, Stage, WriteTally, is_overload

Tally = WriteTally | ReadTally | Census

LEFT_S_MIN = 0.001


class SessionRequest(FanOut[SessionAnswer]):
    def __init__(
        self,
        client: Client,
        bricks: BrickView,
        tally: Tally,
        timeout_s: float,
        *,
        spares: Callable[[Sequence[Brick]], Sequence[Brick]] | None = None,
        forced: Collection[Brick] = (),
    ) -> None:
        """`spares`: whom to ask as well, given who was. `forced`: who is asked even without
        room."""
        self._client = client
        self._bricks = bricks
        self._tally = tally
        self._until = now() + timeout_s
        self._half_s = timeout_s / 2
        self._spares = spares
        self._forced = forced
        self._asked: dict[str, Brick] = {}
        self._sent_at = 0.0
        self._spare_at = 0.0
        self._spare: Sequence[Brick] = ()
        """Those asked later than the rest, and when."""
        self._everyone: list[Brick] = []
        self._sleeper: greenlet | None = None
        self._is_settled = False
        self._is_ended = False
        self._is_silent = False
        self._is_sending = False
        self._sent: tuple[Message, bytes, int] = (Message(), b"", 0)

    def send(
        self, bricks: Sequence[Brick], message: Message, body: bytes = b"", priority: int = 0
    ) -> None:
        """Ask those who have room; the others count as having refused."""
        self._sent = message, body, priority
        self._send(bricks, self._half_s)

    @property
    def tells_of_overload(self) -> bool:
        """Whether, if it failed, it was for silence or too much to do."""
        return self._is_silent or any(map(is_overload, self._tally.refused))

    @property
    def was_sent(self) -> bool:
        """Whether anybody had room."""
        return bool(self._everyone)

    def wait(self, hub: Hub) -> None:
        """Until it is settled."""
        if not self._is_settled:
            self._sleeper = getcurrent()
            try:
                hub.switch()
            finally:
                self._sleeper = None
        if self._is_ended:
            raise LinkError("it was closed while this request waited for bricks")

    def _send(self, bricks: Sequence[Brick], due_s: float = math.inf) -> None:
        endpoints, tally, sent_at = [], self._tally, now()
        if self._spare:
            self._spare_at = sent_at
        else:
            self._sent_at = sent_at
        for brick in bricks:
            if brick.endpoint in self._asked:
                tally.add(brick, _NOT_THERE)
                continue
            if self._forced and brick in self._forced:
                brick.limiter.forced()
            elif not brick.limiter.acquire():
                tally.add(brick, _NO_ROOM)
                continue
            brick.asked(sent_at)
            endpoints.append(brick.endpoint)
            self._asked[brick.endpoint] = brick
            self._everyone.append(brick)
            if isinstance(tally, WriteTally):
                tally.asked(brick)
        tally.awaited = len(self._asked)
        if endpoints:
            self._spread(endpoints, max(self._until - sent_at, LEFT_S_MIN), due_s)
        if self._spares is not None and self._tally.needs_others:
            self._hedge()
        self._settle_if_due()

    def _spread(self, endpoints: Sequence[str], timeout_s: float, due_s: float) -> None:
        message, body, priority = self._sent
        self._is_sending = True
        try:
            self._client.spread(
                self,
                endpoints,
                message,
                expect=SessionAnswer,
                timeout_s=timeout_s,
                body=body,
                priority=priority,
                due_s=due_s,
            )
        except BaseException:
            self._release([self._asked.pop(each) for each in endpoints if each in self._asked])
            raise
        finally:
            self._is_sending = False

    def heard(self, endpoint: str, outcome: Reply[SessionAnswer] | Refused) -> bool:
        brick = self._asked.pop(endpoint, None)
        if brick is None:
            return False
        heard_at = now()
        if not isinstance(outcome, Refused):
            brick.limiter.release("answered", outcome.queued_s, heard_at)
            is_spare = self._spare and brick in self._spare
            brick.sighting.answer(heard_at - (self._spare_at if is_spare else self._sent_at))
            if not is_spare and self._sent[2] <= 0 and self._sent_at > brick.passed_at:
                brick.passed_at = self._sent_at
        elif is_full(outcome):
            brick.limiter.release("answered", 0.0, heard_at)  # It has time, and no memory.
            brick.sighting.refused += 1
            self._bricks.note_full(brick, heard_at)
        else:
            brick.limiter.release("refused", 0.0, heard_at)
            brick.sighting.refused += 1
        brick.heard(heard_at)
        tally = self._tally
        tally.awaited = len(self._asked)
        if not self._is_settled:
            tally.add(brick, outcome)
            if self._spares is not None and not self._is_sending and tally.needs_others:
                self._hedge()
            self._settle_if_due()
        return not self._asked

    def due(self) -> float | None:
        due_at = now()
        if not self._asked:
            return None
        if due_at < self._until:
            self._reach(Stage.HALF, due_at)
            self._settle_if_due()
            if not self._is_settled and self._spares is not None:
                self._hedge()
            return self._until
        self._is_silent = True
        self._reach(Stage.END, due_at)
        for brick in self._asked.values():
            brick.limiter.release("silent", 0.0, due_at)
            brick.sighting.silent += 1
            brick.tried_at = due_at
        self._end()
        return None

    def _reach(self, stage: Stage, at: float) -> None:
        tally, silent = self._tally, self._asked.values()
        lost = [brick for brick in silent if self._has_lost(brick, at)]
        if isinstance(tally, WriteTally):
            heard_after = at - self._half_s
            awake = [
                brick for brick in silent if brick.unheard_since > heard_after and brick not in lost
            ]
            tally.reach(stage, awake, lost)
        else:
            tally.stage = stage

    def _has_lost(self, brick: Brick, at: float) -> bool:
        """What comes in order is answered in order, but for what has a greater priority."""
        is_spare = self._spare and brick in self._spare
        asked_at = self._spare_at if is_spare else self._sent_at
        return self._sent[2] >= 0 and brick.has_lost(asked_at, at)

    def closed(self) -> None:
        self._is_ended = not self._is_settled
        self._release(list(self._asked.values()))
        self._end()

    def _end(self) -> None:
        self._spares = None
        self._asked.clear()
        self._tally.awaited = 0
        self._tally.stage = Stage.END
        self._settle_if_due()

    def _release(self, bricks: Sequence[Brick]) -> None:
        """They were not asked after all, or nobody will hear of it: that tells nothing of them."""
        released_at = now()
        for brick in bricks:
            brick.limiter.release("answered", 0.0, released_at)
            brick.sighting.asked -= 1
            brick.heard(released_at)

    def _hedge(self) -> None:
        spares, self._spares = self._spares, None
        assert spares is not None
        self._spare = spares(self._everyone)
        if self._spare:
            self._send(self._spare)

    def _settle_if_due(self) -> None:
        if not self._is_settled and self._tally.is_settled:
            self._is_settled = True
            if self._sleeper is not None:
                self._sleeper.switch()


_NOT_THERE = Refused("unreachable", "another brick has its address")
_NO_ROOM = Refused("busy", "it has as much to do as it can carry", retry_after_s=0.1)
