"""A sparse set of the shape of public ones (1,000 users, 3,600 items, median below 12), with the defaults."""

from __future__ import annotations

import numpy as np
import pytest

from ranker.release.registry import Registry
from tests.training.last_item.courses import sparse, write_log
from training.last_item.evaluate import JudgeConfig, judge_last_item
from training.last_item.train import Job, publish_last_item, train_last_item
from training.last_item.version import load_version


@pytest.mark.slow
def test_on_a_sparse_set_the_mixture_is_no_worse_than_its_parts_and_above_the_baselines(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("sparse")
    log, registry = write_log(folder, sparse(1000, 3600, 10.0, seed=5)), Registry(folder / "models")
    trained = train_last_item(log, Job(baselines=True))
    publish_last_item(registry, trained)
    found = judge_last_item(log, load_version(registry, "1"), JudgeConfig(mask_history=True, parts=True))
    assert np.median(found.sequences.rows.lengths) < 12
    report = found.to_json()
    for other in ("popularity", "sasrec"):
        assert report["intervals"][f"second-{other}"]["ndcg@10"]["low"] > 0.0, report["stages"]
    for part in ("network", "transitions"):
        assert report["intervals"][f"second-{part}"]["ndcg@10"]["high"] > 0.0, report["stages"]
