"""The Locust users, run as a person runs them: by the command of the README, on a real cluster.

Locust patches the standard library on import, so it has a process of its own.
"""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from roles.stub import STUB
from roles.testing import LocalCluster

pytestmark = pytest.mark.slow

LOADTEST = Path(__file__).parent.parent.parent / "loadtest"
USERS = str(LOADTEST / "locustfile.py")
SHAPES = str(LOADTEST / "locust_shapes.py")
RUN_S_MAX = 60.0


def locust(local: LocalCluster, csv_prefix: Path, *arguments: str) -> str:
    """What it says; the CSV files are at `csv_prefix`."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "locust", "--headless", "--csv", str(csv_prefix)),
            *("--html", f"{csv_prefix}.html", *arguments),
        ],
        env={**os.environ, "SOFTSTATE_CONFIG": local.cluster.config.source},
        cwd=csv_prefix.parent,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    # 1: some request failed, for instance took too long on a busy machine.
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_locust_users_and_shapes_run_and_tell_goodput(tmp_path: Path) -> None:
    # A timeout that nothing exceeds however busy the machine is: none is late, and none in conflict
    # with a write of its own that was given up.
    lax = {"sessions": {"timeout_ms": 5000.0}}
    with LocalCluster(hubs=2, nodes=2, bricks=4, preset="fast", settings=lax) as local:
        said = locust(local, tmp_path / "a", "-f", USERS, "-u", "20", "-r", "20", "-t", "5s")
        assert "goodput" in said
        stubs = [row.id for row in local.components() if row.role == STUB]
        assert len(stubs) == 1, "all users share one, as in a web server"
        with (tmp_path / "a_goodput.csv").open() as file:
            rows = list(csv.DictReader(file))
        offered = sum(int(row["offered"]) for row in rows)
        goodput = sum(int(row["goodput"]) for row in rows)
        assert offered > 100
        assert goodput > 0.9 * offered
        with (tmp_path / "a_stats.csv").open() as file:
            stats = {row["Name"]: row for row in csv.DictReader(file)}
        # Locust writes it once a second, and the last time somewhat before the end.
        assert 0 < int(stats["Aggregated"]["Request Count"]) <= offered
        assert int(stats["Aggregated"]["Failure Count"]) <= offered - goodput
        assert {"write", "read"} <= stats.keys()
        with (tmp_path / "a_failures.csv").open() as file:
            failures = {row["Error"].partition("(")[0] for row in csv.DictReader(file)}
        assert failures <= {"LateError", "SystemOverloaded"}, "nothing lost, nothing mixed up"

        page = (tmp_path / "a.html").read_text()
        assert "Goodput next to offered load" in page
        assert page.count("<polyline") == 2

        spike = ("--shape", "spike", "--shape-users", "20", "--shape-s", "2")
        said = locust(local, tmp_path / "b", "-f", f"{USERS},{SHAPES}", *spike)
        assert "goodput" in said
