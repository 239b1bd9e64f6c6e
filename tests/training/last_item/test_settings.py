"""`configs/last_item.yaml`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranker.config import config_dir
from ranker.config_file import read_yaml
from ranker.errors import ConfigError
from training.last_item.settings import FitSettings, load_fit


def test_the_shipped_file_says_the_defaults_and_all_of_them() -> None:
    assert load_fit() == FitSettings()
    assert set(read_yaml(config_dir() / "last_item.yaml")) == set(FitSettings.__struct_fields__)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("widht: 64", "unknown key 'widht'; the nearest known one is 'width'"),
        ("dropout: 1.0", "dropout"),
        ("most_minutes: 0", "most_minutes"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "last_item.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint) as caught:
        load_fit(path)
    assert "\n" not in str(caught.value)
