"""Keep the rows of a `Store` in etcd, for managers on several machines.

Spoken to through etcd's HTTP gateway: JSON, bytes in base64, 64-bit numbers as strings. One
connection is kept, to one member; when it fails the next member is asked, within the same
`timeout_s`. What must be told apart is a commit that surely was not carried out (not sent whole, or
refused), which may be tried elsewhere, from one that was sent and not answered, which may not: it
could happen twice, or happen after somebody has read that it did not.

What always holds:
  E1  A commit is sent whole at most once, unless every answer so far said it was not carried out.
  E2  What was sent whole and not clearly answered is `StoreInDoubt`.
  E3  Each call ends within `timeout_s`, however slowly a member answers, but for the system's own
      wait for a name: where names may be slow, give addresses.
  E4  All of `read_all` is as of one revision, and at least as new as the call.
  E5  No answer is read beyond `ANSWER_BYTES_MAX`.
  E6  Only keys that begin with the prefix are read or written.
"""

import http.client
import io
import select
import socket
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from bus.clock import now
from bus.errors import ConfigError
from roles.store import ALL_BYTES_MAX, COMMIT_BYTES_MAX, StoreError, StoreInDoubt, check_commit

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

PAGE_ROWS = 32
ANSWER_BYTES_MAX = 2 * PAGE_ROWS * COMMIT_BYTES_MAX
"""A page of the largest rows, in base64; and it is only read as far as `ALL_BYTES_MAX` goes."""
ENDPOINTS_MAX = 16
PREFIX_BYTES_MAX = 128
_PORT = 2379
_RANGE, _TXN, _LOGIN = "/v3/kv/range", "/v3/kv/txn", "/v3/auth/authenticate"

# gRPC codes by which etcd says that it was asked something it will not do, and has not done:
# invalid argument, not found, permission denied, resource exhausted (no space), failed
# precondition, out of range (compacted), unimplemented.
_REFUSALS = {3, 5, 7, 8, 9, 11, 12}
_UNAUTHENTICATED = 16
# Sentences of a member that passed nothing on; another may do better.
_NOT_NOW = {"raft proposal dropped", "etcdserver: no leader", "etcdserver: too many requests"}
_TOKEN_OLD = "etcdserver: revision of auth store is old"


class _Header(msgspec.Struct):
    revision: str


class _Row(msgspec.Struct):
    key: bytes
    value: bytes = b""  # etcd leaves out what is empty, zero or false.


class _Rows(msgspec.Struct):
    header: _Header  # Required: whoever leaves it out is not etcd.
    kvs: list[_Row] = []
    more: bool = False


class _Outcome(msgspec.Struct):
    header: _Header
    succeeded: bool = False


class _Token(msgspec.Struct):
    token: str


class _Complaint(msgspec.Struct):
    error: str
    code: int


_Answer = TypeVar("_Answer", _Rows, _Outcome, _Token)


class _NotDoneError(Exception):
    """Surely not carried out; another member may do better."""


class _UnclearError(Exception):
    """Sent whole, and nobody knows what became of it."""


class _TokenRefusedError(_NotDoneError):
    """Log in again first."""


class EtcdStore:
    """See `roles.store.Store`. Nothing is asked of etcd before the first call."""

    def __init__(
        self,
        endpoints: Sequence[str],
        prefix: str,
        timeout_s: float,
        *,
        username: str = "",
        password: str = "",
    ) -> None:
        """`endpoints`: "http://address:port" of each member. `prefix` ends in "/"."""
        if not 1 <= len(endpoints) <= ENDPOINTS_MAX:
            raise ConfigError(f"{len(endpoints)} etcd endpoints: give 1 to {ENDPOINTS_MAX}")
        # E6: without the slash, "a" would hold the keys of "ab" as well.
        if not prefix.endswith("/") or len(prefix.encode()) > PREFIX_BYTES_MAX:
            raise ConfigError(
                f"etcd prefix {prefix!r}: end it in '/', within {PREFIX_BYTES_MAX} bytes"
            )
        self._addresses = [_address(endpoint) for endpoint in endpoints]
        self._prefix = prefix.encode()
        self._timeout_s = timeout_s
        self._username = username
        self._password = password
        self._token = ""
        self._at = 0
        self._wire: _Wire | None = None
        self._closed = False

    def read_all(self) -> dict[str, bytes]:
        deadline = now() + self._timeout_s
        end = self._prefix[:-1] + bytes([self._prefix[-1] + 1])
        rows: dict[str, bytes] = {}
        first, revision, size = self._prefix, "0", 0
        while True:
            question = {
                "key": first, "range_end": end, "limit": str(PAGE_ROWS), "revision": revision,
            }  # fmt: skip
            page = self._ask(_RANGE, question, _Rows, deadline)
            rows |= {self._plain(row.key): row.value for row in page.kvs}
            size += sum(len(row.key) + len(row.value) for row in page.kvs)
            if size > ALL_BYTES_MAX:
                raise StoreError(f"etcd holds more than {ALL_BYTES_MAX} bytes of ours")
            if not page.more or not page.kvs:
                return rows
            revision = page.header.revision if revision == "0" else revision  # E4
            first = page.kvs[-1].key + b"\0"

    def read(self, key: str) -> bytes | None:
        question = {"key": self._prefix + key.encode()}
        found = self._ask(_RANGE, question, _Rows, now() + self._timeout_s).kvs
        return found[0].value if found else None

    def commit(
        self,
        expect: Mapping[str, bytes | None],
        put: Mapping[str, bytes],
        delete: Collection[str] = (),
    ) -> bool:
        check_commit(expect, put, delete)
        name = {key: self._prefix + key.encode() for key in (*expect, *put, *delete)}  # E6
        changes: list[object] = [
            {"request_put": {"key": name[key], "value": value}} for key, value in put.items()
        ]
        changes += [{"request_delete_range": {"key": name[key]}} for key in delete]
        order = {
            "compare": [_comparison(name[key], value) for key, value in expect.items()],
            "success": changes,
        }
        deadline = now() + self._timeout_s
        return self._ask(_TXN, order, _Outcome, deadline, changes=True).succeeded

    def close(self) -> None:
        self._closed = True
        self._let_go()

    def _plain(self, key: bytes) -> str:
        try:
            return key.removeprefix(self._prefix).decode()
        except UnicodeDecodeError as error:
            raise StoreError(
                f"etcd key {key!r} is not ours: give another prefix, or delete it"
            ) from error

    def _ask(
        self,
        path: str,
        question: object,
        kind: type[_Answer],
        deadline: float,
        *,
        changes: bool = False,
    ) -> _Answer:
        """Ask one member after the other, the present one first, each for its share of the time;
        but once sent whole, what `changes` something has all the time that is left."""
        assert not self._closed, "a closed store was asked"
        body = msgspec.json.encode(question)
        troubles: list[str] = []
        for left in range(len(self._addresses), 0, -1):
            share = now() + (deadline - now()) / left
            try:
                answer = self._exchange_as_user(
                    path, body, send_by=share, answer_by=deadline if changes else share
                )
                return _decoded(answer, kind)
            except _NotDoneError as trouble:
                troubles.append(f"{self._name}: {trouble}")
            except _UnclearError as trouble:
                troubles.append(f"{self._name}: {trouble}")
                if changes:
                    self._turn()
                    raise StoreInDoubt(f"etcd, asked to commit: {'; '.join(troubles)}") from trouble
            self._turn()
        raise StoreError(f"no etcd member could be asked: {'; '.join(troubles)}")

    def _exchange_as_user(
        self, path: str, body: bytes, *, send_by: float, answer_by: float
    ) -> bytes:
        if not self._username:
            return self._exchange(path, body, send_by=send_by, answer_by=answer_by)
        if self._token:
            try:
                return self._exchange(path, body, send_by=send_by, answer_by=answer_by)
            except _TokenRefusedError:
                self._token = ""
        self._log_in(send_by)
        return self._exchange(path, body, send_by=send_by, answer_by=answer_by)

    def _log_in(self, deadline: float) -> None:
        body = msgspec.json.encode({"name": self._username, "password": self._password})
        try:
            answer = self._exchange(_LOGIN, body, send_by=deadline, answer_by=deadline)
            self._token = _decoded(answer, _Token).token
        except _UnclearError as error:
            raise _NotDoneError(f"no login: {error}") from error  # The commit was not sent yet.

    def _exchange(self, path: str, body: bytes, *, send_by: float, answer_by: float) -> bytes:
        """One question, one answer, one member."""
        try:
            wire = self._connected(send_by)
            wire.send(path, body, self._token, send_by)
        except OSError as error:
            self._let_go()
            # E1: some of it was not taken, so the JSON that arrived, if any, has no end.
            raise _NotDoneError(f"not reached ({error})") from error
        try:
            status, answer = wire.receive(answer_by)
        except (OSError, http.client.HTTPException) as error:
            self._let_go()
            raise _UnclearError(f"no answer ({str(error) or type(error).__name__})") from error
        if wire.ended:
            self._let_go()
        if status != http.client.OK:
            raise _judged(status, answer)
        return answer

    def _connected(self, deadline: float) -> "_Wire":
        if self._wire is not None and self._wire.stale:
            self._let_go()  # Sent into a connection that is closed already, a commit is in doubt.
        if self._wire is None:
            self._wire = _Wire(self._addresses[self._at], deadline)
        return self._wire

    @property
    def _name(self) -> str:
        host, port = self._addresses[self._at]
        return f"{host}:{port}"

    def _turn(self) -> None:
        self._let_go()
        self._at = (self._at + 1) % len(self._addresses)

    def _let_go(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.close()


class _Wire:
    """One connection. Unlike http.client's own, it keeps to one deadline for a whole answer."""

    def __init__(self, address: tuple[str, int], deadline: float) -> None:
        host = address[0]
        self._host = f"[{host}]" if ":" in host else host
        self._socket = socket.create_connection(address, timeout=_left(deadline))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._deadline = deadline
        self.ended = False
        """Whether the answer was the connection's last."""

    @property
    def stale(self) -> bool:
        """Something to be read before anything was asked: an end, or what makes no sense."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, path: str, body: bytes, token: str, deadline: float) -> None:
        """OSError: not all of it was taken."""
        head = f"POST {path} HTTP/1.1\r\nHost: {self._host}\r\nContent-Length: {len(body)}\r\n"
        if token:
            head += f"Authorization: {token}\r\n"
        self._socket.settimeout(_left(deadline))
        self._socket.sendall(f"{head}\r\n".encode() + body)

    def receive(self, deadline: float) -> tuple[int, bytes]:
        self._deadline = deadline
        response = http.client.HTTPResponse(cast("socket.socket", self), method="POST")
        response.begin()
        answer = response.read(ANSWER_BYTES_MAX + 1)  # E5
        if len(answer) > ANSWER_BYTES_MAX:
            raise http.client.HTTPException(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
        response.read()  # Nothing, or IncompleteRead: told how much to read, it is silent on less.
        self.ended = response.will_close
        return response.status, answer

    def makefile(self, _mode: str) -> io.BufferedReader:
        """All that http.client asks of a socket."""
        return io.BufferedReader(_Reader(self._socket, self._deadline))

    def close(self) -> None:
        self._socket.close()


class _Reader(io.RawIOBase):
    def __init__(self, source: socket.socket, deadline: float) -> None:
        self._socket = source
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        # E3: a byte now and then does not buy more time.
        self._socket.settimeout(_left(self._deadline))
        return self._socket.recv_into(buffer)


def _left(deadline: float) -> float:
    left = deadline - now()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _address(endpoint: str) -> tuple[str, int]:
    try:
        parts = urlsplit(endpoint)
        host, port = parts.hostname, parts.port or _PORT
    except ValueError as error:
        raise ConfigError(f"etcd endpoint {endpoint!r}: {error}") from error
    if parts.scheme != "http" or not host or parts.path.strip("/") or parts.username:
        raise ConfigError(f"etcd endpoint {endpoint!r}: write http://address:port (TLS is not yet)")
    return host, port


def _comparison(key: bytes, value: bytes | None) -> dict[str, object]:
    if value is None:
        return {"key": key, "target": "VERSION", "result": "EQUAL", "version": "0"}
    return {"key": key, "target": "VALUE", "result": "EQUAL", "value": value}


def _decoded(answer: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(answer, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _UnclearError(f"an odd answer ({error})") from error  # E2


def _judged(status: int, answer: bytes) -> Exception:
    """What an answer other than OK says about what was asked."""
    try:
        complaint = msgspec.json.decode(answer, type=_Complaint)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _UnclearError(f"HTTP status {status}, not in etcd's words")  # E2
    if complaint.code == _UNAUTHENTICATED or complaint.error == _TOKEN_OLD:
        return _TokenRefusedError(complaint.error)
    if complaint.error in _NOT_NOW:
        return _NotDoneError(complaint.error)  # E1
    if complaint.code in _REFUSALS:
        return StoreError(f"etcd refused: {complaint.error}")
    return _UnclearError(complaint.error)  # E2: a timeout, a stopped server, a change of leader.
