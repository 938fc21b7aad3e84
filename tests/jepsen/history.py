"""What clients saw of registers, and whether that can be true. Decides only.

A register is a list of the ids of the increments it has had; its value is the length of the list.
So a lost and a doubled increment cannot make up for each other, as in a bare counter they would.

What `problems` holds a history to:
  J1  Every increment acknowledged is in its register, exactly once, at the place it was told.
  J2  One of unknown outcome is there at most once; one that failed, or was never asked for, is not.
  J3  What was acknowledged before another was asked for has the lesser value: none goes back.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec


class Event(msgspec.Struct, frozen=True):
    """One line of a history; its place in the file is its place in time."""

    op: str
    register: str
    kind: Literal["invoke", "ok", "fail", "unknown"]
    value: int = 0
    """Of the register after it, if that is `ok`."""
    why: str = ""


class Operation(msgspec.Struct):
    op: str
    register: str
    asked_at: int
    outcome: str = "unknown"
    answered_at: int = 0
    value: int = 0


def operations(history: Iterable[Event]) -> dict[str, Operation]:
    """What became of each; of unknown outcome is also one that never ended."""
    found: dict[str, Operation] = {}
    for at, event in enumerate(history):
        if event.kind == "invoke":
            assert event.op not in found, f"{event.op} twice: every one needs an id of its own"
            found[event.op] = Operation(event.op, event.register, at)
            continue
        operation = found[event.op]
        operation.outcome, operation.answered_at = event.kind, at
        operation.value = event.value
    return found


def problems(history: Iterable[Event], finals: Mapping[str, Sequence[str]]) -> list[str]:
    """What is wrong, in sentences; nothing, if all of it can be true."""
    asked = operations(history)
    return [*_misplaced(asked, finals), *_strange(asked, finals), *_backward(asked)]


def _misplaced(asked: Mapping[str, Operation], finals: Mapping[str, Sequence[str]]) -> list[str]:
    """J1."""
    wrong = []
    for each in asked.values():
        if each.outcome != "ok":
            continue
        ids = finals.get(each.register, ())
        count = Counter(ids)[each.op]
        if count != 1:
            wrong.append(
                f"{each.op} of {each.register} was acknowledged and is there {count} times"
            )
        elif ids[each.value - 1] != each.op:
            wrong.append(f"{each.op} of {each.register} was told {each.value}, which is another's")
    return wrong


def _strange(asked: Mapping[str, Operation], finals: Mapping[str, Sequence[str]]) -> list[str]:
    """J2."""
    wrong = []
    for register, ids in finals.items():
        for op, count in Counter(ids).items():
            operation = asked.get(op)
            if operation is None or operation.register != register:
                wrong.append(f"{op} is in {register}, where nobody asked for it")
            elif operation.outcome == "fail":
                wrong.append(f"{op} of {register} failed, and is there all the same")
            elif operation.outcome == "unknown" and count > 1:
                wrong.append(f"{op} of {register}, of unknown outcome, is there {count} times")
    return wrong


def _backward(asked: Mapping[str, Operation]) -> list[str]:
    """J3."""
    by_register: dict[str, list[Operation]] = defaultdict(list)
    for each in asked.values():
        if each.outcome == "ok":
            by_register[each.register].append(each)
    wrong = []
    for register, done in by_register.items():
        answers = sorted(done, key=lambda each: each.answered_at)
        greatest, behind = 0, 0
        for each in sorted(done, key=lambda each: each.asked_at):
            while behind < len(answers) and answers[behind].answered_at < each.asked_at:
                greatest = max(greatest, answers[behind].value)
                behind += 1
            if each.value <= greatest:
                wrong.append(f"{each.op} of {register} got {each.value} after {greatest} was told")
    return wrong
