"""The secret of exploration: given, or made once and kept private."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ranker.errors import ConfigError
from ranker.secret import load_secret

LONG = "sixteen bytes or more"


def test_the_environment_comes_first(tmp_path: Path) -> None:
    assert load_secret({"KEY": LONG}, "KEY", tmp_path / "secret") == LONG.encode()
    assert not (tmp_path / "secret").exists()


def test_without_one_a_private_file_is_made_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "secret"
    first = load_secret({}, "KEY", file)
    assert load_secret({}, "KEY", file) == first and len(first) >= 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [each.name for each in file.parent.iterdir()] == ["secret"]


def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        secrets = set(pool.map(lambda _: load_secret({}, "KEY", tmp_path / "secret"), range(32)))
    assert len(secrets) == 1


def test_a_secret_that_is_too_short_is_refused_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush\n")
    for environment in ({"KEY": "hush"}, {}):
        with pytest.raises(ConfigError, match="has 4 bytes") as caught:
            load_secret(environment, "KEY", tmp_path / "secret")
        assert "hush" not in str(caught.value)


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be read or made"):
        load_secret({}, "KEY", tmp_path / "file" / "secret")
