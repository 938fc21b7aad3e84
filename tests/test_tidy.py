"""Rules of this codebase that no linter knows. A rule not checked here is a wish.

Method: read every source file as a syntax tree; nothing is imported. A file becomes a shell, one
that may wait, read a clock or touch the machine, only by being named in `SHELLS`, in review.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT = {
    "bus": {"bus"},
    "roles": {"bus", "roles"},
    "pinpoint": {"bus", "pinpoint"},
    "tacc": {"bus", "roles", "tacc"},
    "loadtest": {"bus", "roles", "pinpoint", "tacc", "loadtest"},
    "examples": {"bus", "roles", "tacc", "examples"},
}
"""Imports point down only. Which of our packages each may use."""

SHELLS = {
    "bus": """agents cli client clock config descriptors fault_shell keys loop_meter member metrics
        news parent peer_watch pump role_process server shared_file vitals""",
    "roles": """agent_process brick brick_roll chaos chaos_files chaos_filters chaos_guard
        chaos_injected chaos_inside chaos_keeper chaos_processes cluster fence_redis fence_sql
        hand_over_file hosts hosts_up hub hub_ports hub_watch incarnations inquiry invoke
        key_ring_file
        lease_inquiry lease_session lookup manager_process manager_store node node_vitals observer
        output owner process process_control rejuvenator seen_news session_django session_flask
        session_keeper session_request session_wsgi store_etcd store_sqlite stub testing view
        watchdog commands.bricks commands.chaos commands.doctor commands.drain commands.events
        commands.hosts commands.keys commands.leases commands.node commands.processes
        commands.restart commands.start commands.status commands.stop commands.up commands.why""",
    "pinpoint": "__main__ command process record",
    "tacc": "",
    "loadtest": """bench bench_bus bench_heal bench_hub bench_lease bench_million bench_overload
        bench_pinpoint bench_session child draw_overload draw_soak echo_ours echo_zerorpc echo_zmq
        etcd_peer fuzz fuzz_processes greenlets heal_field heal_generator heal_town hub_crowd
        hub_flood hub_members hub_requests hyperactive kill_and_restart lease_changes lease_cluster
        lease_crowd lease_failover lease_home lease_lookups lease_speed locust_shapes locustfile
        machine meter open_loop patrons peer_servers pinpoint_crowd pinpoint_member predictors
        processes report runner
        session_cluster session_field session_filler session_generator session_holder
        session_memcached session_ours session_phase session_redis session_tcp sightings soak
        soak_owner socket_bytes""",
    "examples": "hello_role presence shop",
}

IMPURE = """asyncio ctypes datetime fcntl gevent greenlet locust logging multiprocessing os psutil
    random resource secrets select selectors shutil signal socket subprocess tempfile threading
    time zerorpc zmq"""

BORROWED = {
    "roles.diagnosis": "bus.config",
    "loadtest.beacon_frames": "bus.member",
}
"""Files that decide, and the shell each takes a struct or a name from, and nothing that acts."""

ONLY_IN = {
    "zmq": """bus.pump loadtest.echo_zmq loadtest.fuzz loadtest.hub_crowd loadtest.hub_flood
        loadtest.machine loadtest.pinpoint_crowd""",
    "prometheus_client": "bus.metrics",
    "zerorpc": "loadtest.echo_zerorpc",
    "cryptography": "roles.session_crypt",
    "flask": "roles.session_flask examples.presence examples.shop",
    "django": "roles.session_django",
    "matplotlib": "loadtest.draw_overload loadtest.draw_soak",
}
"""What is behind one door, and the doors. The rest of loadtest's are bare peers to measure by."""

PROMISED_BY_ALL = {"bus.allow_list A1", "bus.frames F1", "bus.liveness L9", "bus.toml_lines T1"}
"""Invariants that no single line upholds, so none can cite them; a test holds each."""


class Source:
    """One file: its name as a module, and what it imports."""

    def __init__(self, path: Path) -> None:
        self.path = path
        words = path.relative_to(ROOT).with_suffix("").parts
        self.package = words[0]
        self.module = ".".join(words).removesuffix(".__init__")
        self.text = path.read_text()
        self.tree = ast.parse(self.text)
        self.docstring = ast.get_docstring(self.tree, clean=False) or ""
        self.imports = set(_imports(self.tree))

    @property
    def is_shell(self) -> bool:
        below = self.module.partition(".")[2]
        return below in SHELLS[self.package].split()


def _imports(tree: ast.AST) -> Iterator[str]:
    """Modules imported anywhere in the file, but for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        else:
            yield from _imports(node)


SOURCES = [Source(path) for name in MAY_IMPORT for path in sorted((ROOT / name).rglob("*.py"))]
MODULES = {source.module: source for source in SOURCES}
each_source = pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.module)


def tops(source: Source) -> set[str]:
    return {name.partition(".")[0] for name in source.imports}


@each_source
def test_imports_point_down_only(source: Source) -> None:
    ours = tops(source) & (MAY_IMPORT.keys() | {"tests"})
    assert ours <= MAY_IMPORT[source.package]


@each_source
def test_file_that_decides_touches_nothing(source: Source) -> None:
    if source.is_shell or source.module == "bus":  # Which looks whether modules are compiled.
        return
    touched = tops(source) & set(IMPURE.split())
    if "random.Random" in source.imports:
        touched.discard("random")  # As an argument: whoever calls says what is drawn.
    assert not touched, "decisions take `now` and return actions"


@each_source
def test_file_that_decides_imports_no_shell(source: Source) -> None:
    if source.is_shell or source.path.name == "__init__.py":
        return
    shells = {name for name in source.imports if name in MODULES and MODULES[name].is_shell}
    assert shells <= {BORROWED.get(source.module)}, "what it needs of them: have it passed in"


@each_source
def test_what_is_behind_one_door_stays_there(source: Source) -> None:
    for name, doors in ONLY_IN.items():
        assert name not in tops(source) or source.module in doors.split(), name
    assert source.package == "loadtest" or "locust" not in tops(source), "it patches on import"


@each_source
def test_file_says_what_it_is_for(source: Source) -> None:
    if source.text.strip():
        assert source.docstring.strip(), "the first line of its docstring is its job"


@each_source
def test_every_invariant_is_cited_where_it_is_upheld(source: Source) -> None:
    numbered = re.findall(r"^ {2,4}([A-Z][0-9]+) {1,2}\S", source.docstring, re.MULTILINE)
    below = source.text.replace(source.docstring, "", 1)
    uncited = {f"{source.module} {n}" for n in numbered if not re.search(rf"\b{n}\b", below)}
    assert uncited <= PROMISED_BY_ALL


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda path: path.name)
def test_test_file_says_how_it_tests(path: Path) -> None:
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text)), "goal and method"


def test_every_file_that_a_rule_names_exists() -> None:
    named = {f"{package}.{name}" for package, names in SHELLS.items() for name in names.split()}
    doors = {name for names in ONLY_IN.values() for name in names.split()}
    assert (named | doors | BORROWED.keys()) - MODULES.keys() == set()


def test_every_entry_point_is_a_function_that_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    places = [project["scripts"], *project["entry-points"].values()]
    missing = []
    for place in (value for group in places for value in group.values()):
        module, _, function = place.partition(" ")[0].partition(":")
        body = MODULES[module].tree.body if module in MODULES else []
        if not any(isinstance(node, ast.FunctionDef) and node.name == function for node in body):
            missing.append(place)
    assert missing == []


def test_every_package_is_installed() -> None:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = {
        source.module
        for source in SOURCES
        if source.path.name == "__init__.py" and source.package != "examples"
    }
    assert set(tables["tool"]["setuptools"]["packages"]) == found


def test_every_direct_dependency_is_pinned_exactly() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = {
        re.split(r"[^A-Za-z0-9._-]", requirement)[0]
        for requirement in (*project["dependencies"], *(each for extra in extras for each in extra))
    }
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [pin for pin in pins if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9.]*", pin)] == []
    assert {_plain(name) for name in wanted} <= {_plain(pin.partition("==")[0]) for pin in pins}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_letters_of_invariants_are_those_of_the_files() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text.partition("## What always holds")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", table, re.MULTILINE)
    assert rows
    for names, ranges in rows:
        first, *others = re.findall(r"`([^`]+)`", names)
        paths = [ROOT / first, *(ROOT / Path(first).parent / Path(each).name for each in others)]
        written = {letter for path in paths for letter in _letters(path)}
        assert written == set(_spelt_out(ranges)), names


def _letters(path: Path) -> list[str]:
    docstring = ast.get_docstring(ast.parse(path.read_text()), clean=False) or ""
    return re.findall(r"^  ([A-Z]\d+) ", docstring, re.MULTILINE)


def _spelt_out(ranges: str) -> Iterator[str]:
    """`A1-A3, H1` as A1, A2, A3, H1."""
    for letter, first, last in re.findall(r"([A-Z])(\d+)(?:-[A-Z](\d+))?", ranges):
        yield from (f"{letter}{number}" for number in range(int(first), int(last or first) + 1))
