"""What failed is tried again after some looks."""

from __future__ import annotations

from ranker.retry import Retry


def test_it_is_time_after_so_many_looks_since_the_last_failure_and_never_without_one() -> None:
    retry = Retry(looks=3)
    assert not any(retry.due() for _ in range(10))
    retry.failed()
    assert [retry.due() for _ in range(3)] == [False, False, True]
    retry.failed()
    assert not retry.due()
    retry.failed()
    assert [retry.due() for _ in range(3)] == [False, False, True]
    retry.failed()
    retry.settled()
    assert not any(retry.due() for _ in range(10))
