"""How many of them: replicas, devices, and the bytes that a second brings.

Replicas = ⌈ rate / (utilisation · requests per second of one replica) ⌉; the rest is room for bursts, since waiting
grows without bound as utilisation nears 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from ranker.inference.plan_latency import Latency
from ranker.inference.plan_numbers import PlanError, fraction, positive, whole
from ranker.inference.plan_setup import Setup
from ranker.inference.sizes import LARGEST

SECONDS_OF_A_DAY = 86_400


@dataclass(frozen=True)
class Traffic:
    """What comes in. The bytes are measured from our own formats by a test, for a request with one entity, three items
    and a pool of fifty candidates, HTTP headers included.

    Args:
        rps: requests a second over the whole fleet.
        utilisation: share of a replica's capacity that is used.
        request_bytes, answer_bytes: on the wire, of one request.
        log_bytes: of one request in the log: its ranking, and the feedback and interactions that follow.
        event_bytes: posted per request: the same feedback and interactions on the wire.
    """

    rps: float
    utilisation: float = 0.7
    request_bytes: int = 450
    answer_bytes: int = 850
    event_bytes: int = 1550
    log_bytes: int = 4800

    def __post_init__(self) -> None:
        positive("rps", self.rps)
        fraction("utilisation", self.utilisation)
        for name in ("request_bytes", "answer_bytes", "event_bytes", "log_bytes"):
            whole(name, getattr(self, name), least=0, most=1 << 40)


class Fleet(msgspec.Struct, frozen=True):
    """What a rate needs.

    Args:
        replicas: groups of devices that hold the model once.
        network_bytes_per_s: in and out, events included.
    """

    rps: float
    utilisation: float
    replicas: int
    devices: int
    rps_per_replica: float
    network_in_bytes_per_s: float
    network_out_bytes_per_s: float
    network_bytes_per_s: float
    log_bytes_per_s: float
    log_bytes_per_day: float


def plan_fleet(setup: Setup, latency: Latency, traffic: Traffic) -> Fleet | None:
    """None when a batch does nothing, so that no time can be predicted.

    Raises:
        PlanError: more devices than can be counted.
    """
    if not latency.requests_per_s:
        return None
    replicas = math.ceil(traffic.rps / (traffic.utilisation * latency.requests_per_s))
    if replicas * setup.devices.devices > LARGEST:
        raise PlanError("rps", traffic.rps, "needs at most 2^63-1 devices")
    inward = traffic.rps * (traffic.request_bytes + traffic.event_bytes)
    outward = traffic.rps * traffic.answer_bytes
    logged = traffic.rps * traffic.log_bytes
    return Fleet(
        rps=traffic.rps,
        utilisation=traffic.utilisation,
        replicas=replicas,
        devices=replicas * setup.devices.devices,
        rps_per_replica=traffic.rps / replicas,
        network_in_bytes_per_s=inward,
        network_out_bytes_per_s=outward,
        network_bytes_per_s=inward + outward,
        log_bytes_per_s=logged,
        log_bytes_per_day=logged * SECONDS_OF_A_DAY,
    )
