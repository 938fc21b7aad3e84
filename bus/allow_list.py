"""Who may connect and what each may ask for: the text of `allowed.toml`. Decides only.

    [component]
    public = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
    may = ["*"]

People edit this file, so adding and removing an entry changes only the lines of that entry.

What always holds:
  A1  A text that is not a whole, sound list is refused: it never admits anybody.
  A2  A list that admits nobody is refused too. It is what an editor leaves for a moment while
      it saves, and would cut off the whole cluster.
  A3  A permission that is not written down is not given.
"""

import re

import msgspec

from bus.config_rules import Places, convert, read_tables
from bus.errors import ConfigError

EVERYTHING = "*"
COMPONENT_MAY = (EVERYTHING,)
SERVICE_MAY = ("publish", "listen", "lease", "session")
"""What a linked service gets unless told otherwise: never `control`."""

PERMISSIONS = {
    "publish": "send news through the hubs",
    "listen": "hear news from the hubs",
    "control": "start and end processes",
    "lease": "own keys and look owners up",
    "session": "read and write sessions",
    EVERYTHING: "all of these, and whatever a role asks for",
}
"""The words that softstate itself asks for. A role of your own may ask for another."""

NAME = re.compile(r"[a-z0-9-]{1,64}")
_PERMISSION = re.compile(r"\*|[a-z][a-z0-9-]{0,63}")
_KEY = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")  # 32 bytes as z85.
_HEADER = re.compile(r"\s*\[")

HEADING = """\
# Who may connect, and what each may ask for. Every process reads this file again within 2 s of
# a change; who is no longer listed is cut off. `softstate keys` writes it, and you may edit it.
"""


class Allowed(msgspec.Struct, frozen=True, kw_only=True):
    """One key that may connect."""

    name: str
    public: str
    may: frozenset[str]

    def allows(self, permission: str) -> bool:
        """Whether this key may ask for `permission`; the empty one is to be here at all."""
        return not permission or permission in self.may or EVERYTHING in self.may  # A3


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    public: str
    may: tuple[str, ...]


def is_key(text: str) -> bool:
    """Whether `text` has the form of a key: 40 characters of z85."""
    return _KEY.fullmatch(text) is not None


def parse_allowed(text: str, source: str) -> dict[str, Allowed]:
    """Each allowed key, by its public half, in the order of the file."""
    tables, lines = read_tables(text, source)  # A1: all of it is checked before any is used.
    places = Places(source, lines, {})
    allowed: dict[str, Allowed] = {}
    for name, table in tables.items():
        if not NAME.fullmatch(name):
            places.refuse((name,), "a name has small letters, digits and hyphens only")
        entry = convert(table, _Entry, (name,), places)
        if not is_key(entry.public):
            places.refuse((name, "public"), "not a key; it has 40 characters, as in NAME.public")
        if entry.public in allowed:
            other = allowed[entry.public].name
            places.refuse((name, "public"), f"is the key of {other} too; remove one of the two")
        for index, permission in enumerate(entry.may):
            if not _PERMISSION.fullmatch(permission):
                path = (name, "may", index)
                places.refuse(path, f'"{permission}" is no permission: a word, or "{EVERYTHING}"')
        allowed[entry.public] = Allowed(name=name, public=entry.public, may=frozenset(entry.may))
    if not allowed:
        raise ConfigError(f"{source}:1: lists nobody; make a key with `softstate keys new`")  # A2
    return allowed


def takes_away(before: dict[str, Allowed], after: dict[str, Allowed]) -> bool:
    """Whether some key may do less than before, so that its connections must be cut."""
    return any(
        key not in after or (EVERYTHING not in after[key].may and not old.may <= after[key].may)
        for key, old in before.items()
    )


def with_entry(text: str, entry: Allowed, source: str) -> str:
    """The text with one more entry at its end; ConfigError if the outcome would be unsound."""
    names = {other.name for other in parse_allowed(text, source).values()} if text else set()
    if entry.name in names:
        raise ConfigError(
            f"{source}: there is a key {entry.name} already; choose another name, or first run "
            f"`softstate keys revoke {entry.name}`"
        )
    may = ", ".join(f'"{permission}"' for permission in sorted(entry.may))
    before = f"{text.rstrip()}\n" if text.strip() else HEADING
    after = f'{before}\n[{entry.name}]\npublic = "{entry.public}"\nmay = [{may}]\n'
    parse_allowed(after, source)
    return after


def without_entry(text: str, name: str, source: str) -> str:
    """The text without the entry `name`: from its header to the next, comments above that kept."""
    before = {entry.name: entry for entry in parse_allowed(text, source).values()}
    if name not in before:
        raise ConfigError(f"{source}: no key {name}; see `softstate keys list`")
    if len(before) == 1:
        raise ConfigError(
            f"{source}: {name} is the only key; make another before revoking it"
        )  # A2

    lines = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if _is_header(line, name)), len(lines))
    following = range(start + 1, len(lines))
    end = next((i for i in following if _HEADER.match(lines[i])), len(lines))
    while end > start + 1 and lines[end - 1].lstrip().startswith("#"):
        end -= 1
    after = "".join(lines[:start] + lines[end:])

    del before[name]
    if {entry.name: entry for entry in parse_allowed(after, source).values()} != before:
        raise ConfigError(f"{source}: cannot find the lines of [{name}]; remove them by hand")
    return after


def _is_header(line: str, name: str) -> bool:
    return re.match(rf"""\s*\[\s*["']?{re.escape(name)}["']?\s*\]""", line) is not None
