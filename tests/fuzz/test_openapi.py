"""The running service against requests that schemathesis makes from its OpenAPI document."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from tests.command_line import process

ACTIONS = "summarize: {entity_types: [image], title: 'Sum {target}', needs_text_check: true}\nshare: {}\n"
NOT_MEANT = "positive_data_acceptance,negative_data_rejection"
"""JSON Schema takes 3.0 for an integer, we do not; a wrong event or line is refused within a 200."""


def test_every_answer_is_one_that_the_document_describes_and_the_log_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "actions.yaml").write_text(ACTIONS)
    places = ("--log", tmp_path / "log", "--models", tmp_path / "models", "--actions", tmp_path / "actions.yaml")
    with process("serve", "--port", 0, "--json", *places) as service:
        assert service.stdout is not None
        url = json.loads(service.stdout.readline())["url"]
        command = (sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json")
        # It cannot make NDJSON: batches have hostile tests of their own.
        options = (
            "--exclude-path",
            "/v1/rank/batch",
            "--max-examples",
            "40",
            "--seed",
            "1",
            "--workers",
            "1",
            "--exclude-checks",
            NOT_MEANT,
        )
        done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout[-6000:]
        service.send_signal(signal.SIGTERM)
        assert service.wait(30) == 0
    with process("validate", tmp_path / "log", "--json") as check:
        findings = json.loads(check.communicate(timeout=60)[0])["findings"]
    # A ranking's id belongs to its caller and user, a logged ranking to its user: two callers may use the same.
    usual = {"orphan_feedback", "unknown_action", "feedback_not_offered", "late", "duplicate_id"}
    assert not set(findings) - usual, findings
