"""Config files: what they say is the default, and every complaint is one line with file, field and value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ranker.config import (
    ServeConfig,
    TrainConfig,
    config_dir,
    load_actions,
    load_policy,
    load_serve,
    load_train,
)
from ranker.config_file import MAX_FILE_BYTES, read_yaml
from ranker.errors import ConfigError
from ranker.policy_config import PolicyConfig

Loader = Callable[[Path], Any]
KINDS: list[tuple[str, Loader, type]] = [
    ("serve", load_serve, ServeConfig),
    ("policy", load_policy, PolicyConfig),
    ("train", load_train, TrainConfig),
]


@pytest.mark.parametrize(("name", "load", "kind"), KINDS, ids=[name for name, _, _ in KINDS])
def test_the_shipped_file_says_the_defaults_and_all_of_them(name: str, load: Loader, kind: type) -> None:
    path = config_dir() / f"{name}.yaml"
    assert load(path) == kind()
    assert set(read_yaml(path)) == set(kind.__struct_fields__)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "load", "kind"), KINDS, ids=[name for name, _, _ in KINDS])
def test_every_key_is_optional(name: str, load: Loader, kind: type, tmp_path: Path) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("# nothing\n")
    assert load(empty) == kind()


@pytest.mark.parametrize(
    ("load", "text", "complaint"),
    [
        (load_serve, "prot: 1", "prot: unknown key 'prot'; the nearest known one is 'port'"),
        (load_serve, "port: 99999", "port: Expected `int` <= 65535, not 99999"),
        (load_serve, "port: true", "port: Expected `int`, got `bool`, not True"),
        (load_serve, "port: http", "port: Expected `int`, got `str`, not 'http'"),
        (load_serve, "epsilon: 1.5", "epsilon: Expected `float` <= 1.0, not 1.5"),
        (load_serve, "epsilon: .nan", "epsilon: Expected `float` >= 0.0, not nan"),
        (load_serve, "budgets_ms: {premum: 1}",
         "budgets_ms.premum: unknown key 'premum'; the nearest known one is 'premium'"),
        (load_serve, "budgets_ms: {premium: 0}", "budgets_ms.premium: Expected `float` > 0.0, not 0"),
        (load_serve, "store: http://user:pa55@x",
         "the file: Expected `store` to be 'embedded' or a URL: store URL: scheme 'http' is not one of"),
        (load_serve, "- 1", "the file: Expected `object`, got `array`, not [1]"),
        (load_serve, "host: a\nport: 1\nhost: b", "the key 'host' is there twice in line 3"),
        (load_serve, "host: &a b\nstore: *a", "aliases are not supported in line 2"),
        (load_serve, "host: [", "expected the node content, but found '<stream end>' in line 1"),
        (load_serve, "host: !!python/name:os.system x",
         "could not determine a constructor for the tag 'tag:yaml.org,2002:python/name:os.system'"),
        (load_serve, "? [a]\n: 1", "found unhashable key in line 1"),
        (load_serve, "1: 2", "1: unknown key 1; the nearest known one is "),
        (load_policy, "safety_classes: {adult: {min_aeg: 1}}",
         "safety_classes.adult.min_aeg: unknown key 'min_aeg'; the nearest known one is 'min_age'"),
        (load_policy, "sensitive: [{name: x, feilds: {}}]",
         "sensitive[0].feilds: unknown key 'feilds'; the nearest known one is 'fields'"),
        (load_policy, "sensitive: [{}]", "sensitive[0]: Object missing required field `name`"),
        (load_policy, "exclusions: [[a]]", "exclusions[0]: Expected `array` of length >= 2, not ['a']"),
        (load_policy, "quiet_hours: {start: 25:00}",
         "quiet_hours: Expected `start` to be a time such as '22:00', got '25:00'"),
        (load_policy, "timezone: Mars/Olympus", "the file: Expected `timezone` to be an IANA name, got 'Mars/Olympus'"),
        (load_policy, "safety_classes: {none: {}}",
         "the file: Expected no `safety_classes.none`: that class asks for nothing"),
        (load_train, "labels: {gains: {dismissed: 1.0}}",
         "labels.gains.dismissed: Expected `float` <= 0.0, not 1.0"),
        (load_actions, "a: {titel: x}", "a.titel: unknown key 'titel'; the nearest known one is 'title'"),
        (load_actions, "a: 1", "a: Expected `object`, got `int`, not 1"),
        (load_actions, "a: {surfaces: home}", "a.surfaces: Expected `array`, got `str`, not 'home'"),
        (load_actions, "a: {min_app_version: 1.10}", "a.min_app_version: Expected `str | null`, got `float`, not 1.1"),
        (load_actions, "a: {expires: 2026-01-01T00:00:00}", "a.expires: Expected `datetime` with a timezone component"),
        (load_actions, "1: {}", "action 1: Expected `str`, got `int`"),
        (load_actions, "[]", "the file: expected a mapping from action to its fields, not list"),
    ],
)  # fmt: skip
def test_a_wrong_file_is_one_line_with_file_field_and_value(
    load: Loader, text: str, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: {complaint}")
    assert "\n" not in message and "pa55" not in message


def test_words_that_older_yaml_took_for_booleans_are_words(tmp_path: Path) -> None:
    path = tmp_path / "actions.yaml"
    path.write_text(
        "on:\n  regions: [NO, no]\n  off: true\ny: {title: 22:00, max_offers_per_day: 3, cooldown_s: 1e3}\n"
    )
    actions = load_actions(path)
    assert list(actions) == ["on", "y"]
    assert actions["on"].off and actions["on"].regions == ["NO", "no"]
    assert actions["y"].title == "22:00" and actions["y"].cooldown_s == 1000.0


def test_a_file_that_is_missing_or_too_large_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load_serve(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_serve(tmp_path)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(ConfigError, match="is larger than"):
        load_serve(large)
    broken = tmp_path / "broken.yaml"
    broken.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        load_serve(broken)


def test_the_example_catalogue_is_one_that_the_example_policy_can_serve() -> None:
    actions, policy = load_actions(), load_policy()
    assert len(actions) >= 20
    classes = {spec.safety_class for spec in actions.values()} - {"none"}
    assert classes and classes <= set(policy.safety_classes)
    assert all(action in actions for group in policy.exclusions for action in group)
