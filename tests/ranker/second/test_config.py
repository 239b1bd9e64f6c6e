"""`configs/second.yaml`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ranker.config import config_dir
from ranker.config_file import read_yaml
from ranker.errors import ConfigError
from ranker.second.config import SecondConfig, load_second


def test_the_shipped_file_says_the_defaults_and_all_of_them() -> None:
    assert load_second() == SecondConfig()
    tree = read_yaml(config_dir() / "second.yaml")
    for part, kind in (([], SecondConfig()), (["training"], SecondConfig().training), (["sizes", "base"], None)):
        inner = tree
        for key in part:
            inner = inner[key]
        if kind is not None:
            assert set(inner) == set(kind.__struct_fields__)


def test_the_two_sizes_are_those_of_the_design() -> None:
    sizes = SecondConfig().sizes
    assert (sizes.small.dim, sizes.small.layers, sizes.small.heads) == (128, 4, 4)
    assert (sizes.base.dim, sizes.base.layers, sizes.base.heads) == (256, 6, 8)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("sise: base", "unknown key 'sise'; the nearest known one is 'size'"),
        ("size: huge", "size: Invalid enum value 'huge'"),
        ("sizes: {small: {dim: 100}}", "multiple of 4 · heads"),
        ("sizes: {small: {window: 7}}", "`window` to be even"),
        ("training: {dropout: 1.0}", "training.dropout"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "second.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint.replace("(", r"\(")) as caught:
        load_second(path)
    assert "\n" not in str(caught.value)
