"""Refuse a replaced owner's command inside Redis, in the one step that would carry it out.

Beside each key another one keeps the greatest lease number seen (`roles.fence` has the idea). A
script compares, remembers and runs the command; nothing else runs in Redis meanwhile. On a Redis
Cluster both keys are in one slot, so any client that can `eval` will do.

What always holds, for each key, as long as Redis keeps what it was told:
  X1  A number less than one seen before is refused, and changes nothing.
  X2  Comparing, remembering and the command are one step. A command that fails has its number
      remembered all the same, which is right: that lease has been seen.
  X3  The number's key has the hash slot of the key it guards.
  X4  Numbers are compared exactly, above 2**53 too, although Lua has only floating point.
"""

import re
from typing import NamedTuple, Protocol

from roles.fence import check_number

KEY_BYTES_MAX = 1024
ARGUMENTS_MAX = 1000  # Lua passes about 8000 to a function and no more.
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_TAG = re.compile(r"[^{]*\{([^}]+)\}")  # As Redis finds it: up to the first } after the first {.
_MS_MAX = 1 << 53

Argument = str | bytes | int | float

_SCRIPT = """
local function less(a, b)  -- 19 digits each: halves are exact where the whole is not.
    local a_high, b_high = tonumber(string.sub(a, 1, 10)), tonumber(string.sub(b, 1, 10))
    if a_high ~= b_high then return a_high < b_high end
    return tonumber(string.sub(a, 11)) < tonumber(string.sub(b, 11))
end
local seen = redis.call('GET', KEYS[1])
if seen and less(ARGV[1], seen) then return {0} end
if ARGV[2] == '0' then
    redis.call('SET', KEYS[1], ARGV[1])
else
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
if not ARGV[3] then return {1} end
return {1, redis.call(ARGV[3], KEYS[2], unpack(ARGV, 4))}
"""


class Client(Protocol):
    """What we need of a `redis.Redis` or `redis.RedisCluster`; an asyncio client will not do."""

    def eval(self, script: str, numkeys: int, /, *keys_and_args: str | bytes | float) -> object: ...


class Executed(NamedTuple):
    """The command was admitted, and this is what Redis answered."""

    reply: object


class RedisFence:
    def __init__(self, client: Client, namespace: str, *, keep_s: float | None = None) -> None:
        """`keep_s`: how long after its last use a number is kept; None is for ever.

        Forgetting is safe only if nothing an owner sent can arrive later than that.
        """
        if not _NAME.fullmatch(namespace):
            raise ValueError(f"a namespace has 1 to 64 of A-Z a-z 0-9 . _ -; not {namespace!r}")
        if keep_s is not None and not 0.001 <= keep_s < _MS_MAX / 1000:
            raise ValueError(f"keep_s is None or at least 0.001; not {keep_s!r}")
        self._client = client
        self._namespace = namespace
        self._keep_ms = 0 if keep_s is None else int(keep_s * 1000)
        self._script = _SCRIPT

    def admit(self, key: str, number: int) -> bool:
        """Has `key` seen no greater number? Remembers it if so. For a first look at the key.

        Never write by another command afterwards: between the two anything may happen. That is
        what `execute` is for.
        """
        return self._run(key, number) is not None

    def execute(self, key: str, number: int, command: str, *arguments: Argument) -> Executed | None:
        """`command key arguments...` if lease `number` is admitted; None if it is refused.

        Any command that has the key as its first argument and touches no other key.
        """
        if len(arguments) > ARGUMENTS_MAX:
            raise ValueError(f"at most {ARGUMENTS_MAX} arguments; not {len(arguments)}")
        return self._run(key, number, command, *arguments)

    def _run(self, key: str, number: int, *command: Argument) -> Executed | None:
        padded = f"{check_number(number):019}"  # X4
        answer = self._client.eval(
            self._script, 2, number_key(self._namespace, key), key, padded, self._keep_ms, *command
        )  # X2
        match answer:
            case [0]:
                return None  # X1
            case [1]:
                return Executed(None)
            case [1, reply]:
                return Executed(reply)
            case _:  # A pipeline queues, an asyncio client returns a coroutine.
                raise TypeError(f"the client's eval returned no list of ours: {answer!r:.80}")


def number_key(namespace: str, key: str) -> str:
    """Where the number of `key` is kept: in the same slot, under a name of its own."""
    if not isinstance(key, str) or not 0 < len(key.encode()) <= KEY_BYTES_MAX:
        raise ValueError(f"a key is a str of 1 to {KEY_BYTES_MAX} bytes; not {key!r:.80}")
    if tag := _TAG.match(key):
        return f"{{{tag[1]}}}:softstate-fence:{namespace}:{key}"  # X3
    if "}" in key:
        raise ValueError(f"a key with a }} and no {{tag}} has no neighbour by name: {key!r:.80}")
    return f"{{{key}}}:softstate-fence:{namespace}"  # X3
