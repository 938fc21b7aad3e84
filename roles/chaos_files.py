"""Whether a path on the command line of another process is a file of ours. Looks only.

A path means what it means where that process stands: in its directory, and in its own view of the
file system, where another file may be mounted under the same name.

What always holds:
  S1  A path is followed as that process would follow it; where that is in doubt, it is not ours.
"""

import os
from pathlib import PurePath


def is_same_file(pid: int, path: str, ours: str) -> bool:
    """Whether `path`, to process `pid`, is the file that `ours` is to us."""
    if not path or not ours:
        return False
    near = f"/proc/{pid}/{'root' if path.startswith('/') else 'cwd'}"
    try:
        if not _sees_what_we_see(pid) and _may_lead_out(near, PurePath(path)):  # S1
            return False
        return os.path.samefile(f"{near}/{path}", ours)
    except (OSError, ValueError):
        return False  # It ended meanwhile, or is another user's, or there is no such file.


def _sees_what_we_see(pid: int) -> bool:
    return os.path.samefile(f"/proc/{pid}/ns/mnt", "/proc/self/ns/mnt") and os.path.samefile(
        f"/proc/{pid}/root", "/proc/self/root"
    )


def _may_lead_out(near: str, path: PurePath) -> bool:
    """A symbolic link with an absolute path would be followed in our view and not in its own, and
    `..` may lead out of its root."""
    steps = [path, *path.parents]
    return ".." in path.parts or any(os.path.islink(f"{near}/{step}") for step in steps)
