"""How the second stage is served: a section of `configs/serve.yaml`."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class ServeSecond(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`second` in `configs/serve.yaml`; it runs where the active version has a second stage.

    Args:
        passed_on: candidates that the light stage passes on; None takes the version's own number.
        weights: format of the weights.
        kv: format of full pages of histories.
        memory_mib: limit of the device's pool; 85 % of it are used.
        page_tokens: events of a page; a multiple of 32 for int8 and int4.
        micro_batch: candidates of a request at once; up to four requests are scored together.
        threads: of the device's thread; one core is the event loop's.
        reserve_ms: of a request's budget, left for what follows this stage.
        max_happenings: of all users together that are kept in this process's memory.
        attic_mib: limit of this process's file for histories of users who left memory; 0 keeps none of them.
        device: that holds weights and pages, and computes; `cpu`, `cuda` or `cuda:N`.
        cuda_graphs: whether a GPU scores by captured graphs.
        batching: whether the device takes several requests at once.
        pages: whether what was encoded of a history is kept.
    """

    enabled: bool = True
    passed_on: Annotated[int, Meta(ge=1, le=1000)] | None = None
    weights: Literal["fp32", "bf16"] = "fp32"
    kv: Literal["fp32", "bf16", "int8", "int4"] = "int8"
    memory_mib: Annotated[int, Meta(ge=16, le=1_000_000)] = 256
    page_tokens: Annotated[int, Meta(ge=32, le=256, multiple_of=32)] = 32
    micro_batch: Annotated[int, Meta(ge=8, le=1024)] = 64
    max_batch_requests: Annotated[int, Meta(ge=1, le=1024)] = 16
    max_queue_requests: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    threads: Annotated[int, Meta(ge=1, le=256)] = 1
    reserve_ms: Annotated[float, Meta(ge=0, le=10_000)] = 5.0
    max_happenings: Annotated[int, Meta(ge=1000, le=100_000_000)] = 400_000
    attic_mib: Annotated[int, Meta(ge=0, le=1_000_000)] = 512
    device: Annotated[str, Meta(pattern=r"^(cpu|cuda(:[0-9]+)?)$")] = "cpu"
    cuda_graphs: bool = True
    batching: bool = True
    pages: bool = True
