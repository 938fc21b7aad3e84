"""`softstate keys` from the outside: what it prints, and which directory it means."""

import json
from pathlib import Path

import pytest

from bus.errors import ConfigError
from bus.keys import listed, load_security
from roles.commands.keys import default_directory, main


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
