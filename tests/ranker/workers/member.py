"""A follower's process whose model is that of the tests: what `ranker.commands.worker` is, started by a test."""

from __future__ import annotations

from ranker.build import Surroundings
from ranker.commands.worker import leave, main
from tests.ranker.online import VectorModel

if __name__ == "__main__":
    leave(main(lambda: Surroundings(environment={}, model=VectorModel())))
