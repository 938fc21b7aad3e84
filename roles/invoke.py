"""How a process of ours starts another: the same interpreter, the same packages. No wiring.

Not through the `softstate` script, which need not be on the PATH, and with `-P`, so that a
directory `bus` or `roles` where the user happens to stand is not taken for ours.
"""

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path

import bus

_ROOT = str(Path(bus.__file__).parent.parent)


def softstate(*words: str) -> list[str]:
    """The command line of `softstate WORDS`."""
    return [sys.executable, "-P", "-m", "bus.cli", *words]


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`environ`, and where to find our packages if they are not installed but merely lie there."""
    installed = [*site.getsitepackages(), site.getusersitepackages()]
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if _ROOT not in paths and _ROOT not in installed:
        paths.insert(0, _ROOT)
    return {**environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
