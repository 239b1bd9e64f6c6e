"""The command line for replays."""

from __future__ import annotations

import pytest

from tests.command_line import Nextaction


@pytest.fixture
def nextaction(capsys: pytest.CaptureFixture[str]) -> Nextaction:
    """The command line."""
    return Nextaction(capsys)
