"""What passing on more candidates brings: a trained version judged on a log at several numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ranker.light_model import LightModel
from ranker.release.registry import Manifest, Registry
from ranker.second.weights import SecondModel, is_second_file, load_second_model
from training.errors import TrainingError
from training.evaluate import EvaluateConfig, evaluate
from training.second.judge import SecondJudge

ALL = 1_000_000


def by_passed_on(
    models: Path,
    log: Path,
    counts: Sequence[int],
    since_s: Callable[[Manifest], float | None],
    tell: Callable[[str], None],
) -> list[dict[str, Any]]:
    """NDCG@10 and HR@1 of the second stage by the number of candidates passed on; the last row is of all.

    Args:
        since_s: from when on a version is judged.

    Raises:
        TrainingError: no version has a second stage, or it does not say where its data ends.
    """
    registry = Registry(models)
    manifest, model = _newest(registry)
    from_s = since_s(manifest)
    if from_s is None:
        raise TrainingError(f"version {manifest.version} does not say where its data ends")
    light = LightModel.load(registry, manifest.version, manifest.schema, manifest.files)
    rows = []
    for count in (*counts, ALL):
        tell(f"judged at {'all' if count == ALL else count} candidates passed on")
        judge = SecondJudge(replace(model, passed_on=count))
        found = evaluate(log, light, EvaluateConfig(from_s), lambda *_: None, judge).to_json()
        stage = found["stages"]["second"]
        rows.append({"passed_on": None if count == ALL else count, "version": manifest.version, **_figures(stage)})
    return rows


def _figures(stage: dict[str, Any]) -> dict[str, Any]:
    return {name: stage[name] for name in ("ndcg@10", "hr@1", "mrr") if name in stage}


def _newest(registry: Registry) -> tuple[Manifest, SecondModel]:
    for version in reversed(registry.versions()):
        manifest = registry.manifest(version)
        if manifest.second is not None:
            files = {name: registry.read(version, name) for name in manifest.files if is_second_file(name)}
            model = load_second_model(files, manifest, to_judge=True)
            assert model is not None, "its manifest has one"
            return manifest, model
    raise TrainingError("no version has a second stage: `nextaction train second` makes one")
