"""The lease manager: what is asked, in what order it is stored, and what may then be said.
Decides only; `roles.lease_namespace` decides who holds what, `roles.election` who leads.

One thing is asked of the store at a time. What arrives meanwhile waits, is decided together and
committed at once; only then are the answers sent, the changes published and the owners nudged.

What always holds:
  G1  Nothing is said that is not committed, and nothing by a leader whose term may have ended: that
      is looked at after the commit, just before it is said.
  G2  Every commit is conditional on the leader's row: a leader that was replaced commits nothing.
  G3  A new leader begins with what is in the store, read after it took the term.
  G4  What waits is bounded: beyond `INBOX_MAX` asks are not answered, and their askers try again.
  G5  A store that fails, is full or locked ends the term when its trust ends, and nothing sooner.
  G6  Who knows a term, a number or a version that only a store rolled back can have forgotten is
      believed: terms and numbers go on beyond it.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping

import msgspec

from bus.lease_timing import LeaseTiming
from roles.assignment import Assignment
from roles.election import Candidate, Election, Leading, Taking, Watching
from roles.key_range import KEYS_END
from roles.lease_messages import (
    ASKS_MAX,
    LEAP_MAX,
    AskLeases,
    AskMap,
    LeaseNudge,
    LeasesAnswered,
    MapAnswered,
    MapDelta,
    MapPart,
    MapSpan,
    MapTip,
    OwnerAnswer,
    OwnerAsk,
    encode_part,
)
from roles.lease_namespace import ROWS_MAX, Explained, Life, Logged, Namespace, Noted, refusal
from roles.lease_rows import (
    LEADER,
    LIFE,
    NAMESPACE,
    LeaderRow,
    LifeRow,
    NamespaceRow,
    StoreCorrupt,
    decode,
    encode,
    life_key,
)

INBOX_MAX = 20_000
ANSWERED_MAX = 20_000
"""Lives remembered as answered, whether they are still here or not."""
NAMESPACES_MAX = 1000
NAME_LENGTH_MAX = 200
URL_LENGTH_MAX = 1000
TIP_S = 0.5
DELTA_SPANS_MAX = 1000
"""A greater change is not broadcast; the tip makes lookups ask for it."""
TRY_AGAIN_S = 0.05
PATIENCE = 20
"""Terms' worth of trying to take the lead from a store that is locked or full."""


# What the store is asked. The answers come back through `stored`.


class ReadLeader(msgspec.Struct, frozen=True):
    pass


class ReadAll(msgspec.Struct, frozen=True):
    pass


class Commit(msgspec.Struct, frozen=True):
    """All or nothing, and only if each row in `expect` has exactly these bytes."""

    expect: dict[str, bytes | None]
    put: dict[str, bytes]
    delete: list[str]


StoreOp = ReadLeader | ReadAll | Commit


class Done(msgspec.Struct, frozen=True):
    """What the store answered: a row, all rows, or whether the commit was made."""

    row: bytes | None = None
    rows: dict[str, bytes] | None = None
    committed: bool = False


class InDoubt(msgspec.Struct, frozen=True):
    """The commit may or may not have been made."""


class Failed(msgspec.Struct, frozen=True):
    """The store was not asked, or said no. `locked`: another process has it to itself."""

    reason: str
    locked: bool = False


Outcome = Done | InDoubt | Failed


# What the shell is to do.


class AskStore(msgspec.Struct, frozen=True):
    op: StoreOp


class AnswerLeases(msgspec.Struct, frozen=True):
    token: int
    message: LeasesAnswered


class AnswerMap(msgspec.Struct, frozen=True):
    token: int
    message: MapAnswered
    body: bytes


class Broadcast(msgspec.Struct, frozen=True):
    message: MapTip | MapDelta | LeaseNudge


class Tell(msgspec.Struct, frozen=True):
    note: Noted


class KillHolder(msgspec.Struct, frozen=True):
    """Have that process killed by the agent of its node: it is stopped, and locks the store."""

    process: str
    node: str


ManagerAction = AskStore | AnswerLeases | AnswerMap | Broadcast | Tell | KillHolder


class _AskedLeases(msgspec.Struct, frozen=True):
    token: int
    message: AskLeases


class _AskedMap(msgspec.Struct, frozen=True):
    token: int
    message: AskMap


class _Vouched(msgspec.Struct, frozen=True):
    process: str
    incarnation: int


_Waiting = _AskedLeases | _AskedMap | _Vouched


class _Asked:
    """What the store is asked now."""

    def __init__(self, op: StoreOp, now: float) -> None:
        self.op = op
        self.first_at = now
        self.asked_at = now
        """The earliest try that may have been carried out."""
        self.retry_at = math.inf
        """When to try again; `inf` while the store is at it."""
        self.in_doubt = False
        self.resolving: Commit | None = None
        """The row is read to learn whether this commit was made."""


class Manager:
    def __init__(
        self,
        me: Candidate,
        timing: LeaseTiming,
        assignments: Callable[[str], Assignment],
        now: float,
    ) -> None:
        """`assignments` makes the policy of a namespace."""
        self._me = me
        self._timing = timing
        self._assignments = assignments
        self.election = Election(me, timing)
        self.namespaces: dict[str, Namespace] = {}
        self.ignored = 0
        """Asks that got no answer: races, odd ones, and those beyond what may wait."""
        self._inbox: deque[_Waiting] = deque()
        self._op: _Asked | None = None
        self._ready = False  # Leading, and the store has been read.
        self._answers: list[AnswerLeases] = []  # To be said once it is committed.
        self._maps: list[_AskedMap] = []
        self._answered: OrderedDict[int, None] = OrderedDict()
        """Nonces of lives that have an answer of this term, the latest last: see `_has_answer`."""
        self._grace_until = -math.inf
        self._resigned = False
        self._tip_at = math.inf
        self._locked_since = math.inf
        self._trouble = ""
        self._encoded: tuple[MapPart, bytes] | None = None

    @property
    def leading(self) -> bool:
        return self._ready

    @property
    def wake_at(self) -> float:
        if self._op is not None:
            return self._op.retry_at
        if self._inbox:
            return -math.inf
        if self._resigned:
            return math.inf
        wakes = [self.election.wake_at, self._tip_at]
        if self._ready:
            wakes += [namespace.wake_at for namespace in self.namespaces.values()]
        return min(wakes)

    # Inputs. Each returns what is to be done now; `advance` does the rest.

    def asked_leases(self, token: int, message: AskLeases, now: float) -> list[ManagerAction]:
        return self._take_in(_AskedLeases(token, message), now)

    def asked_map(self, token: int, message: AskMap, now: float) -> list[ManagerAction]:
        return self._take_in(_AskedMap(token, message), now)

    def vouched_dead(self, process: str, incarnation: int, now: float) -> list[ManagerAction]:
        self.election.vouched_dead(process, incarnation, now)
        return self._take_in(_Vouched(process, incarnation), now)

    def explain(self, namespace: str, position: int, now: float) -> Explained | None:
        """Why a key is where it is; None if we do not lead, or there is no such namespace."""
        if not self._ready or namespace not in self.namespaces:
            return None
        return self.namespaces[namespace].explain(position, now)

    def _take_in(self, waiting: _Waiting, now: float) -> list[ManagerAction]:
        if len(self._inbox) >= INBOX_MAX:  # G4
            self.ignored += 1
            return []
        self._inbox.append(waiting)
        return self.advance(now)

    def advance(self, now: float) -> list[ManagerAction]:
        if self._op is not None:
            return self._ask_again(now)
        if self._resigned:
            return [*self._answer_as_standby(), *self._give_away(now)]
        if not self._ready:
            return [*self._answer_as_standby(), *self._stand(now)]
        if not self.election.trusted(now):  # G1
            return self._step_down("the store did not answer in time", now)
        return self._lead(now)

    # A standby.

    def _answer_as_standby(self) -> list[ManagerAction]:
        actions: list[ManagerAction] = []
        term = self.election.term
        while self._inbox:
            match self._inbox.popleft():
                case _AskedLeases(token=token):
                    actions.append(
                        AnswerLeases(token, LeasesAnswered(term, leading=False, answers=[]))
                    )
                case _AskedMap(token=token, message=ask):
                    answer = MapAnswered(ask.namespace, term, leading=False)
                    actions.append(AnswerMap(token, answer, b""))
                case _Vouched():
                    pass  # The election knows.
        return actions

    def _stand(self, now: float) -> list[ManagerAction]:
        if self.election.look_due(now):
            return self._ask_store(ReadLeader(), now)
        return []

    def _looked(self, row: bytes | None, now: float) -> list[ManagerAction]:
        if not self.election.looked(row, now):
            return []
        expect, taken = self.election.take()
        return self._ask_store(Commit({LEADER: expect}, {LEADER: taken}, []), now)

    def _took(self, asked_at: float, now: float) -> list[ManagerAction]:
        self.election.taken(asked_at)
        return self._ask_store(ReadAll(), now)  # G3

    def _begin(self, rows: Mapping[str, bytes], now: float) -> list[ManagerAction]:
        """Lead, by what the store says."""
        state = self.election.state
        assert isinstance(state, Leading)
        self._grace_until = now if state.fresh else now + self._timing.manager_ttl_s
        if not self.election.trusted(now):
            return self._step_down("reading the store took too long", now)
        try:
            self.namespaces = self._restored(rows, state.term, now)
        except (StoreCorrupt, AssertionError) as error:
            reason = f"the store cannot be understood: {error}"
            actions = self._step_down(reason, now)
            self.election.rest(now)  # Somebody has to put it right; that takes a while.
            return [*actions, *self._degraded(reason)]
        self._ready = True
        self._tip_at = now
        note = Noted("leading", self._me.id, f"term {state.term}")
        return [Tell(note), *self.advance(now)]

    def _restored(self, rows: Mapping[str, bytes], term: int, now: float) -> dict[str, Namespace]:
        lives: dict[str, list[LifeRow]] = {}
        for key, value in rows.items():
            if key.startswith(LIFE):
                life = decode(LifeRow, key, value)
                lives.setdefault(life.namespace, []).append(life)
        namespaces: dict[str, Namespace] = {}
        for key, value in rows.items():
            if key.startswith(NAMESPACE):
                row = decode(NamespaceRow, key, value)
                namespaces[row.name] = Namespace.restored(
                    row,
                    lives.get(row.name, []),
                    self._assignments(row.name),
                    self._timing,
                    term=term,
                    now=now,
                )
        return namespaces

    # The leader.

    def _lead(self, now: float) -> list[ManagerAction]:
        self._decide(now)
        if self.election.term_floor >= self.election.term:  # G6
            reason = "the store was rolled back: others know this term, or a greater one"
            return self._step_down(reason, now, for_greater_term=True)
        commit = self._rows(now)
        return self._say(now) if commit is None else self._ask_store(commit, now)

    def _say(self, now: float) -> list[ManagerAction]:
        """What is decided is committed: out with it. G1: `now` was read after the commit."""
        said: list[ManagerAction] = []
        for name, namespace in self.namespaces.items():
            logged = namespace.stamp_log(now)
            if logged is not None:
                said += self._changed(name, logged)
            nudges, notes = namespace.take_notes()
            if nudges:
                said.append(Broadcast(LeaseNudge(self.election.term, name, sorted(nudges))))
            said += [Tell(note) for note in notes]
        said += [*self._answers, *(self._map(asked) for asked in self._maps)]
        self._answers, self._maps = [], []
        return [*said, *self._tip(now)]

    def _changed(self, name: str, logged: Logged) -> list[ManagerAction]:
        if len(logged.part.spans) > DELTA_SPANS_MAX:
            self._tip_at = -math.inf
            return []
        part = encode_part(logged.part)
        return [Broadcast(MapDelta(name, *logged.version, *logged.after, part))]

    def _decide(self, now: float) -> None:
        """Take in what waits, and what time has brought."""
        self._each(lambda namespace, rows_max: namespace.expire(now, rows_max))
        answers: list[tuple[int, list[OwnerAnswer | tuple[Life, int]]]] = []
        while self._inbox and self._rows_changed() < ROWS_MAX:
            match self._inbox.popleft():
                case _AskedLeases(token=token, message=message):
                    answers.append((token, self._asked(message, now)))
                case _AskedMap() as asked:
                    self._heard_version(asked.message, now)
                    self._maps.append(asked)
                case _Vouched(process=process, incarnation=incarnation):
                    for namespace in self.namespaces.values():
                        namespace.vouched_dead(process, incarnation)
        self._each(lambda namespace, rows_max: namespace.expire(now, rows_max))
        self._each(lambda namespace, rows_max: namespace.settle(now, rows_max))
        self._answers += [AnswerLeases(token, self._answer(parts)) for token, parts in answers]

    def _each(self, act: Callable[[Namespace, int], None]) -> None:
        """Let each namespace act, with how many rows it may have changed: all are one commit."""
        changed = self._rows_changed()
        for namespace in self.namespaces.values():
            others = changed - namespace.rows_changed
            act(namespace, ROWS_MAX - others)
            changed = others + namespace.rows_changed

    def _rows_changed(self) -> int:
        return sum(namespace.rows_changed for namespace in self.namespaces.values())

    def _asked(self, message: AskLeases, now: float) -> list[OwnerAnswer | tuple[Life, int]]:
        parts: list[OwnerAnswer | tuple[Life, int]] = []
        self.ignored += max(0, len(message.asks) - ASKS_MAX)
        for ask in message.asks[:ASKS_MAX]:
            answer = self._ask(ask, now)
            if answer is not None:
                self._answered[ask.nonce] = None
                self._answered.move_to_end(ask.nonce)
            if isinstance(answer, Life):
                parts.append((answer, ask.sequence))
            elif answer is not None:
                parts.append(answer)
            else:
                self.ignored += 1
        while len(self._answered) > ANSWERED_MAX:
            self._answered.popitem(last=False)
        return parts

    def _ask(self, ask: OwnerAsk, now: float) -> OwnerAnswer | Life | None:
        term = self.election.term
        if ask.term_max > term or (ask.term_max == term and not self._has_answer(ask)):
            if ask.term_max <= term + LEAP_MAX:
                self.election.heard_of_term(ask.term_max)  # G6: it obeyed another leader.
            return None
        if not 0 < len(ask.namespace) <= NAME_LENGTH_MAX:
            return None
        if len(ask.owner) > NAME_LENGTH_MAX or len(ask.url) > URL_LENGTH_MAX:
            return None
        namespace = self._namespace(ask.namespace, now, NAMESPACES_MAX)
        if namespace is None:
            return refusal(ask, f"there are {NAMESPACES_MAX} namespaces already")
        return namespace.ask(ask, now)

    def _has_answer(self, ask: OwnerAsk) -> bool:
        """Whether that life had an answer of this term, as far as we remember: of those that are
        here always, of others for a long while. To have forgotten one costs a term."""
        if ask.nonce in self._answered:
            return True
        namespace = self.namespaces.get(ask.namespace)
        key = life_key(ask.namespace, ask.owner, ask.nonce)
        life = None if namespace is None else namespace.lives.get(key)
        return life is not None and life.sequence > 0

    def _namespace(self, name: str, now: float, count_max: int) -> Namespace | None:
        """The one of that name, which begins now if need be; None if there are so many."""
        found = self.namespaces.get(name)
        if found is not None:
            return found
        if len(self.namespaces) >= count_max:
            return None
        begun = self.namespaces[name] = Namespace(
            name,
            self._assignments(name),
            self._timing,
            term=self.election.term,
            now=now,
            grace_until=self._grace_until,
        )
        return begun

    def _heard_version(self, ask: AskMap, now: float) -> None:
        """G6: what a lookup knows was committed once."""
        version, term = (ask.term, ask.lsn), self.election.term
        if max(ask.term, ask.term_max) > term + LEAP_MAX or ask.lsn > LEAP_MAX:
            self.ignored += 1  # Absurd: nobody ever said so.
            return
        if term < ask.term_max:
            self.election.heard_of_term(ask.term_max)  # It would not listen to us.
        found = self.namespaces.get(ask.namespace)
        newest = (0, 0)
        if found is not None:
            newest = found.version if ask.term == term else found.version_found
        if version <= newest:
            return
        if ask.term >= term:
            self.election.heard_of_term(ask.term)
            return
        if not 0 < len(ask.namespace) <= NAME_LENGTH_MAX:
            return
        # Half of all stay for owners: anyone who may look can claim to have seen one.
        namespace = found or self._namespace(ask.namespace, now, NAMESPACES_MAX // 2)
        if namespace is not None:
            namespace.version_found = version
            known = f"{version[0]}.{version[1]}, the store only {newest[0]}.{newest[1]}"
            namespace.rolled_back(f"a lookup knows version {known}", 0, now)

    def _answer(self, parts: list[OwnerAnswer | tuple[Life, int]]) -> LeasesAnswered:
        answers = [
            part
            if isinstance(part, OwnerAnswer)
            else self.namespaces[part[0].namespace].answer(*part)
            for part in parts
        ]
        return LeasesAnswered(self.election.term, leading=True, answers=answers)

    def _map(self, asked: _AskedMap) -> AnswerMap:
        ask, term = asked.message, self.election.term
        namespace = self.namespaces.get(ask.namespace)
        if namespace is None:
            # Nobody owns anything in it yet: an empty map, which its first owner will change.
            nothing = MapPart([], [MapSpan(0, KEYS_END - 1, 0, 0, -1)])
            answer = MapAnswered(ask.namespace, term, leading=True, whole=True)
            return AnswerMap(asked.token, answer, encode_part(nothing))
        whole, part = namespace.since(ask)
        answer = MapAnswered(
            ask.namespace,
            term,
            leading=True,
            whole=whole,
            version_term=namespace.version[0],
            version_lsn=namespace.version[1],
        )
        return AnswerMap(asked.token, answer, self._body(part))

    def _body(self, part: MapPart) -> bytes:
        if self._encoded is None or self._encoded[0] is not part:
            self._encoded = part, encode_part(part)
        return self._encoded[1]

    def _rows(self, now: float) -> Commit | None:
        """The commit of all that changed, or of a beat if one is due; None: neither."""
        put: dict[str, bytes] = {}
        delete: list[str] = []
        for name, namespace in self.namespaces.items():
            rows = namespace.take_rows()
            if rows is None:
                continue
            delete += rows[1]
            for row in rows[0]:
                match row:
                    case LifeRow():
                        put[life_key(row.namespace, row.owner, row.nonce)] = encode(row)
                    case _:
                        put[NAMESPACE + name] = encode(row)
        if not put and not delete and not self.election.beat_due(now):
            return None
        before, after = self.election.next_row()
        return Commit({LEADER: before}, {LEADER: after, **put}, delete)  # G2

    def _tip(self, now: float) -> list[ManagerAction]:
        if now < self._tip_at:
            return []
        self._tip_at = now + TIP_S
        versions = [(name, *each.version) for name, each in self.namespaces.items()]
        return [Broadcast(MapTip(self.election.term, versions))]

    # The store.

    def _ask_store(self, op: StoreOp, now: float) -> list[ManagerAction]:
        assert self._op is None
        self._op = _Asked(op, now)
        return [AskStore(op)]

    def _ask_again(self, now: float) -> list[ManagerAction]:
        asked = self._op
        assert asked is not None
        if now < asked.retry_at:
            return []
        if self._is_hopeless(asked, now):
            self._op = None
            return self._step_down(self._trouble or "the store does not answer", now)
        asked.retry_at = math.inf
        if not asked.in_doubt:
            asked.asked_at = now
        return [AskStore(asked.op)]

    def _is_hopeless(self, asked: _Asked, now: float) -> bool:
        """G5: whether the term ends before the store can be of use."""
        match self.election.state:
            case Leading():
                return not self.election.trusted(now)
            case Taking():
                patience_s = PATIENCE * self._timing.leader_ttl_s
                return self._resigned or now >= asked.first_at + patience_s
            case Watching():
                # The lead that we give away is worth some tries; a look comes again by itself.
                gives_away = isinstance(asked.op, Commit)
                return not gives_away or now >= asked.first_at + self._timing.leader_ttl_s

    def stored(self, outcome: Outcome, now: float) -> list[ManagerAction]:
        """What the store said to the last `AskStore`."""
        asked = self._op
        assert asked is not None, "nothing was asked"
        match outcome:
            case Done():
                self._op = None
                self._locked_since = math.inf
                self._trouble = ""
                return self._done(asked, outcome, now)
            case InDoubt():
                asked.in_doubt = isinstance(asked.op, Commit) or asked.in_doubt
                return self._not_done(asked, "the store did not answer", now)
            case Failed(reason=reason, locked=locked):
                since = min(self._locked_since, now) if locked else math.inf
                self._locked_since = since
                return [*self._kill_holder(now), *self._not_done(asked, reason, now)]

    def _not_done(self, asked: _Asked, reason: str, now: float) -> list[ManagerAction]:
        asked.retry_at = now + TRY_AGAIN_S
        return self._degraded(reason)

    def _degraded(self, reason: str) -> list[ManagerAction]:
        """Told once, until something else is wrong."""
        if reason == self._trouble:
            return []
        self._trouble = reason
        return [Tell(Noted("degraded", self._me.id, reason))]

    def _kill_holder(self, now: float) -> list[ManagerAction]:
        """A store that is locked for longer than a term lasts has a holder that is stopped."""
        holder = self.election.holder
        if holder is None or not holder.holder or not isinstance(self.election.state, Taking):
            return []
        if now < self._locked_since + self._timing.leader_ttl_s or holder.holder == self._me.id:
            return []
        self._locked_since = now  # Once, and again if that did not help.
        return [KillHolder(holder.holder, holder.node)]

    def _done(self, asked: _Asked, done: Done, now: float) -> list[ManagerAction]:
        if self._resigned and not isinstance(asked.op, Commit) and asked.resolving is None:
            return self.advance(now)  # We do not stand again; what we lead we give away.
        match asked.op:
            case ReadLeader() if asked.resolving is not None:
                made = done.row == asked.resolving.put[LEADER]
                return self._decided(asked.resolving, asked.asked_at, now, made=made)
            case ReadLeader():
                return self._looked(done.row, now)
            case ReadAll():
                return self._begin(done.rows or {}, now)
            case Commit() as commit if asked.in_doubt and not done.committed:
                return self._resolve(commit, asked.asked_at, now)
            case Commit() as commit:
                return self._decided(commit, asked.asked_at, now, made=done.committed)

    def _resolve(self, commit: Commit, asked_at: float, now: float) -> list[ManagerAction]:
        """Perhaps the first try was made, and the last one found its work done: look."""
        actions = self._ask_store(ReadLeader(), now)
        assert self._op is not None
        self._op.resolving = commit
        self._op.asked_at = asked_at
        self._op.in_doubt = True
        return actions

    def _decided(
        self, commit: Commit, asked_at: float, now: float, *, made: bool
    ) -> list[ManagerAction]:
        if isinstance(self.election.state, Watching):
            return self.advance(now)  # It was to give the lead away.
        if made:
            return self._committed(commit, asked_at, now)
        return self._step_down("another manager leads, or the store was rolled back", now)

    def _committed(self, commit: Commit, asked_at: float, now: float) -> list[ManagerAction]:
        if isinstance(self.election.state, Taking):
            return self._took(asked_at, now)
        self.election.committed(commit.put[LEADER], asked_at)
        if not self.election.trusted(now):  # G1
            return self._step_down("the commit took longer than the term lasts", now)
        return [*self._say(now), *self.advance(now)]

    def _step_down(
        self, reason: str, now: float, *, for_greater_term: bool = False
    ) -> list[ManagerAction]:
        led, term = self._ready, self.election.term
        self._ready = False
        self._answered = OrderedDict()
        self._tip_at = math.inf
        self.namespaces = {}
        answers, self._answers = self._answers, []
        maps, self._maps = self._maps, []
        self.election.step_down(now, for_greater_term=for_greater_term)
        standby = LeasesAnswered(term, leading=False, answers=[])
        actions: list[ManagerAction] = [AnswerLeases(each.token, standby) for each in answers]
        for asked in maps:
            answer = MapAnswered(asked.message.namespace, term, leading=False)
            actions.append(AnswerMap(asked.token, answer, b""))
        if led:
            actions.append(Tell(Noted("stepped-down", self._me.id, reason)))
        return actions

    def resign(self, now: float) -> list[ManagerAction]:
        """Give the lead away in good order, once the store is done with what it is at; `resigned`
        says when that is done."""
        self._resigned = True
        return self.advance(now)

    def _give_away(self, now: float) -> list[ManagerAction]:
        if not isinstance(self.election.state, Leading):
            return []
        before, after = self.election.next_row()
        nobody = msgspec.structs.replace(decode(LeaderRow, LEADER, after), holder="")
        # We trust our term no longer: the next leader may begin as soon as the store has this.
        actions = self._step_down("told to end", now)
        commit = Commit({LEADER: before}, {LEADER: encode(nobody)}, [])
        return [*actions, *self._ask_store(commit, now)]

    @property
    def resigned(self) -> bool:
        leads = isinstance(self.election.state, Leading)
        return self._resigned and self._op is None and not leads
