"""The faults that other servers had, and the input that must be refused, each with the tests that stand for it.

A fault without a test, or a test that was renamed away, fails here.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent

FAULTS = {
    "steady premium starves normal": (
        "test_scheduler.test_steady_premium_does_not_starve_normal",
        "test_engine.test_steady_premium_does_not_starve_normal",
        "test_scheduler_days.test_adversarial_premium_load_leaves_normal_its_share_and_its_bound",
    ),
    "hits starve misses": ("test_scheduler_days.test_cached_histories_do_not_starve_those_that_have_to_be_encoded",),
    "expiry waits behind the running batch": (
        "test_scheduler.test_expiry_does_not_wait_for_the_running_batch",
        "test_engine.test_expiry_does_not_wait_for_the_running_batch",
    ),
    "throughput decays after many expiries": (
        "test_scheduler.test_the_bookkeeping_of_what_left_is_bounded_by_what_waits",
        "test_scheduler_days.test_after_an_overload_things_are_normal_within_one_deadline",
    ),
    "a client that left is still computed": (
        "test_scheduler.test_a_client_that_left_is_not_computed",
        "test_engine_leaving.test_a_client_that_left_is_not_computed",
    ),
    "one cancel in a batch hangs the rest": (
        "test_engine_leaving.test_one_cancel_in_a_running_batch_does_not_hang_the_rest",
    ),
    "after a burst of client time-outs healthy traffic fails": (
        "test_scheduler.test_after_a_burst_of_client_time_outs_healthy_traffic_is_served_as_before",
        "test_engine_leaving.test_healthy_traffic_goes_on_after_a_burst_of_clients_that_left",
        "test_shards_waiters.test_a_burst_of_callers_who_left_does_not_lock_out_healthy_traffic",
    ),
    "deadlock between two locks under random time-outs": (
        "test_engine_versions.test_clients_that_time_out_at_random_never_hang_the_engine",
    ),
    "window counted from the poll": (
        "test_scheduler.test_the_window_counts_from_the_arrival_and_not_from_the_poll",
        "test_engine.test_a_window_counts_from_the_arrival_and_a_held_batch_goes_when_it_is_over",
    ),
    "a full queue blocks its callers": (
        "test_scheduler.test_a_full_queue_refuses_at_once_and_says_when_to_retry",
        "test_engine.test_a_full_queue_refuses_and_blocks_nobody",
    ),
    "the dispatcher cancels the oldest for ever and does no work": (
        "test_scheduler.test_the_oldest_is_not_turned_away_for_ever_while_nothing_runs",
    ),
    "the batch limit ignores the request's own size": (
        "test_scheduler.test_the_batch_limit_counts_the_request_itself",
    ),
    "a request larger than the budget loops for ever": (
        "test_scheduler.test_a_request_larger_than_a_batch_or_the_queue_is_refused_and_does_not_loop",
        "test_engine_failures.test_a_request_that_grew_beyond_a_batch_is_rejected",
    ),
    "a request larger than the page arena deadlocks the queue": (
        "test_pages.test_a_history_longer_than_the_arena_is_refused_at_admission",
        "test_engine_torch.test_a_history_larger_than_the_page_arena_is_refused_at_once",
    ),
    "an abort during a load leaks pages": (
        "test_pages.test_an_abort_keeps_what_was_there_before",
        "test_engine_torch.test_a_client_that_leaves_while_its_batch_runs_leaks_no_page",
        "test_shards_waiters.test_a_cancel_at_any_turn_of_a_load_leaks_no_pin_and_no_byte",
    ),
    "shared pages counted twice as evictable": ("test_pages.test_pages_found_do_not_count_as_evictable",),
    "pins left by an abort block eviction": (
        "test_shards_waiters.test_an_abort_while_holding_leaves_no_pin",
        "test_engine_failures.test_pins_are_released_when_the_batch_fails",
    ),
    "weights reloaded but old KV reused": (
        "test_engine_torch.test_a_new_version_never_reads_the_pages_of_the_old",
        "test_pages.test_scopes_share_nothing",
    ),
    "memory sized before graphs were captured": (
        "test_pool.test_what_lives_on_the_device_outside_the_pool_comes_off_the_arena",
    ),
    "constant channel overflows a scale": (
        "test_kv_formats.test_a_constant_group_is_read_back_as_it_was",
        "test_kv_formats.test_a_group_of_tiny_range_counts_as_constant",
    ),
    "NaN from padding": (
        "test_kv_formats.test_the_trash_page_reads_as_zeros_and_cannot_be_written",
        "test_kv_formats.test_what_is_not_finite_is_refused_and_not_written",
        "test_history_kv.test_a_span_with_nan_is_refused_and_nothing_can_be_found_after_it",
    ),
    "the first caller's cancel fails all waiters, or lets a second load run": (
        "test_shards_waiters.test_the_first_callers_cancel_fails_nobody_and_starts_no_second_load",
    ),
    "a failure before insertion cached for ever": (
        "test_shards_faults.test_a_failure_at_the_first_step_is_not_cached_for_ever",
    ),
    "a corrupt partial file resumed for ever": (
        "test_shards_files.test_a_partial_file_of_a_killed_run_is_deleted_not_resumed",
        "test_shards_faults.test_corrupt_bytes_are_read_a_few_times_and_then_quarantined_until_told_or_later",
    ),
    "a per-request time-out ignored when the default is 0": (
        "test_engine.test_a_budget_of_0_is_a_budget",
        "test_request.test_a_deadline_of_zero_is_a_deadline_and_not_a_missing_one",
        "test_shards_faults.test_a_time_of_zero_is_refused_not_read_as_for_ever",
    ),
}

BAD_INPUT = {
    "negative or NaN budgets and times": (
        "test_request.test_a_field_that_cannot_be_is_named_with_its_value",
        "test_scheduler.test_what_cannot_be_is_rejected_as_invalid_and_leaves_no_trace",
        "test_engine.test_bad_input_is_refused_with_its_reason",
    ),
    "a deadline before the arrival": ("test_request.test_a_field_that_cannot_be_is_named_with_its_value",),
    "an unknown model": ("test_engine.test_bad_input_is_refused_with_its_reason",),
    "a duplicate request_id": (
        "test_scheduler.test_the_same_id_waiting_or_running_is_a_duplicate_and_afterwards_a_new_request",
        "test_engine.test_the_same_id_twice_at_once_is_a_duplicate_and_later_it_is_not",
    ),
    "a request larger than a batch": (
        "test_scheduler.test_a_request_larger_than_a_batch_or_the_queue_is_refused_and_does_not_loop",
    ),
    "a request larger than the arena": (
        "test_engine_torch.test_a_history_larger_than_the_page_arena_is_refused_at_once",
    ),
    "a manifest with wrong sizes": (
        "test_shards_faults.test_a_size_that_is_no_number_of_bytes_is_refused",
        "test_shards_registry.test_a_file_of_another_size_than_the_manifests_is_refused",
    ),
    "absolute or .. paths": (
        "test_shards.test_a_key_cannot_be_a_path",
        "test_shards_registry.test_a_manifest_with_a_path_for_a_name_is_a_load_that_failed",
    ),
    "a shard shorter or longer than said": (
        "test_shards_faults.test_a_bad_stream_leaves_nothing_behind_and_the_retry_is_clean",
    ),
    "a checksum of the wrong kind": (
        "test_shards_faults.test_a_checksum_of_the_wrong_kind_is_refused_before_anything_is_read",
    ),
    "a disk that is full": ("test_shards_files.test_a_full_disk_fails_the_load_and_leaves_no_byte_reserved",),
    "a disk that vanishes": ("test_shards_files.test_a_folder_that_vanishes_fails_the_load_and_nothing_else",),
}


@cache
def names_in(module: str) -> frozenset[str]:
    """Names of a module's tests."""
    tree = ast.parse((HERE / f"{module}.py").read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("fault", [*FAULTS, *BAD_INPUT])
def test_there_is_a_test_for_each_kind(fault: str) -> None:
    for name in (FAULTS | BAD_INPUT)[fault]:
        module, test = name.split(".")
        assert test in names_in(module), f"{fault!r} was to be tested by {name}"
