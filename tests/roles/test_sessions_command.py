"""`softstate sessions nines` from the outside: what it prints, and what it refuses.

Method: the command's own function, whole outputs compared; once as a process, through its name.
"""

import json
import subprocess

import pytest

from roles.commands.sessions import duration_s, main, spoken
from roles.invoke import environment, softstate

EXAMPLE = ["nines", "--mttf", "81m", "--write-interval", "5m", "--wq", "3"]


def test_example_of_the_paper_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(EXAMPLE) == 0
    assert capsys.readouterr().out == (
        "A brick lives 1.35h, a session is written every 5m: 16.2 writes to a crash.\n"
        "With WQ = 3, one session in 1,002 is lost before its next write: 3.00 nines.\n"
        "For 4 nines a brick must live 3.096h (37.16 times as long as the time between writes).\n"
    )


def test_example_of_the_paper_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*EXAMPLE, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told) == [
        "mttf_s", "write_interval_s", "wq", "ratio", "loss", "availability", "nines",
        "next_nines", "next_ratio", "next_mttf_s",
    ]  # fmt: skip
    assert (told["mttf_s"], told["write_interval_s"], told["wq"]) == (4860.0, 300.0, 3)
    assert told["ratio"] == pytest.approx(16.2)
    assert told["availability"] == pytest.approx(0.999, abs=5e-6)
    assert told["loss"] == pytest.approx(1 - told["availability"], rel=1e-6)
    assert told["nines"] == pytest.approx(3.0, abs=0.001)
    assert told["next_nines"] == 4
    assert told["next_mttf_s"] == pytest.approx(37.2 * 300, rel=0.005)


def test_exact_nines_count_in_full_and_near_ones_are_not_rounded_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["nines", "--mttf", "3s", "--write-interval", "1s", "--wq", "2"])
    assert ": 1.00 nines.\nFor 2 nines " in capsys.readouterr().out
    main(["nines", "--mttf", "2.999s", "--write-interval", "1s", "--wq", "2"])
    assert ": 0.99 nines.\nFor 1 nine " in capsys.readouterr().out


def test_two_copies_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    main(["nines", "--mttf", "1d", "--write-interval", "1h", "--json"])
    assert json.loads(capsys.readouterr().out)["wq"] == 2


def test_extremes_are_told_in_few_words(capsys: pytest.CaptureFixture[str]) -> None:
    main(["nines", "--mttf", "300000d", "--write-interval", "1ms", "--wq", "8"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == (
        "With WQ = 8, one session in 5.05e+102 is lost before its next write: 102.70 nines."
    )
    assert len(lines) == 2, "no float can tell of more"
    main(["nines", "--mttf", "1ms", "--write-interval", "30d"])
    assert "one session in 1.00 is lost" in capsys.readouterr().out


def test_table_stands_beside_the_paper_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nines", "--table"]) == 0
    assert capsys.readouterr().out == (
        "MTTF of a brick, in times between writes of a session (in brackets, the paper's)\n"
        "nines    WQ = 2               WQ = 3\n"
        "    1    3.00 (3)             2.00 (2)\n"
        "    2   12.65 (12.7)          6.47 (6.5)\n"
        "    3   43.22 (43.3)         16.19 (16.2)\n"
        "    4  139.92 (140)          37.16 (37.2)\n"
        "    5  445.71 (446.8)        82.35 (82.4)\n"
    )
    assert main(["nines", "--table", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["nines"] for row in rows] == [1, 2, 3, 4, 5]
    for row in rows:
        assert row["wq_2"] == pytest.approx(row["paper_wq_2"], rel=0.005)
        assert row["wq_3"] == pytest.approx(row["paper_wq_3"], rel=0.005)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("1.5h", 5400), ("30d", 2_592_000), ("250ms", 0.25)],
)
def test_length_of_time_is_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--mttf", "81", "--write-interval", "5m"], "--mttf: '81' is no length of time"),
        (["--mttf", "-1s", "--write-interval", "5m"], "--mttf"),
        (["--mttf", "1e9s", "--write-interval", "5m"], "is no length of time: a number and its"),
        (["--mttf", "٣s", "--write-interval", "5m"], "is no length of time"),
        (["--mttf", "nans", "--write-interval", "5m"], "is no length of time"),
        (["--mttf", "5 m", "--write-interval", "5m"], "is no length of time"),
        (["--mttf", "0s", "--write-interval", "5m"], "'0s': longer than nothing, at most"),
        (["--mttf", "5m", "--write-interval", "0m"], "'0m': longer than nothing, at most"),
        (["--mttf", "999999999d", "--write-interval", "5m"], "at most 1000 years"),
        (["--mttf", "5m"], "error: give --write-interval, as in 81m; or --table"),
        ([], "error: give --mttf and --write-interval, as in 81m; or --table"),
        (["--mttf", "5m", "--write-interval", "5m", "--wq", "0"], "'0': a whole number from 1"),
        (["--mttf", "5m", "--write-interval", "5m", "--wq", "9"], "'9': a whole number from 1"),
        (["--mttf", "5m", "--write-interval", "5m", "--wq", "2.5"], "'2.5': a whole number"),
        (["--mttf", "5m", "--write-interval", "5m", "--wq", "1" * 5000], "a whole number from 1"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["nines", *words])
    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0001, "0.1ms"), (0.5, "500ms"), (90, "1.5m"), (7200, "2h"), (1e9, "11574d")],
)
def test_length_of_time_is_told_in_a_fitting_unit(seconds: float, text: str) -> None:
    assert spoken(seconds) == text


@pytest.mark.slow
def test_command_has_its_name() -> None:
    done = subprocess.run(
        softstate("sessions", *EXAMPLE, "--json"),
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["wq"] == 3
