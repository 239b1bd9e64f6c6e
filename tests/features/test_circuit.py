from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.circuit import Circuit


def state_of(circuit: Circuit) -> str:
    """Asked anew each time, which a type checker does not know of a property."""
    return circuit.state


def test_five_failures_in_a_row_open_it_and_a_success_starts_the_count_again() -> None:
    circuit = Circuit(failures_to_open=5)
    for _ in range(4):
        circuit.failure(0.0)
    circuit.success(0.0)
    for _ in range(4):
        circuit.failure(0.0)
    assert state_of(circuit) == "closed"
    circuit.failure(0.0)
    assert state_of(circuit) == "open"
    assert circuit.openings == 1


def test_while_open_nothing_passes_and_then_one_probe_at_a_time() -> None:
    circuit = Circuit(failures_to_open=1, open_s=1.0)
    circuit.failure(10.0)
    assert not circuit.allow(10.999)
    assert circuit.allow(11.0)
    assert state_of(circuit) == "half_open"
    assert not circuit.allow(11.0)
    circuit.success(11.1)
    assert state_of(circuit) == "closed"
    assert circuit.allow(11.1)
    assert circuit.allow(11.1)


def test_a_failed_probe_opens_it_again_for_the_whole_time() -> None:
    circuit = Circuit(failures_to_open=3, open_s=1.0)
    for _ in range(3):
        circuit.failure(0.0)
    assert circuit.allow(1.5)
    circuit.failure(1.6)
    assert not circuit.allow(2.5)
    assert circuit.allow(2.6)


def test_a_cancelled_probe_lets_the_next_call_probe_at_once() -> None:
    circuit = Circuit(failures_to_open=1, open_s=1.0, probe_s=100.0)
    circuit.failure(0.0)
    assert circuit.allow(1.0)
    circuit.forget(1.2)
    assert circuit.allow(1.2)
    assert not circuit.allow(1.3)


def test_a_probe_that_never_reports_does_not_close_the_way_for_ever() -> None:
    circuit = Circuit(failures_to_open=1, open_s=1.0, probe_s=5.0)
    circuit.failure(0.0)
    assert circuit.allow(1.0)
    assert not circuit.allow(5.9)
    assert circuit.allow(6.0)


def test_half_of_the_window_failing_opens_it_though_never_in_a_row() -> None:
    circuit = Circuit(failures_to_open=3, window=10, failure_share=0.5)
    for turn in range(9):
        (circuit.failure if turn % 2 else circuit.success)(0.0)
    assert state_of(circuit) == "closed"
    circuit.failure(0.0)
    assert state_of(circuit) == "open"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"failures_to_open": 0}, "failures_to_open 0"),
        ({"window": 0}, "window 0"),
        ({"failure_share": 0.0}, "failure_share 0.0"),
        ({"failure_share": float("nan")}, "failure_share nan"),
        ({"open_s": -1.0}, "open_s -1.0"),
    ],
)
def test_unusable_settings_are_named(options: dict[str, float], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Circuit(**options)  # type: ignore[arg-type]


class Model:
    """The rules read off the whole history of what happened, each time anew."""

    def __init__(self, in_row: int, open_s: float, window: int, share: float, probe_s: float) -> None:
        self.rules = (in_row, open_s, window, share, probe_s)
        self.since_closing: list[bool] = []
        self.opened_at: float | None = None
        self.probe_at: float | None = None

    @property
    def state(self) -> str:
        if self.opened_at is None:
            return "closed"
        return "open" if self.probe_at is None else "half_open"

    def allow(self, now: float) -> bool:
        _, open_s, _, _, probe_s = self.rules
        if self.opened_at is None:
            return True
        earliest = self.opened_at + open_s if self.probe_at is None else self.probe_at + probe_s
        if now >= earliest:
            self.probe_at = now
        return now >= earliest

    def report(self, answered: bool, now: float) -> None:
        if self.probe_at is not None:
            self.probe_at = None
            self.opened_at = None if answered else now
            self.since_closing = []
        elif self.opened_at is None:
            self.since_closing.append(answered)
            if not answered and self._too_many():
                self.opened_at = now

    def _too_many(self) -> bool:
        in_row, _, window, share, _ = self.rules
        last = self.since_closing[-window:]
        all_failed = len(self.since_closing) >= in_row and not any(self.since_closing[-in_row:])
        return all_failed or (len(last) == window and sum(not one for one in last) >= share * window)

    def forget(self, now: float) -> None:
        if self.probe_at is not None:
            self.probe_at = now - self.rules[4]


steps = st.lists(
    st.tuples(st.sampled_from(["allow", "success", "failure", "failure", "forget"]), st.integers(0, 6)), max_size=120
)


@settings(deadline=None, max_examples=300)
@given(steps, st.integers(1, 4), st.integers(1, 8), st.sampled_from([0.25, 0.5, 1.0]))
def test_it_does_what_the_rules_say_whatever_happens(
    history: list[tuple[str, int]], in_row: int, window: int, share: float
) -> None:
    circuit = Circuit(failures_to_open=in_row, open_s=4.0, window=window, failure_share=share, probe_s=8.0)
    model = Model(in_row, 4.0, window, share, 8.0)
    now = 0.0
    for what, passed in history:
        now += passed
        if what == "allow":
            assert circuit.allow(now) == model.allow(now)
        elif what == "forget":
            circuit.forget(now)
            model.forget(now)
        else:
            (circuit.success if what == "success" else circuit.failure)(now)
            model.report(what == "success", now)
        assert circuit.state == model.state
