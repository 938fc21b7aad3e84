"""Keys are made, listed, revoked and loaded; an unsound list never opens the door.

Method: real files in a temporary directory; key pairs come from a counter, not from chance.
"""

import fcntl
import os
import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from bus.allow_list import (
    HEADING,
    Allowed,
    is_key,
    parse_allowed,
    takes_away,
    with_entry,
    without_entry,
)
from bus.errors import ConfigError
from bus.keys import AllowList, create_cluster, create_key, listed, load_security, revoke
from tests.descriptors import no_descriptors


def key(letter: str) -> str:
    return letter * 40


def pairs() -> Callable[[], tuple[str, str]]:
    """Pairs `aa…/AA…`, `bb…/BB…` and so on."""
    numbers = count()

    def new_keypair() -> tuple[str, str]:
        letter = chr(ord("a") + next(numbers))
        return key(letter), key(letter.upper())

    return new_keypair


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A cluster's keys: the cluster's own is a, `component` is b."""
    create_cluster(tmp_path / "keys", pairs())
    return tmp_path / "keys"


def allowed(name: str, letter: str, *may: str) -> Allowed:
    return Allowed(name=name, public=key(letter), may=frozenset(may))


COMPONENT = f'[component]\npublic = "{key("b")}"\nmay = ["*"]\n'
WEB = f'[web]\npublic = "{key("w")}"\nmay = ["listen", "publish"]\n'


# The text of the list.


def test_list_is_read_by_public_key() -> None:
    assert parse_allowed(COMPONENT + WEB, "allowed.toml") == {
        key("b"): allowed("component", "b", "*"),
        key("w"): allowed("web", "w", "listen", "publish"),
    }


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", ":1: lists nobody; make a key with `softstate keys new`"),
        ("[Web]", ":1: Web: a name has small letters, digits and hyphens only"),
        ("web = 1", ":1: web: must be a table, as in [web]"),
        (WEB.rpartition("may")[0], ":1: web: may is missing, and has no default"),
        (WEB[:-4], ":3: not TOML: Unterminated string"),
        (
            "[web]\npublic = 'short'\nmay = []",
            ":2: web.public: not a key; it has 40 characters, as in NAME.public",
        ),
        (
            WEB + WEB.replace("web", "two"),
            ":5: two.public: is the key of web too; remove one of the two",
        ),
        (
            WEB.replace('"listen"', '"listen, publish"'),
            ':3: web.may[0]: "listen, publish" is no permission: a word, or "*"',
        ),
        (WEB + "may_not = []", ':4: web.may_not: unknown key; did you mean "may"?'),
    ],
)
def test_unsound_list_is_refused_with_its_place(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_allowed(text, "allowed.toml")
    assert str(caught.value) == f"allowed.toml{sentence}"


def test_every_cut_of_a_list_is_refused_or_gives_nothing_extra() -> None:
    text = HEADING + WEB + COMPONENT
    whole = parse_allowed(text, "")
    for length in range(len(text)):
        try:
            part = parse_allowed(text[:length], "")
        except ConfigError:
            continue
        assert part.items() <= whole.items(), f"cut at {length}"


def test_permission_is_given_only_if_written_or_by_a_star() -> None:
    some, every, none = allowed("a", "a", "lease"), allowed("b", "b", "*"), allowed("c", "c")
    asked = ["", "lease", "control", "*"]
    assert [[entry.allows(word) for word in asked] for entry in (some, every, none)] == [
        [True, True, False, False],
        [True, True, True, True],
        [True, False, False, False],
    ]


def test_less_is_noticed_and_more_is_not() -> None:
    def less(before: list[Allowed], after: list[Allowed]) -> bool:
        return takes_away({e.public: e for e in before}, {e.public: e for e in after})

    one, two, star = allowed("a", "a", "x"), allowed("a", "a", "x", "y"), allowed("a", "a", "*")
    assert [less([two], [one]), less([one], []), less([star], [two])] == [True] * 3
    assert [less([one], [two]), less([two], [star]), less([], [one])] == [False] * 3


def test_removing_an_entry_leaves_every_other_line_alone() -> None:
    text = f"# top\n{COMPONENT}# about web\n{WEB}# about last\n{WEB.replace('w', 'x')}# end\n"
    after = f"# top\n{COMPONENT}# about web\n# about last\n{WEB.replace('w', 'x')}# end\n"
    assert without_entry(text, "web", "allowed.toml") == after


def test_removing_what_is_not_there_or_the_last_is_refused() -> None:
    for name, sentence in {
        "shop": "allowed.toml: no key shop; see `softstate keys list`",
        "web": "allowed.toml: web is the only key; make another before revoking it",
    }.items():
        with pytest.raises(ConfigError) as caught:
            without_entry(WEB, name, "allowed.toml")
        assert str(caught.value) == sentence


def test_entry_written_in_an_unusual_way_is_left_to_its_writer() -> None:
    text = f'web = {{public = "{key("w")}", may = []}}\n{COMPONENT}'
    with pytest.raises(ConfigError, match=r"cannot find the lines of \[web\]; remove them by hand"):
        without_entry(text, "web", "allowed.toml")


def test_adding_a_name_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is a key web already"):
        with_entry(WEB, allowed("web", "z"), "allowed.toml")


def test_key_has_forty_characters_of_z85() -> None:
    texts = ["a" * 40, "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID", "a" * 39, "a" * 41, "~" * 40]
    assert [is_key(text) for text in texts] == [True, True, False, False, False]


# The directory.


def test_first_keys_are_a_cluster_pair_and_a_component_that_may_everything(directory: Path) -> None:
    files = {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}
    assert files == {
        ".lock": 0o600,
        "allowed.toml": 0o644,
        "cluster.public": 0o644,
        "cluster.secret": 0o600,
        "component.public": 0o644,
        "component.secret": 0o600,
    }
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "allowed.toml").read_text() == f"{HEADING}\n{COMPONENT}"


def test_loaded_security_has_both_pairs_and_the_list(directory: Path) -> None:
    security = load_security(directory)
    assert (security.server_public, security.server_secret) == (key("a"), key("A"))
    assert (security.public, security.secret) == (key("b"), key("B"))
    assert security.allowed.may(key("b"), "control")


def test_linked_service_needs_only_its_pair_and_the_public_half(directory: Path) -> None:
    create_key(directory, "web", ["publish"], lambda: (key("w"), key("W")))
    for name in ("cluster.secret", "allowed.toml"):
        (directory / name).unlink()
    security = load_security(directory, "web", connects_only=True)
    assert (security.server_public, security.server_secret) == (key("a"), "")
    assert (security.public, security.secret) == (key("w"), key("W"))
    assert not security.allowed.may(key("w"), "")


def spoil(directory: Path, what: str) -> None:
    match what:
        case "directory":
            directory.rename(directory.with_name("moved"))
        case "secret":
            (directory / "component.secret").unlink()
        case "cluster":
            (directory / "cluster.secret").unlink()
        case "list":
            (directory / "allowed.toml").unlink()
        case "key":
            (directory / "component.public").write_text("short\n")
        case "bytes":
            (directory / "component.secret").write_bytes(b"\xff" * 40)
        case "mode":
            (directory / "cluster.secret").chmod(0o640)
        case "unlisted":
            (directory / "allowed.toml").write_text(WEB)
        case _:
            raise AssertionError(what)


COPY = "missing; copy it from where the keys were made, or make keys with `softstate keys new`"


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        (
            "directory",
            "{d}: no such directory of keys; make it with `softstate keys new --directory {d}`",
        ),
        ("secret", "{d}/component.secret: " + COPY),
        ("cluster", "{d}/cluster.secret: " + COPY),
        ("list", "{d}/allowed.toml: " + COPY),
        (
            "key",
            "{d}/component.public: not a key (40 characters of z85 on one line); copy it again "
            "from where the keys were made",
        ),
        ("bytes", "{d}/component.secret: not UTF-8; is it the right file?"),
        (
            "mode",
            "{d}/cluster.secret: others may read this secret; run `chmod 600 {d}/cluster.secret`",
        ),
        (
            "unlisted",
            "{d}/allowed.toml: the key component is not listed, so nobody would admit us; was it "
            "revoked? Make another with `softstate keys new`",
        ),
    ],
)
def test_unusable_keys_are_refused_with_what_to_do(
    directory: Path, what: str, sentence: str
) -> None:
    spoil(directory, what)
    with pytest.raises(ConfigError) as caught:
        load_security(directory)
    assert str(caught.value) == sentence.format(d=directory)


def test_keys_are_never_written_over(directory: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in directory.iterdir()}

    (directory / "stray.secret").write_text("somebody's")
    before = contents()
    with pytest.raises(ConfigError, match="already has its keys"):
        create_cluster(directory, pairs())
    with pytest.raises(ConfigError, match="there is a key component already"):
        create_key(directory, "component", [], lambda: (key("z"), key("Z")))
    with pytest.raises(ConfigError, match="already there, and is not written over"):
        create_key(directory, "stray", [], lambda: (key("z"), key("Z")))
    assert contents() == before


def test_interrupted_first_call_is_completed_by_the_next(directory: Path) -> None:
    for name in ("allowed.toml", "component.public", "component.secret"):
        (directory / name).unlink()
    create_cluster(directory, lambda: (key("z"), key("Z")))
    security = load_security(directory)
    assert (security.server_public, security.public) == (key("a"), key("z"))


def test_lost_list_is_not_begun_anew_by_another_key(directory: Path) -> None:
    (directory / "allowed.toml").unlink()
    with pytest.raises(ConfigError, match=r"allowed\.toml: missing"):
        create_key(directory, "web", [], lambda: (key("w"), key("W")))


@pytest.mark.parametrize("name", ["cluster", "../web", "Web", "", "a" * 65])
def test_key_with_an_unfit_name_is_refused(directory: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name of a key"):
        create_key(directory, name, [], pairs())


def test_revoked_key_is_off_the_list_and_its_pair_is_gone(directory: Path) -> None:
    create_key(directory, "web", ["publish"], lambda: (key("w"), key("W")))
    assert listed(directory) == [allowed("component", "b", "*"), allowed("web", "w", "publish")]
    revoke(directory, "web")
    assert listed(directory) == [allowed("component", "b", "*")]
    assert not list(directory.glob("web.*"))


def test_two_writers_at_once_lose_no_entry(directory: Path) -> None:
    letters = "cdef"
    together = threading.Barrier(len(letters))

    def make(letter: str) -> None:
        together.wait(timeout=10)
        create_key(directory, f"key-{letter}", [], lambda: (key(letter), key(letter.upper())))

    threads = [threading.Thread(target=make, args=(letter,)) for letter in letters]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    names = {entry.name for entry in listed(directory)}
    assert names == {"component", *(f"key-{letter}" for letter in letters)}


def test_directory_that_stays_locked_is_given_up(directory: Path) -> None:
    with open(directory / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(ConfigError, match="another `softstate keys` is busy there; try again"):
            revoke(directory, "component", wait_s_max=0.05)


# The live list.


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def live(directory: Path, reports: list[str]) -> AllowList:
    return AllowList(directory / "allowed.toml", reports.append)


def test_live_list_knows_names_and_denies_strangers(live: AllowList) -> None:
    component, stranger = key("b"), key("s")
    assert [live.known(component), live.name(component), live.may(component, "x")] == [
        True,
        "component",
        True,
    ]
    assert [live.known(stranger), live.name(stranger), live.may(stranger, "")] == [False, "", False]


def test_new_key_is_admitted_and_a_revoked_one_is_cut(directory: Path, live: AllowList) -> None:
    assert (live.refresh(), live.version) == (False, 1)
    create_key(directory, "web", ["publish"], lambda: (key("w"), key("W")))
    assert (live.refresh(), live.version, live.may(key("w"), "publish")) == (False, 2, True)
    revoke(directory, "web")
    assert (live.refresh(), live.version, live.may(key("w"), "")) == (True, 3, False)


def test_lost_permission_is_cut(directory: Path, live: AllowList) -> None:
    text = (directory / "allowed.toml").read_text()
    (directory / "allowed.toml").write_text(text.replace('"*"', '"publish"'))
    assert (live.refresh(), live.may(key("b"), "control")) == (True, False)


@pytest.mark.parametrize("content", [b"", b"[web]\npublic = ", b"\xff\xfe", b'[x]\nmay = ["*"]\n'])
def test_broken_list_keeps_the_old_one_and_is_reported_once(
    directory: Path, live: AllowList, reports: list[str], content: bytes
) -> None:
    path = directory / "allowed.toml"
    before = path.read_bytes()
    path.write_bytes(content)
    assert [live.refresh(), live.refresh(), live.refresh()] == [False, False, False]
    assert [report[:31] for report in reports] == ["the allow-list stays as it was:"]
    assert (live.may(key("b"), "control"), live.version) == (True, 1)

    path.write_bytes(before + WEB.encode())
    assert (live.refresh(), live.may(key("w"), "publish"), len(reports)) == (False, True, 1)


def test_missing_list_keeps_the_old_one_and_is_reported_once(
    directory: Path, live: AllowList, reports: list[str]
) -> None:
    (directory / "allowed.toml").unlink()
    assert [live.refresh(), live.refresh()] == [False, False]
    assert (len(reports), live.may(key("b"), "control")) == (1, True)


def test_list_replaced_by_one_of_same_size_and_time_is_read(
    directory: Path, live: AllowList
) -> None:
    path = directory / "allowed.toml"
    times = path.stat().st_mtime_ns
    other = directory / "other"
    other.write_text(path.read_text().replace(key("b"), key("c")))
    os.utime(other, ns=(times, times))
    other.replace(path)
    assert (live.refresh(), live.known(key("b")), live.known(key("c"))) == (True, False, True)


def test_revocation_that_could_not_be_read_at_first_is_seen_later(
    directory: Path, live: AllowList, reports: list[str]
) -> None:
    create_key(directory, "web", ["publish"], lambda: (key("w"), key("W")))
    live.refresh()
    revoke(directory, "web")
    with no_descriptors():
        assert [live.refresh(), live.refresh()] == [False, False]
    assert [report.partition(": ")[2] for report in reports] == [
        f"{directory}/allowed.toml: Too many open files; check who owns it and its mode"
    ]
    assert (live.refresh(), live.may(key("w"), "publish")) == (True, False)
