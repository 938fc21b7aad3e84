"""The doctor's judgement of plain facts, and that the facts it gathers are true.

Method: `judge` gets the facts of a healthy machine with one thing changed, and must find just
that. `gather` and the command look at real sockets and files made for the test.
"""

import json
import re
import socket
from pathlib import Path

import msgspec
import pytest

from bus.config import Config, KeysConfig, NodeConfig, local, publish_address
from bus.keys import create_cluster
from bus.pump import Pump, Relay, new_keypair
from roles.commands.doctor import gather, main
from roles.diagnosis import Facts, Finding, PortState, descriptors_needed, judge, satisfies

CONFIG = Config(
    hubs=("tcp://10.0.0.1:7000",),
    allow_plain=False,
    run_directory="/run/softstate",
    nodes={
        "n1": NodeConfig(address="10.0.0.1", run={"hub": 1}),
        "n2": NodeConfig(address="db.example"),
    },
    keys=KeysConfig(directory="/keys"),
)
HEALTHY = Facts(
    python="3.11.7",
    requires_python=">=3.11",
    requirements=["gevent<27,>=26.9", "pyzmq>=27.3"],
    installed={"gevent": "26.9.0", "pyzmq": "27.3.1"},
    zmq={"version": "4.3.5", "curve": True, "max_sockets": 1023},
    open_files_max=20_000,
    boottime_s=(7200.0, 7200.1),
    wall_s=1_800_000_000,
    clock_is_synchronised=True,
    own_addresses=frozenset({"127.0.0.1", "10.0.0.1"}),
    resolved={"10.0.0.1": "10.0.0.1", "db.example": "10.0.0.2"},
    ports={"tcp://10.0.0.1:7000": "free", "tcp://10.0.0.1:7100": "hub"},
    keys_trouble="",
    keys_directory_mode=0o700,
    run_directory_writable=True,
    run_directory_free_bytes=5 << 30,
    honcho_is_installed=True,
)


def changed(**facts: object) -> list[Finding]:
    """What is found beyond `ok` once these facts are different."""
    findings = judge(msgspec.structs.replace(HEALTHY, **facts), CONFIG)
    return [finding for finding in findings if finding.level != "ok"]


def test_healthy_machine_passes_every_check() -> None:
    assert judge(HEALTHY, CONFIG) == [
        Finding("ok", "python", "3.11.7"),
        Finding("ok", "gevent", "26.9.0"),
        Finding("ok", "pyzmq", "27.3.1"),
        Finding("ok", "libzmq", "4.3.5, with CURVE"),
        Finding("ok", "boottime", "up for 2.0 h"),
        Finding("ok", "wall clock", "synchronised"),
        Finding("ok", "honcho", "installed"),
        Finding("ok", "open files", "20000 allowed, 87 needed"),
        Finding("ok", "sockets", "1023 a process, 13 needed"),
        Finding("ok", "hub-1 listen", "tcp://10.0.0.1:7000: free"),
        Finding("ok", "hub-1 publish", "tcp://10.0.0.1:7100: a hub answers"),
        Finding("ok", "node n1", "10.0.0.1: this machine"),
        Finding("ok", "node n2", "db.example: another machine"),
        Finding("ok", "keys", "component of /keys"),
        Finding("ok", "run directory", "/run/softstate: 5.0 GiB free"),
    ]


def test_without_a_configuration_only_the_machine_is_judged() -> None:
    assert [finding.name for finding in judge(HEALTHY, None)] == [
        "python",
        "gevent",
        "pyzmq",
        "libzmq",
        "boottime",
        "wall clock",
        "honcho",
    ]


TROUBLES: dict[str, tuple[dict[str, object], Finding]] = {
    "old python": (
        {"python": "3.10.9"},
        Finding("fail", "python", "3.10.9; install one that is >=3.11"),
    ),
    "not installed": (
        {"requires_python": "", "requirements": []},
        Finding("warn", "python", "3.11.7; softstate is not installed: pip install ."),
    ),
    "new gevent": (
        {"installed": {"gevent": "27.0", "pyzmq": "27.3"}},
        Finding("fail", "gevent", "27.0 is not <27,>=26.9: pip install 'gevent<27,>=26.9'"),
    ),
    "no pyzmq": (
        {"installed": {"gevent": "26.9"}},
        Finding("fail", "pyzmq", "not installed: pip install 'pyzmq>=27.3'"),
    ),
    "no curve": (
        {"zmq": {"version": "4.3.5", "curve": False, "max_sockets": 1023}},
        Finding("fail", "libzmq", "4.3.5 has no CURVE, so keys cannot work: use pyzmq's own wheel"),
    ),
    "few sockets": (
        {"zmq": {"version": "4.3.5", "curve": True, "max_sockets": 12}},
        Finding("fail", "sockets", "12 a process, 13 needed: run fewer processes"),
    ),
    "few files": (
        {"open_files_max": 4096},
        Finding(
            "warn",
            "open files",
            "4096 allowed, 87 needed; that is 1024 connections to a process, not the 4096 of "
            "limits.connections_max: raise the hard limit (limits.conf, or LimitNOFILE= of the "
            "systemd unit)",
        ),
    ),
    "too few files": (
        {"open_files_max": 86},
        Finding(
            "fail",
            "open files",
            "86 allowed, 87 needed: raise the hard limit (limits.conf, or LimitNOFILE= of the "
            "systemd unit)",
        ),
    ),
    "clock stands": (
        {"boottime_s": (0.0, 0.0)},
        Finding("fail", "boottime", "CLOCK_BOOTTIME does not run: use Linux 2.6.39 or later"),
    ),
    "clock never set": (
        {"wall_s": 86_400.0},
        Finding("fail", "wall clock", "stands before 2024: set it, and run an NTP client"),
    ),
    "clock adrift": (
        {"clock_is_synchronised": False},
        Finding(
            "warn",
            "wall clock",
            "not synchronised, so sessions may expire early or late: run an NTP client",
        ),
    ),
    "clock unknown": (
        {"clock_is_synchronised": None},
        Finding(
            "warn",
            "wall clock",
            "cannot tell whether it is synchronised: see that an NTP client runs",
        ),
    ),
    "no honcho": (
        {"honcho_is_installed": False},
        Finding("warn", "honcho", "not installed; `make up` needs it: pip install honcho"),
    ),
    "nameless node": (
        {"resolved": {"10.0.0.1": "10.0.0.1", "db.example": ""}},
        Finding("fail", "node n2", "db.example has no address: correct the name, or add it to DNS"),
    ),
    "bad keys": (
        {"keys_trouble": "others may read this secret"},
        Finding("fail", "keys", "others may read this secret"),
    ),
    "open keys": (
        {"keys_directory_mode": 0o777},
        Finding("fail", "keys", "others may write to /keys: run `chmod go-w /keys`"),
    ),
    "read-only run directory": (
        {"run_directory_writable": False},
        Finding("fail", "run directory", "cannot write to /run/softstate: set run_directory"),
    ),
    "little room": (
        {"run_directory_free_bytes": 512 << 20},
        Finding(
            "warn",
            "run directory",
            "/run/softstate: 0.5 GiB free: make room, or set run_directory",
        ),
    ),
    "no room": (
        {"run_directory_free_bytes": 1 << 20},
        Finding(
            "fail",
            "run directory",
            "/run/softstate: 0.0 GiB free: make room, or set run_directory",
        ),
    ),
}


@pytest.mark.parametrize(("facts", "finding"), TROUBLES.values(), ids=TROUBLES.keys())
def test_one_trouble_gives_one_finding_that_says_what_to_do(
    facts: dict[str, object], finding: Finding
) -> None:
    assert changed(**facts) == [finding]


def test_each_state_of_a_hub_port_has_its_own_finding() -> None:
    def judged(state: PortState) -> list[tuple[str, str]]:
        ports = {**HEALTHY.ports, "tcp://10.0.0.1:7000": state}
        return [(finding.level, finding.sentence) for finding in changed(ports=ports)]

    place = "tcp://10.0.0.1:7000:"
    assert {state: judged(state) for state in ("taken", "silent", "refused", "unreachable")} == {
        "taken": [
            ("fail", f"{place} taken, or not ours to bind: end what has it, or choose another port")
        ],
        "silent": [
            ("fail", f"{place} something listens there that is no hub: choose another port")
        ],
        "refused": [("warn", f"{place} nobody listens there yet: start that node")],
        "unreachable": [
            ("fail", f"{place} cannot be reached: check the address, the network, the firewall")
        ],
    }


def test_loopback_node_of_a_cluster_on_several_machines_is_warned_about() -> None:
    config = msgspec.structs.replace(CONFIG, nodes={"n1": NodeConfig(run={"hub": 1})})
    assert [finding for finding in judge(HEALTHY, config) if finding.level != "ok"] == [
        Finding(
            "warn",
            "node n1",
            "127.0.0.1 cannot be reached from the machines of the hubs: set nodes.n1.address",
        )
    ]


def test_plain_traffic_is_warned_about_only_where_it_may_leave() -> None:
    def keys(*, allow_plain: bool) -> str:
        config = msgspec.structs.replace(CONFIG, keys=None, allow_plain=allow_plain)
        return next(f.level for f in judge(HEALTHY, config) if f.name == "keys")

    assert [keys(allow_plain=False), keys(allow_plain=True)] == ["ok", "warn"]


def test_need_for_descriptors_grows_with_processes_hubs_and_children() -> None:
    def need(hubs: int, *children: int) -> int:
        nodes = {f"n{i}": NodeConfig(run={"x": count}) for i, count in enumerate(children)}
        return descriptors_needed(Config(hubs=("tcp://127.0.0.1:1",) * hubs, nodes=nodes))

    # 64 + 2 x (1 + 2 x hubs) + 2 x hubs + 4 x processes, agents among them + 3 x most children.
    assert need(1, 0) == 64 + 6 + 2 + 4 + 0
    assert need(2, 0) == 64 + 10 + 4 + 4 + 0
    assert need(2, 10, 5) == 64 + 10 + 4 + 4 * 17 + 30


@pytest.mark.parametrize(
    ("version", "wanted", "outcome"),
    [
        ("26.9", ">=26.9,<27", True),
        ("26.10.1", ">=26.9, <27", True),
        ("26.8.9", ">=26.9,<27", False),
        ("27", ">=26.9,<27", False),
        ("27.0.0", "==27", True),
        ("27.0.1", "==27", False),
        ("27.0.1", "!=27,>27", True),
        ("3.13.0rc1", ">=3.11", True),
        ("1", "<=1.0", True),
        ("1", "", True),
    ],
)
def test_versions_compare_number_by_number(version: str, wanted: str, *, outcome: bool) -> None:
    assert satisfies(version, wanted) is outcome


# Gathering, on this machine.


UNRESOLVABLE = "x" * 64  # One letter longer than DNS allows: fails without asking a server.


@pytest.mark.slow  # A stranger's silence is waited for.
def test_gathered_ports_are_told_apart_by_who_answers(tmp_path: Path) -> None:
    held = local(tmp_path, nodes=1, run={"hub": 1}).hubs[0]
    pump = Pump()
    relay = Relay(pump, held, publish_address(held))
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        strange = f"tcp://127.0.0.1:{stranger.getsockname()[1]}"
        nobody = f"ipc://{tmp_path}/hub"
        ports = gather(Config(hubs=(held, strange, nobody))).ports
    relay.close()
    pump.close()
    assert {address: ports[address] for address in (held, publish_address(held))} == {
        held: "hub",
        publish_address(held): "hub",
    }
    assert (ports[strange], ports[nobody]) == ("silent", "free")
    assert gather(Config(hubs=(held,))).ports == {held: "free", publish_address(held): "free"}


def test_gathered_facts_are_those_of_this_machine(tmp_path: Path) -> None:
    config = Config(
        hubs=(f"ipc://{tmp_path}/hub",),
        run_directory=str(tmp_path / "not" / "made" / "yet"),
        nodes={"n1": NodeConfig(address=UNRESOLVABLE), "n2": NodeConfig(address="127.0.0.1")},
    )
    facts = gather(config)
    assert facts.resolved == {"127.0.0.1": "127.0.0.1", UNRESOLVABLE: ""}
    assert facts.run_directory_writable
    assert "127.0.0.1" in facts.own_addresses
    assert 0 < facts.boottime_s[0] <= facts.boottime_s[1]


def columns(output: str) -> list[list[str]]:
    """The table as printed; how wide its columns are depends on what is installed."""
    return [re.split(r" {2,}", line, maxsplit=2) for line in output.splitlines()]


def test_command_prints_one_line_a_check_and_fails_on_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = local(tmp_path, nodes=1, run={"hub": 1}).hubs[0]
    create_cluster(tmp_path / "keys", new_keypair)
    file = tmp_path / "cluster.toml"
    file.write_text(
        f'hubs = ["{hub}"]\n[nodes.n1]\nrun = {{hub = 1}}\n[keys]\ndirectory = "keys"\n'
    )

    assert main(["--config", str(file)]) == 0
    lines = columns(capsys.readouterr().out)
    assert lines[0] == ["ok", "config", f"{file}: 2 processes, agents among them"]
    assert ["ok", "hub-1 publish", f"{publish_address(hub)}: free"] in lines

    (tmp_path / "keys" / "cluster.secret").chmod(0o644)
    assert main(["--config", str(file), "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    secret = tmp_path / "keys" / "cluster.secret"
    assert [finding for finding in findings if finding["level"] == "fail"] == [
        {
            "level": "fail",
            "name": "keys",
            "sentence": f"{secret}: others may read this secret; run `chmod 600 {secret}`",
        }
    ]


def test_command_reports_a_wrong_configuration_and_still_checks_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text("hub = 1\n")
    assert main(["--config", str(file)]) == 1
    lines = columns(capsys.readouterr().out)
    assert lines[0] == ["fail", "config", f'{file}:1: hub: unknown key; did you mean "hubs"?']
    assert any(line[:2] == ["ok", "libzmq"] for line in lines)
