"""The catalogue: what an entry may say, and how it changes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from features import catalogue
from features.catalogue import ActionSpec, Catalogue, parse_spec
from features.errors import EventError
from features.events import ActionEvent

NOW = datetime(2024, 1, 1, tzinfo=UTC)


def event(action: str, fields: dict[str, Any] | None) -> ActionEvent:
    return ActionEvent(id="1", time=NOW, action=action, fields=fields)


def test_entries_keep_the_order_of_arrival_and_the_version_grows_with_each_change() -> None:
    actions = Catalogue()
    versions = [actions.version]
    for step in (event("b", {}), event("a", {"min_age": 3}), event("b", {"off": True}), event("a", None)):
        actions.apply(step)
        versions.append(actions.version)
    assert list(actions) == ["b"]
    assert actions.get("b") == ActionSpec(off=True)
    assert actions.get("a") is None
    assert versions == sorted(set(versions))


def test_withdrawing_what_is_not_there_changes_nothing() -> None:
    actions = Catalogue()
    actions.apply(event("a", None))
    assert (len(actions), actions.version) == (0, 0)


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"min_age": -1}, "$.min_age"),
        ({"min_age": "old"}, "$.min_age"),
        ({"colour": "red"}, "colour"),
        ({"surfaces": "chat"}, "$.surfaces"),
        ({"surfaces": [""]}, "$.surfaces[0]"),
        ({"expires": "2024-01-01T00:00:00"}, "$.expires"),
        ({"max_offers_per_day": 33}, "$.max_offers_per_day"),
        ({"cooldown_s": -0.1}, "$.cooldown_s"),
    ],
)
def test_an_entry_that_cannot_be_meant_names_the_field(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(EventError, match="action fields") as caught:
        parse_spec(fields)
    assert caught.value.reason == "invalid"
    assert path in caught.value.detail


def test_a_refused_entry_leaves_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = Catalogue({"a": ActionSpec(min_age=18)})
    with pytest.raises(EventError):
        actions.apply(event("a", {"min_age": 999}))
    assert actions.get("a") == ActionSpec(min_age=18)
    monkeypatch.setattr(catalogue, "MAX_ACTIONS", 1)
    with pytest.raises(EventError) as caught:
        actions.apply(event("b", {}))
    assert caught.value.reason == "catalogue_full"
    actions.apply(event("a", {"min_age": 3}))
    assert actions.get("a") == ActionSpec(min_age=3)
