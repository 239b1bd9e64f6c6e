"""Serving has the threads it was configured for: they are limited before a library counts the cores."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ranker.commands.serve import limit_threads
from tests.command_line import ROOT

BEFORE_THE_LIMIT = """
import sys
from ranker.cli import parser
from ranker.commands import serve
args = parser().parse_args(["serve"])
serve.config_of(args), serve.load_policy(args.policy)
print(sorted({"numpy", "scipy", "lightgbm"} & set(sys.modules)))
"""


def test_nothing_that_counts_cores_is_imported_before_the_limit_is_set() -> None:
    done = subprocess.run([sys.executable, "-c", BEFORE_THE_LIMIT], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout == b"[]\n"


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "to be undone")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    limit_threads(1)
    assert (os.environ["OMP_NUM_THREADS"], os.environ["OPENBLAS_NUM_THREADS"]) == ("3", "1")
