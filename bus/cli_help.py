"""The text of `softstate --help`: what there is to type, and what each of it does.

Each line is the first of a module's docstring, read from its source. (H1: no module is imported
for it; some are heavy, and one of them patches the standard library.)
"""

import ast
import importlib.util
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

COLUMNS_MIN = 60

_PREAMBLE = """\
softstate: a message bus for soft-state services, and the cluster that lives on it.

usage: softstate COMMAND [options]

New here?
  softstate up           starts a small cluster on this machine; Ctrl-C ends it
  softstate status       shows every process of it, from another terminal
  softstate COMMAND -h   says more about one command
"""

_ROLES_HEADING = "Roles, which node agents start for you (by hand: softstate ROLE --id ROLE-1)"

_EPILOGUE = """\
A command finds its cluster by --config FILE, else by SOFTSTATE_CONFIG, else in ./cluster.toml,
else it takes your last `softstate up`.
"""


def help_text(commands: Mapping[str, str], roles: Mapping[str, str], columns: int) -> str:
    """All of it. The mappings are from names to `package.module:function`."""
    columns = max(COLUMNS_MIN, columns)
    sections = [
        _PREAMBLE,
        _section("Commands", commands, columns),
        _section(_ROLES_HEADING, roles, columns),
        _EPILOGUE,
    ]
    return "\n".join(section for section in sections if section)


def _section(heading: str, places: Mapping[str, str], columns: int) -> str:
    """A heading, and below it each name with the first line of its module's docstring."""
    if not places:
        return ""
    width = max(map(len, places)) + 5
    lines = [
        textwrap.fill(
            summary(place),
            columns,
            initial_indent=f"  {name}".ljust(width),
            subsequent_indent=" " * width,
        )
        for name, place in places.items()
    ]
    return "\n".join([heading, *lines]) + "\n"


def summary(place: str) -> str:
    """The first line of the docstring of `package.module:function`'s module, or why not."""
    source = _source(place.partition(":")[0])
    if source is None:
        return "(its source is not here)"
    try:
        text = ast.get_docstring(ast.parse(source.read_bytes()))
    except (OSError, SyntaxError, ValueError):
        return "(its source cannot be read)"
    first = (text or "").partition("\n")[0]
    first = re.sub(r"^`softstate [^`]*`: ", "", first)  # The name stands beside it already.
    return (first[:1].upper() + first[1:]).removesuffix(".") or "(it does not say what it does)"


def _source(module: str) -> Path | None:
    """Where a module's text is. H1: only the top package is looked up, and that imports nothing."""
    top, *below = module.split(".")
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not below:
        return Path(spec.origin) if spec.origin else None
    for root in spec.submodule_search_locations or []:
        path = Path(root, *below)
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None
