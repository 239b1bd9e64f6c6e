"""The importer of the Open Bandit data, on files by hand in its columns."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from features.events import ActionEvent, FeedbackEvent, RankingEvent
from features.log import read_log
from training.importers import SourceError, import_log
from training.off_policy.gather import gather
from training.off_policy.targets import Uniform
from training.validate import validate_log

ITEMS = ",item_id,item_feature_0,item_feature_1\n0,0,-0.5,aa\n1,1,0.7,bb\n2,2,0.1,aa\n"
HEADER = ",timestamp,item_id,position,click,propensity_score,user_feature_0,user-item_affinity_0,user-item_affinity_2"
ROWS = (
    "0,2019-11-24 00:01:03.979311+00:00,2,2,0,0.25,cef3,0.0,0.0",
    "1,2019-11-24 00:01:45.406608+00:00,0,3,1,0.5,cef3,0.0,3.0",
)


def campaign(folder: Path, *rows: str, items: str = ITEMS, header: str = HEADER) -> Path:
    source = folder / "men"
    source.mkdir()
    (source / "item_context.csv").write_text(items)
    (source / "men.csv.gz").write_bytes(gzip.compress("\n".join([header, *rows, ""]).encode()))
    return source


def test_a_row_is_a_ranking_of_one_item_at_its_position_and_a_click_an_accept(tmp_path: Path) -> None:
    report = import_log("open-bandit", campaign(tmp_path, *ROWS), tmp_path / "log")
    assert dict(report.events) == {"action": 3, "ranking": 2, "feedback": 1} and not report.skipped
    events = [event for _, event in read_log(tmp_path / "log")]
    actions = [event for event in events if isinstance(event, ActionEvent)]
    assert [(event.action, event.fields) for event in actions][1] == (
        "1",
        {"title": "item 1: item_feature_0=0.7, item_feature_1=bb"},
    )
    first, second = (event for event in events if isinstance(event, RankingEvent))
    assert [(i.action, i.position, i.propensity) for i in (*first.items, *second.items)] == [
        ("2", 2, 0.25),
        ("0", 3, 0.5),
    ]
    assert first.pool == [("0", None, 0.0), ("1", None, 0.0), ("2", None, 0.0)]
    assert (first.traffic, first.user == second.user, second.context.fields) == (
        "explore",
        False,
        {"user_feature_0": "cef3", "affinity": {"2": 3.0}},
    )
    (click,) = (event for event in events if isinstance(event, FeedbackEvent))
    assert (click.ranking, click.user, click.type, click.action) == (second.id, second.user, "accept", "0")
    assert validate_log(tmp_path / "log").ok


def test_what_cannot_be_a_row_is_named_with_its_line(tmp_path: Path) -> None:
    bad = (
        "0,never,2,2,0,0.25,x,0,0",
        "0,2019-11-24 00:01:03+00:00,9,2,0,0.25,x,0,0",
        "0,2019-11-24 00:01:03+00:00,2,0,0,0.25,x,0,0",
        "0,2019-11-24 00:01:03+00:00,2,2,2,0.25,x,0,0",
        "0,2019-11-24 00:01:03+00:00,2,2,0,much,x,0,0",
        "0,2019-11-24 00:01:03+00:00,2",
    )
    report = import_log("open-bandit", campaign(tmp_path, ROWS[0], *bad), tmp_path / "log")
    assert report.skipped == {"invalid": 6} and report.events["ranking"] == 1
    assert [(each["file"], each["line"]) for each in report.examples] == [("men.csv.gz", line) for line in range(3, 9)]
    details = " ".join(each["detail"] for each in report.examples)
    for part in ("timestamp 'never'", "item_id '9'", "position '0'", "click '2'", "'much'", "3 columns where"):
        assert part in details


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "propensity_missing"),
        ("nan", "propensity_missing"),
        ("0", "propensity_zero"),
        ("1.5", "propensity_above_one"),
    ],
    ids=repr,
)
def test_a_propensity_that_is_none_is_kept_for_the_evaluation_to_count(text: str, reason: str, tmp_path: Path) -> None:
    row = f"2,2019-11-24 00:02:03+00:00,2,2,0,{text},x,0,0"
    import_log("open-bandit", campaign(tmp_path, *ROWS, row), tmp_path / "log")
    found = gather(tmp_path / "log", Uniform())
    assert found.rejected == {reason: 1} and len(found.slates) == 2
    assert found.slates.target.tolist() == [[1 / 3], [1 / 3]]


def test_a_folder_that_is_no_campaign_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SourceError, match="is not a folder"):
        import_log("open-bandit", tmp_path / "file", tmp_path / "log")
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SourceError, match="has 0 files item_context"):
        import_log("open-bandit", empty, tmp_path / "log")
    source = campaign(tmp_path, *ROWS)
    (source / "all.csv").write_text("x")
    with pytest.raises(SourceError, match="has 2 files of rows"):
        import_log("open-bandit", source, tmp_path / "log")


def test_a_missing_column_is_refused_by_name(tmp_path: Path) -> None:
    source = campaign(tmp_path, *ROWS, header=HEADER.replace("propensity_score", "p"))
    with pytest.raises(SourceError, match=r"men.csv.gz:1: the header lacks propensity_score"):
        import_log("open-bandit", source, tmp_path / "log")


def test_without_items_or_rows_there_is_no_log(tmp_path: Path) -> None:
    source = campaign(tmp_path, *ROWS, items=",item_id\n")
    with pytest.raises(SourceError, match="has 0 items"):
        import_log("open-bandit", source, tmp_path / "log")
    (source / "item_context.csv").write_text(ITEMS)
    (source / "men.csv.gz").write_bytes(gzip.compress(HEADER.encode()))
    with pytest.raises(SourceError, match="has nothing that format open-bandit can use"):
        import_log("open-bandit", source, tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_a_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    source = campaign(tmp_path, *ROWS)
    packed = (source / "men.csv.gz").read_bytes()
    (source / "men.csv.gz").write_bytes(packed[:-12])
    with pytest.raises(SourceError, match="broken gzip"):
        import_log("open-bandit", source, tmp_path / "log")


def test_an_item_named_twice_or_not_at_all_is_skipped_and_named(tmp_path: Path) -> None:
    source = campaign(tmp_path, *ROWS, items=ITEMS + "3,2,0.1,aa\n4,,0.1,aa\n")
    report = import_log("open-bandit", source, tmp_path / "log")
    assert report.skipped == {"invalid": 2} and report.events["action"] == 3
    assert report.examples[0]["file"] == "item_context.csv" and report.examples[0]["line"] == 5
