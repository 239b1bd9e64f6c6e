"""How many workers: a number from the command line or the file, within limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranker.cli import parser
from ranker.commands.serve import config_of
from ranker.errors import ConfigError


def test_it_is_one_unless_said_otherwise_and_the_option_goes_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("workers: 3\n")
    for words, expected in (([], 1), (["--config", str(file)], 3), (["--config", str(file), "--workers", "2"], 2)):
        assert config_of(parser().parse_args(["serve", *words])).workers == expected


@pytest.mark.parametrize("number", ["0", "-1", "two"])
def test_what_is_no_number_of_workers_is_a_wrong_call(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["serve", f"--workers={number}"])
    assert "--workers" in capsys.readouterr().err


def test_too_many_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="workers: Expected `int` <= 64, not 65"):
        config_of(parser().parse_args(["serve", "--workers", "65"]))
