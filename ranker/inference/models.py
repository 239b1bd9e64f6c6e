"""What is known of each model key, bounded: a key nobody asks for any more is forgotten."""

from __future__ import annotations

from ranker.inference.lane import Model

MOST_MODELS = 1024


class Models:
    """Models by key; past the bound, half of those that are idle and that nobody seeded leave, longest idle first."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}

    def __len__(self) -> int:
        """Keys known."""
        return len(self._models)

    def of(self, key: str) -> Model:
        """The model of this key, known or new."""
        model = self._models.get(key)
        if model is None:
            if len(self._models) >= MOST_MODELS:
                self._forget()
            model = self._models[key] = Model(key)
        return model

    def find(self, key: str) -> Model | None:
        """The model of this key if it is known."""
        return self._models.get(key)

    def _forget(self) -> None:
        idle = [model for model in self._models.values() if not model.queued and not model.cost.seeded]
        idle.sort(key=lambda model: model.gaps.last_ms)
        for model in idle[: len(idle) // 2 + 1]:
            del self._models[model.key]
