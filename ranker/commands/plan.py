"""`nextaction plan`: what fits on the devices, how fast it is, and what to change if it does not or is not."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

from ranker.commands.plan_report import show
from ranker.inference.memory_errors import InvalidSize
from ranker.inference.plan import Plan, plan
from ranker.inference.plan_fleet import Traffic
from ranker.inference.plan_numbers import fraction, one_of, positive, whole
from ranker.inference.plan_rates import DEVICE_CLASSES, Rates
from ranker.inference.plan_setup import Devices, Formats, Load, Model, Setup
from ranker.terminal import print_json

USAGE = 2

Read = Callable[[str, object], Any]


def _least(least: int) -> Read:
    return lambda name, value: whole(name, value, least)


def _as_is(_name: str, value: object) -> object:
    return value


def _none_or_positive(name: str, value: object) -> float:
    return 0.0 if str(value).strip() in ("0", "0.0") else positive(name, value)


PARTS: Mapping[str, Mapping[str, Read]] = {
    "model": dict.fromkeys(("params", "layers", "hidden", "kv_heads", "head_dim", "heads", "ffn"), whole),
    "formats": {
        **dict.fromkeys(("weights", "kv", "tail", "activations"), _as_is),
        **dict.fromkeys(("weight_group", "kv_group", "kv_metadata_bits", "page_tokens"), whole),
    },
    "load": {
        **dict.fromkeys(("context", "batch", "batches_in_flight", "micro_batch", "chunk_tokens"), whole),
        **dict.fromkeys(("new_tokens", "candidates"), _least(0)),
    },
    "devices": {
        **dict.fromkeys(("device_gib", "pool_gib_per_batch"), positive),
        "devices": whole,
        "share": fraction,
        "reserved_gib": _none_or_positive,
    },
    "rates": {
        **dict.fromkeys(("tflops", "gb_per_s", "link_gb_per_s", "link_latency_us"), positive),
        **dict.fromkeys(("compute_efficiency", "bandwidth_efficiency"), fraction),
    },
    "traffic": {
        "rps": positive,
        "utilisation": fraction,
        **dict.fromkeys(("request_bytes", "answer_bytes", "event_bytes", "log_bytes"), _least(0)),
    },
}
"""How the text of each option is read; an option that is not given leaves the default of its dataclass."""


def run(args: Namespace) -> int:
    """0 whatever the plan says, or 1 with --require-fit when it does not fit or misses the SLA; 2 for an option that
    cannot be."""
    try:
        found = planned(args)
    except InvalidSize as error:
        print(f"nextaction: error: {error}", file=sys.stderr, flush=True)
        return USAGE
    if args.json:
        print_json(found)
    else:
        show(found)
    missed = not found.fits or found.meets_sla is False
    return 1 if args.require_fit and missed else 0


def planned(args: Namespace) -> Plan:
    """The plan that the options ask for.

    Raises:
        InvalidSize: one of them cannot be.
    """
    given = vars(args)
    kind = DEVICE_CLASSES[one_of("device", given["device"] or "h100", tuple(DEVICE_CLASSES))]
    rates = {"tflops": kind.tflops, "gb_per_s": kind.gb_per_s, "link_gb_per_s": kind.link_gb_per_s}
    devices = {"device_gib": kind.device_gib, **_read(given, "devices")}
    setup = Setup(
        Model(**_read(given, "model")),
        Formats(**_read(given, "formats")),
        Load(**_read(given, "load")),
        Devices(**devices, rates=Rates(**{**rates, **_read(given, "rates")})),
    )
    sla_ms = None if given["sla_ms"] is None else positive("sla_ms", given["sla_ms"])
    traffic = _read(given, "traffic")
    return plan(setup, sla_ms, Traffic(**traffic) if "rps" in traffic else None)


def _read(given: Mapping[str, Any], part: str) -> dict[str, Any]:
    return {name: read(name, given[name]) for name, read in PARTS[part].items() if given[name] is not None}
