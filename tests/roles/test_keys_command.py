"""`softstate keys` from the outside: what it prints, and which directory it means."""

import json
import re
from pathlib import Path

import pytest

from bus.clock import wall_s
from bus.errors import ConfigError
from bus.keys import listed, load_security
from roles.commands.keys import default_directory, main

CLUSTER_TOML = 'hubs = ["tcp://127.0.0.1:7000"]\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SOFTSTATE_KEYS", raising=False)
    monkeypatch.delenv("SOFTSTATE_CONFIG", raising=False)
    return tmp_path


def test_first_keys_come_with_the_lines_for_the_configuration(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new"]) == 0
    assert capsys.readouterr().out == (
        "made the cluster's keys in keys; put this into cluster.toml:\n"
        '[keys]\ndirectory = "keys"\n'
    )
    security = load_security(here / "keys")
    assert security.allowed.may(security.public, "control")


def test_linked_service_may_not_control_unless_told_so(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["new"])
    main(["new", "web-shop"])
    main(["new", "operator", "--may", "listen, control"])
    assert {entry.name: entry.may for entry in listed(here / "keys")} == {
        "component": {"*"},
        "web-shop": {"publish", "listen", "lease", "session"},
        "operator": {"listen", "control"},
    }
    assert capsys.readouterr().err == ""


def test_permission_that_nothing_asks_for_is_noted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["new"])
    main(["new", "web", "--may", "publsh"])
    assert capsys.readouterr().err == (
        'note: softstate itself never asks for "publsh"; did you mean "publish"?\n'
    )


def test_list_shows_each_key_and_where_its_secret_is(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["new", "--directory", "k"])
    main(["new", "web", "--directory", "k"])
    (here / "k" / "web.secret").unlink()
    public = {
        name: (here / "k" / f"{name}.public").read_text().strip() for name in ("component", "web")
    }
    capsys.readouterr()

    main(["list", "--directory", "k"])
    assert capsys.readouterr().out == (
        f"component  {public['component']}  *\n"
        f"web        {public['web']}  lease, listen, publish, session\n"
    )
    main(["list", "--json", "--directory", "k"])
    assert json.loads(capsys.readouterr().out) == {
        "keys": [
            {
                "name": "component",
                "public": public["component"],
                "may": ["*"],
                "secret_here": True,
            },
            {
                "name": "web",
                "public": public["web"],
                "may": ["lease", "listen", "publish", "session"],
                "secret_here": False,
            },
        ]
    }


def test_revoked_key_is_gone_and_cannot_be_revoked_again(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["new"])
    main(["new", "web"])
    capsys.readouterr()
    assert main(["revoke", "web"]) == 0
    assert capsys.readouterr().out == "revoked web; every process cuts it off within 10 s\n"
    assert [entry.name for entry in listed(here / "keys")] == ["component"]
    with pytest.raises(ConfigError, match="no key web; see `softstate keys list`"):
        main(["revoke", "web"])


def test_key_of_the_cluster_itself_is_revoked_only_if_that_is_meant(here: Path) -> None:
    main(["new"])
    main(["new", "web"])
    with pytest.raises(ConfigError, match="all of them are cut off from each other; if you mean"):
        main(["revoke", "component"])
    assert [entry.name for entry in listed(here / "keys")] == ["component", "web"]
    assert main(["revoke", "component", "--yes"]) == 0
    assert [entry.name for entry in listed(here / "keys")] == ["web"]


def test_service_key_before_the_cluster_has_keys_is_refused(here: Path) -> None:
    (here / "keys").mkdir()
    with pytest.raises(ConfigError, match="keys has no cluster key yet; first run"):
        main(["new", "web"])


def test_directory_comes_from_the_environment_then_the_configuration_then_here(here: Path) -> None:
    found = [default_directory({})]
    (here / "cluster.toml").write_text("hubs = []\n[keys]\ndirectory = 'secrets'\n")
    found += [default_directory({}), default_directory({"SOFTSTATE_KEYS": "/k"})]
    assert found == ["keys", "secrets", "/k"]


# The key ring.


def ring(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["ring", "--json", *words]) == 0
    rows: list[dict[str, object]] = json.loads(capsys.readouterr().out)["keys"]
    return rows


def test_rotate_makes_a_ring_and_then_renews_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rotate", "--ring", "r.keys"]) == 0
    told = capsys.readouterr().out
    first = ring(capsys, "--ring", "r.keys")
    assert [row["state"] for row in first] == ["active", "staged"]
    assert told == (
        f"made r.keys: {first[0]['id']} signs, {first[1]['id']} will be next\n"
        "on several machines: bring the file to each of them before you rotate again\n"
    )
    assert (here / "r.keys").stat().st_mode & 0o777 == 0o600

    assert main(["rotate", "--ring", "r.keys"]) == 0
    told = capsys.readouterr().out
    second = ring(capsys, "--ring", "r.keys")
    assert [row["state"] for row in second] == ["retiring", "active", "staged"]
    assert [row["id"] for row in second[:2]] == [row["id"] for row in first]
    assert told == (
        f"r.keys: {second[1]['id']} signs now, {second[2]['id']} will be next\n"
        "on several machines: bring the file to each of them before you rotate again\n"
    )


def test_rotation_soon_after_another_is_noted(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["rotate", "--ring", "r.keys"])
    assert capsys.readouterr().err == ""
    main(["rotate", "--ring", "r.keys"])
    assert "was staged only" in capsys.readouterr().err

    text = (here / "r.keys").read_text()
    (here / "r.keys").write_text(re.sub("made_wall_s = .*", "made_wall_s = 1000", text))
    main(["rotate", "--ring", "r.keys"])
    assert capsys.readouterr().err == ""


def test_ring_is_listed_without_its_secrets(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["rotate", "--ring", "r.keys"])
    main(["rotate", "--ring", "r.keys"])
    secrets = re.findall('secret = "(.*)"', (here / "r.keys").read_text())
    assert len(secrets) == 3
    capsys.readouterr()
    main(["ring", "--ring", "r.keys"])
    main(["ring", "--ring", "r.keys", "--json"])
    out = capsys.readouterr().out
    assert [secret for secret in secrets if secret[:16] in out] == []
    assert re.search(r"^[0-9a-f]{8}  retiring  made \d+ s ago, signed until \d+ s ago$", out, re.M)
    assert re.search(r"^[0-9a-f]{8}  active    made \d+ s ago$", out, re.M)


def test_ring_is_the_configuration_s_unless_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "cluster.toml").write_text(CLUSTER_TOML)
    assert main(["rotate"]) == 0
    assert [row["state"] for row in ring(capsys)] == ["active", "staged"]
    assert (here / ".softstate" / "sessions.keys").is_file()

    (here / "other.toml").write_text(f'{CLUSTER_TOML}[sessions]\nkey_ring = "mine.keys"\n')
    assert main(["rotate", "--config", "other.toml"]) == 0
    assert (here / "mine.keys").is_file()


def test_key_is_dropped_by_the_lifetime_that_the_configuration_allows(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Retired three days ago: gone if sessions live for a day; kept if nobody says how long."""
    main(["rotate", "--ring", "r.keys"])
    main(["rotate", "--ring", "r.keys"])
    path = here / "r.keys"
    retired = int(wall_s()) - 3 * 86_400
    path.write_text(
        re.sub("retired_wall_s = [1-9].*", f"retired_wall_s = {retired}", path.read_text())
    )
    gone = ring(capsys, "--ring", "r.keys")[0]["id"]

    (here / "kept.keys").write_text(path.read_text())
    (here / "kept.keys").chmod(0o600)
    main(["rotate", "--ring", "kept.keys"])
    assert len(ring(capsys, "--ring", "kept.keys")) == 4

    (here / "cluster.toml").write_text(f"{CLUSTER_TOML}[sessions]\nttl_s_max = 86400\n")
    main(["rotate", "--ring", "r.keys"])
    assert f"dropped, as nothing that they signed still lives: {gone}\n" in capsys.readouterr().out
    assert len(ring(capsys, "--ring", "r.keys")) == 3


def test_ring_that_is_missing_or_damaged_is_a_sentence(here: Path) -> None:
    with pytest.raises(ConfigError, match=r"no key ring.* make it with `softstate keys rotate`"):
        main(["ring", "--ring", "r.keys"])
    (here / "r.keys").touch(mode=0o600)
    for action in ("ring", "rotate"):
        with pytest.raises(ConfigError, match=r"r\.keys:1: exactly one key must be active, not 0"):
            main([action, "--ring", "r.keys"])
    assert (here / "r.keys").read_text() == ""


def test_no_configuration_and_no_ring_named_says_so(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(here))
    with pytest.raises(ConfigError, match="no cluster found"):
        main(["rotate"])
