"""The `softstate` command: what it finds, what it says, and the exit code.

Method: a made-up installation of two commands in a temporary directory, and the real command run
on it as a process, since exit codes, signals and standard error are what is promised.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

ENTRY_POINTS = """\
[softstate.commands]
fail = made_up.fail:main
greet = made_up.sub.greet:main
heavy = made_up.heavy:main [load]
broken = made_up.broken:main
flood = made_up.flood:main
wait = made_up.wait:main
[softstate.roles]
{roles}
"""

MODULES = {
    "made_up/__init__.py": "raise RuntimeError('imported')",
    "made_up/fail.py": "def :",
    "made_up/flood.py": "",
    "made_up/heavy.py": "'''Lifts more than would fit into one line of a terminal, and so goes on"
    " in the next, where it is easily told apart from the name of a command'''",
    "made_up/sub/greet.py": "'''`softstate greet`: say hello.\n\nMore.\n'''\n",
    "hello/__init__.py": "'''Says hello, and how often.'''\n",
}

COMMANDS = {
    "made_up/__init__.py": "",
    "made_up/sub/__init__.py": "",
    "made_up/sub/greet.py": "def main(words):\n    print('hello', *words)\n    return 7\n",
    "made_up/fail.py": "from bus.errors import ConfigError\n"
    "def main(words):\n    raise ConfigError('port 7000 is taken; choose another')\n",
    "made_up/heavy.py": "import surely_not_installed.thing\n",
    "made_up/broken.py": "import made_up.no_such_module\n",
    "made_up/flood.py": "def main(words):\n    while True:\n        print('x' * 999)\n",
    "made_up/wait.py": "import signal\n"
    "def main(words):\n    print('waiting', flush=True)\n    signal.pause()\n    return 0\n",
}


def install(directory: Path, modules: dict[str, str], roles: str = "") -> None:
    described = directory / "softstate-9.9.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: softstate\nVersion: 9.9\n")
    (described / "entry_points.txt").write_text(ENTRY_POINTS.format(roles=roles))
    for name, text in modules.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def start(directory: Path, *words: str, python: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "PYTHONPATH": f"{directory}:{ROOT}",
        "COLUMNS": "90",
    }
    return subprocess.Popen(
        [sys.executable, *python, "-P", "-m", "bus.cli", *words],
        cwd=directory,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(directory: Path, *words: str, python: tuple[str, ...] = ()) -> tuple[int, str, str]:
    with start(directory, *words, python=python) as process:
        out, err = process.communicate(timeout=20)
    return process.returncode, out, err


@pytest.mark.parametrize("words", [(), ("-h",), ("--help",), ("help",)])
def test_help_lists_each_command_with_its_line_and_imports_none(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    install(tmp_path, MODULES, roles="hello = hello:main")
    code, out, err = run(tmp_path, *words)
    assert (code, err) == (0, "")
    listed = [line.rstrip() for line in out.splitlines() if line.startswith("  ")]
    assert listed == [
        "  softstate up           starts a small cluster on this machine; Ctrl-C ends it",
        "  softstate status       shows every process of it, from another terminal",
        "  softstate COMMAND -h   says more about one command",
        "  broken   (its source is not here)",
        "  fail     (its source cannot be read)",
        "  flood    (it does not say what it does)",
        "  greet    Say hello",
        "  heavy    Lifts more than would fit into one line of a terminal, and so goes on in the",
        "           next, where it is easily told apart from the name of a command",
        "  wait     (its source is not here)",
        "  hello   Says hello, and how often",
    ]


def test_help_lists_the_roles_of_the_configuration_that_lies_here(tmp_path: Path) -> None:
    install(tmp_path, {"mine.py": "'''My own role.'''"})
    (tmp_path / "cluster.toml").write_text(
        'hubs = ["tcp://127.0.0.1:7000"]\n'
        "[nodes.n1]\nrun = {hub = 1, own = 1}\n"
        '[roles.own]\nmain = "mine:main"\n'
    )
    assert "  own   My own role\n" in run(tmp_path, "--help")[1]


def test_help_helps_although_the_configuration_is_wrong(tmp_path: Path) -> None:
    install(tmp_path, MODULES)
    (tmp_path / "cluster.toml").write_text("hubs = 7\n")
    code, out, err = run(tmp_path, "--help")
    assert (code, err) == (0, "")
    assert "  greet    Say hello\n" in out


def test_version_is_that_of_the_distribution(tmp_path: Path) -> None:
    install(tmp_path, {})
    assert run(tmp_path, "--version") == (0, "softstate 9.9\n", "")


def test_command_gets_its_words_and_gives_the_exit_code(tmp_path: Path) -> None:
    install(tmp_path, COMMANDS)
    assert run(tmp_path, "greet", "--loud", "you") == (7, "hello --loud you\n", "")


def test_error_of_ours_is_one_sentence(tmp_path: Path) -> None:
    install(tmp_path, COMMANDS)
    told = "softstate: port 7000 is taken; choose another\n"
    assert run(tmp_path, "fail") == (1, "", told)


def test_unknown_command_is_answered_with_the_nearest(tmp_path: Path) -> None:
    install(tmp_path, COMMANDS)
    assert run(tmp_path, "geet") == (
        2,
        "",
        "softstate: no command `geet`; did you mean `greet`? (`softstate --help` lists them all)\n",
    )
    assert run(tmp_path, "xyzzy") == (
        2,
        "",
        "softstate: no command `xyzzy` (`softstate --help` lists them all)\n",
    )


def test_unknown_command_with_a_wrong_configuration_tells_what_is_wrong_with_it(
    tmp_path: Path,
) -> None:
    install(tmp_path, COMMANDS)
    (tmp_path / "other.toml").write_text("hubs = 7\n")
    code, out, err = run(tmp_path, "own", "--config", "other.toml")
    assert (code, out) == (1, "")
    assert err.startswith("softstate: other.toml:1: hubs: ")


def test_command_whose_extra_is_missing_says_how_to_install_it(tmp_path: Path) -> None:
    install(tmp_path, COMMANDS)
    assert run(tmp_path, "heavy") == (
        1,
        "",
        "softstate: `softstate heavy` needs `surely_not_installed`, which is not installed; "
        "install it with `pip install 'softstate[load]'`\n",
    )


def test_mistake_of_ours_is_a_traceback(tmp_path: Path) -> None:
    install(tmp_path, COMMANDS)
    code, out, err = run(tmp_path, "broken")
    assert (code, out) == (1, "")
    assert err.startswith("Traceback")


@pytest.mark.parametrize("words", [("--help",), ("greet",)])
def test_python_without_assertions_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    install(tmp_path, COMMANDS)
    told = "softstate: run without -O and PYTHONOPTIMIZE: our checks are assertions\n"
    assert run(tmp_path, *words, python=("-O",)) == (2, "", told)


def test_reader_that_leaves_ends_the_command_in_silence(tmp_path: Path) -> None:
    install(tmp_path, COMMANDS)
    with start(tmp_path, "flood") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=20) == 141


def test_interrupted_command_ends_with_130_in_silence(tmp_path: Path) -> None:
    install(tmp_path, COMMANDS)
    with start(tmp_path, "wait") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
        assert process.stderr.read() == ""
