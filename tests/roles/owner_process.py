"""An owner in a process of its own, to be killed, stopped and blocked; and the other end of it.

    with OwnerProcess(config, namespace="n", url="tcp://x") as owner:
        owner.ask("ready")
        owner.kill()

Commands are lines on its standard input, answers are lines of JSON, one for each. `block` keeps the
event loop busy while a native thread writes down what the checks say. It ends with its parent.
"""

import sys

from gevent import monkey

if __name__ == "__main__" and sys.argv[-1] == "patched":
    monkey.patch_all()

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import gevent
from gevent import subprocess as green

from bus.clock import now
from bus.parent import PARENT, tie_to_parent
from roles.invoke import environment

ROOT = Path(__file__).parent.parent.parent
ANSWER_S_MAX = 30.0


class OwnerProcess:
    def __init__(self, config: str, *, namespace: str, url: str, patched: bool = False) -> None:
        words = [sys.executable, "-W", "error", "-m", "tests.roles.owner_process"]
        words += [config, namespace, url, "patched" if patched else "plain"]
        self._process = green.Popen(
            words,
            cwd=ROOT,
            stdin=green.PIPE,
            stdout=green.PIPE,
            env={**environment(), PARENT: str(os.getpid())},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands, self._answers = self._process.stdin, self._process.stdout
        self.pid = self._process.pid

    def ask(self, command: str, *words: object) -> Any:  # noqa: ANN401 (any JSON)
        """What it answers; an AssertionError if it does not, or fails."""
        self.tell(command, *words)
        return self.answer()

    def tell(self, command: str, *words: object) -> None:
        self._commands.write(" ".join(map(str, [command, *words])).encode() + b"\n")
        self._commands.flush()

    def answer(self) -> Any:  # noqa: ANN401 (any JSON)
        line = gevent.with_timeout(ANSWER_S_MAX, self._answers.readline, timeout_value=b"")
        assert line, f"process {self.pid} did not answer"
        answer = json.loads(line)
        assert "failed" not in answer, answer["failed"]
        return answer["value"]

    def kill(self) -> None:
        """SIGKILL; returns when it is reaped."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait(ANSWER_S_MAX)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def ended(self) -> int:
        """Its exit code, once there is no more to ask."""
        self._commands.close()
        return int(self._process.wait(ANSWER_S_MAX))

    def __enter__(self) -> "OwnerProcess":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()
        for stream in (self._commands, self._answers):
            stream.close()


# From here on: in the process.


class Commands:
    def __init__(self, config: str, namespace: str, url: str) -> None:
        from roles import Cluster, Owner

        self.changes: list[list[list[tuple[int, int]]]] = []
        self.owner = Owner(
            Cluster.load(config),
            namespace=namespace,
            url=url,
            on_change=lambda *told: self.changes.append(
                [[(each.start, each.end) for each in ranges] for ranges in told]
            ),
        )
        self.owner.start()

    def ready(self) -> bool:
        self.owner.ready(20)
        return True

    def held(self, *keys: str) -> list[str]:
        """Which of the keys it holds now."""
        return [key for key in keys if self.owner.check_lease_now(key) is not None]

    def ranges(self) -> list[tuple[int, int]]:
        return [(each.start, each.end) for each in self.owner.ranges()]

    def told(self) -> list[list[list[tuple[int, int]]]]:
        """Every change so far, as `on_change` was told."""
        return self.changes

    def close(self, drain_s: str = "0") -> float:
        """How long that took."""
        began_at = now()
        self.owner.close(float(drain_s))
        return now() - began_at

    def spin(self, key: str, spin_s: str) -> list[float]:
        """Do nothing but check; the longest time between two checks, during which we were stopped,
        and how often the lease from before that was found continuous after it."""
        lease = self.owner.check_lease_now(key)
        assert lease is not None, f"{key} is not held"
        last_at = began_at = now()
        gap_s, after = 0.0, 0
        while last_at < began_at + float(spin_s):
            checked_at = now()
            if checked_at - last_at > gap_s:
                gap_s, after = checked_at - last_at, 0
            after += self.owner.check_lease_continuous(key, lease)
            last_at = checked_at
        return [gap_s, after]

    def block(self, key: str, block_s: str) -> list[float]:
        """Keep the loop busy; how long, from the start of that, the check was true in a native
        thread, and how long it was for certain false before the loop was let go."""
        until = now() + float(block_s)
        seen: list[tuple[float, bool]] = []
        began_at = now()
        native = gevent.get_hub().threadpool.spawn(self._watch, key, until, seen)
        while now() < until:
            pass
        ended_at = now()
        native.get()
        true = [at for at, held in seen if held and at < ended_at]
        false = [at for at, held in seen if not held and at < ended_at]
        return [max(true) - began_at, ended_at - min(false) if false else 0.0]

    def _watch(self, key: str, until: float, seen: list[tuple[float, bool]]) -> None:
        while (at := now()) < until:
            seen.append((at, self.owner.check_lease_now(key) is not None))
            gevent.sleep(0.01)


def _answer(commands: Commands, line: str) -> dict[str, object]:
    name, *words = line.split()
    command: Callable[..., object] = getattr(commands, name)
    try:
        return {"value": command(*words)}
    except Exception as error:  # noqa: BLE001 (whatever it is, the test is told)
        return {"failed": f"{type(error).__name__}: {error}"}


def _main() -> None:
    tie_to_parent()
    config, namespace, url, _ = sys.argv[1:]
    commands = Commands(config, namespace, url)
    read = gevent.get_hub().threadpool
    while line := read.apply(sys.stdin.readline):
        print(json.dumps(_answer(commands, line)), flush=True)


if __name__ == "__main__":
    _main()
