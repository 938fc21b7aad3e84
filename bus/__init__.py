"""The message bus. Importing it decides whether compiled modules are used: all of them, or none.

`make setup` compiles the busiest modules (`.ci/compile`), and Python prefers what is compiled. So
after an edit the old code would run, and nobody would know why. If one of them is older than its
source, all run as plain Python instead; so they do where SOFTSTATE_PLAIN is set, for tests that
plant faults in them.
"""

import os
import sys
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

_ROOT = os.path.dirname(os.path.dirname(__file__))
_PACKAGES = [os.path.join(_ROOT, name) for name in ("bus", "roles")]


def _is_stale(directory: str) -> bool:
    if not os.path.isdir(directory):
        return False
    changed_at = {entry.name: entry.stat().st_mtime for entry in os.scandir(directory)}
    return any(
        changed_at.get(name.partition(".")[0] + ".py", 0.0) > at
        for name, at in changed_at.items()
        if name.endswith(".so")
    )


if os.environ.get("SOFTSTATE_PLAIN") or any(map(_is_stale, _PACKAGES)):
    for _directory in _PACKAGES:
        _finder = FileFinder(_directory, (SourceFileLoader, SOURCE_SUFFIXES))
        sys.path_importer_cache[_directory] = _finder
