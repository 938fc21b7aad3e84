"""A role as a process of its own: how it is found, named, told to end, and what it says if not.

Method: small roles in a temporary directory, named by a `cluster.toml` there, and the real command
run on them. No hub runs: a role starts all the same, and goes on looking for one.
"""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bus.clock import now
from roles.invoke import environment, softstate
from tests.waiting import until

pytestmark = pytest.mark.slow

CONFIG = """\
hubs = ["tcp://127.0.0.1:{port}"]
preset = "fast"
[nodes.n1]
run = {{hub = 1, patient = 2}}
[nodes.n2]
run = {{patient = 1}}
[roles.patient]
main = "beside:patient"
[roles.deaf]
main = "beside:deaf"
[roles.broken]
main = "beside:broken"
[roles.refusing]
main = "beside:refusing"
[roles.absent]
main = "no_such_place:main"
[roles.nameless]
main = "beside:no_such_function"
[roles.needy]
main = "needy:main"
"""

BESIDE = '''"""Roles to try."""
import gevent
from bus.errors import ConfigError

def patient(member):
    me = member.identity
    print("serving", me.id, me.role, me.node, member.restarts, me.incarnation, flush=True)
    member.live()
    member.wait()
    print("farewell", flush=True)

def deaf(member):
    print("serving", flush=True)
    while True:
        gevent.sleep(1)

def broken(member):
    raise ZeroDivisionError("a mistake in the role")

def refusing(member):
    raise ConfigError("port 7000 is taken; choose another")
'''


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "cluster.toml").write_text(CONFIG.format(port=9))  # Where nobody listens.
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "needy.py").write_text("import surely_not_installed\n")
    return tmp_path


@contextmanager
def running(place: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    command = softstate(*words, "--config", str(place / "cluster.toml"))
    process = subprocess.Popen(
        command,
        cwd="/",
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def outcome(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_role_serves_under_its_name_until_told_to_end_and_says_farewell(
    place: Path, number: signal.Signals
) -> None:
    words = ("--id", "patient-2", "--node", "n2", "--restarts", "4", "--incarnation", "77")
    with running(place, "patient", *words) as process:
        assert first_line(process) == "serving patient-2 patient n2 4 77\n"
        process.send_signal(number)
        code, out, _ = outcome(process)
        assert (code, out) == (0, "farewell\n")


def test_node_comes_from_the_configuration_and_the_incarnation_from_the_clock(place: Path) -> None:
    with running(place, "patient", "--id", "patient-3") as process:
        *words, incarnation = first_line(process).split()
    assert words == ["serving", "patient-3", "patient", "n2", "0"]
    assert int(incarnation) > 1_700_000_000_000


def test_role_that_does_not_listen_is_ended_all_the_same(place: Path) -> None:
    with running(place, "deaf", "--id", "deaf-1", "--node", "n1") as process:
        assert first_line(process) == "serving\n"
        began = now()
        process.send_signal(signal.SIGTERM)
        assert outcome(process)[0] == 0
        assert 1.0 < now() - began < 10.0


def test_mistake_in_a_role_is_a_traceback(place: Path) -> None:
    with running(place, "broken", "--id", "broken-1", "--node", "n1") as process:
        code, _, err = outcome(process)
    assert code == 1
    assert err.rstrip().endswith("ZeroDivisionError: a mistake in the role")
    assert err.count("Traceback") == 1


def test_refusal_of_a_role_is_one_sentence(place: Path) -> None:
    with running(place, "refusing", "--id", "refusing-1", "--node", "n1") as process:
        code, _, err = outcome(process)
    assert (code, err) == (1, "softstate: port 7000 is taken; choose another\n")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("patient", "--id", "brick-1"), "the id of a patient is `patient-` and a number from 1"),
        (("patient", "--id", "patient-0"), "the id of a patient is `patient-` and a number"),
        (("patient", "--id", "patient-9"), "patient-9 is not in "),
        (("patient", "--id", "patient-1", "--node", "nn1"), "no such node; did you mean `n1`?"),
        (("patient", "--id", "patient-1", "--node", "x"), "has no such node; it has n1, n2"),
        (("absent", "--id", "absent-1", "--node", "n1"), "no module `no_such_place` for the role"),
        (("hub", "--id", "hub-9", "--node", "n1"), "hub-9 has no address: "),
        (("hub", "--id", "hub-" + "9" * 5000, "--node", "n1"), "and a number from 1"),
        (("nameless", "--id", "nameless-1", "--node", "n1"), "no function `no_such_function`"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(
    place: Path, words: tuple[str, ...], says: str
) -> None:
    with running(place, *words) as process:
        code, out, err = outcome(process)
    assert (code, out) == (1, "")
    assert err.startswith("softstate: ")
    assert err.count("\n") == 1
    assert says in err


def test_role_whose_own_imports_are_broken_shows_where(place: Path) -> None:
    with running(place, "needy", "--id", "needy-1", "--node", "n1") as process:
        code, _, err = outcome(process)
    assert code == 1
    assert "needy.py" in err
    assert err.rstrip().endswith("No module named 'surely_not_installed'")


@pytest.mark.parametrize("number", ["-1", "99999999999999999999999", "9223372036854775808", "x"])
def test_wrong_options_end_with_2(place: Path, number: str) -> None:
    with running(place, "patient", "--id", "patient-1", f"--incarnation={number}") as process:
        code, _, err = outcome(process)
    assert code == 2
    assert err.splitlines()[-1] == (
        f"softstate patient: error: argument --incarnation: {number}: give a number from 0 to "
        "9223372036854775807"
    )


def test_role_dies_with_the_process_that_started_it(place: Path) -> None:
    script = (
        "import os, subprocess, sys; "
        "os.environ['SOFTSTATE_PARENT'] = str(os.getpid()); "
        "child = subprocess.Popen(sys.argv[1:]); print(child.pid, flush=True); child.wait()"
    )
    command = softstate("patient", "--id", "patient-1", "--config", str(place / "cluster.toml"))
    parent = subprocess.Popen(
        [command[0], "-c", script, *command], env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        child = int(first_line(parent))
        assert first_line(parent).startswith("serving patient-1 ")
    finally:
        parent.kill()
        parent.communicate()
    until(lambda: not Path(f"/proc/{child}").exists(), 10, "the end of the child")
