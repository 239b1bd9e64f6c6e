"""What a device can do in a second, by class: the vendor's dense figures, which no program reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ranker.inference.plan_numbers import fraction, positive


@dataclass(frozen=True)
class Rates:
    """Of one device.

    Args:
        tflops: dense matrix products of 16-bit floats, 10^12 a second.
        gb_per_s: from its memory, 10^9 bytes a second.
        link_gb_per_s: to the other devices, one direction.
        compute_efficiency: share of `tflops` that kernels reach, and
        bandwidth_efficiency: of `gb_per_s` and `link_gb_per_s`. Measure yours; these are customary.
        link_latency_us: of one exchange between the devices, whatever its size.
    """

    tflops: float = 989.0
    gb_per_s: float = 3350.0
    link_gb_per_s: float = 450.0
    compute_efficiency: float = 0.5
    bandwidth_efficiency: float = 0.7
    link_latency_us: float = 10.0

    def __post_init__(self) -> None:
        for name in ("tflops", "gb_per_s", "link_gb_per_s", "link_latency_us"):
            positive(name, getattr(self, name))
        for name in ("compute_efficiency", "bandwidth_efficiency"):
            fraction(name, getattr(self, name))

    @property
    def flops_per_ms(self) -> float:
        """What kernels reach."""
        return self.tflops * 1e9 * self.compute_efficiency

    @property
    def bytes_per_ms(self) -> float:
        """What kernels reach."""
        return self.gb_per_s * 1e6 * self.bandwidth_efficiency

    @property
    def link_bytes_per_ms(self) -> float:
        """What exchanges reach."""
        return self.link_gb_per_s * 1e6 * self.bandwidth_efficiency


@dataclass(frozen=True)
class DeviceClass:
    """Defaults of a kind of device, from its data sheet."""

    device_gib: float
    tflops: float
    gb_per_s: float
    link_gb_per_s: float


DEVICE_CLASSES: Mapping[str, DeviceClass] = {
    "h100": DeviceClass(80.0, 989.0, 3350.0, 450.0),
    "h200": DeviceClass(140.0, 989.0, 4800.0, 450.0),
    "a100": DeviceClass(80.0, 312.0, 2039.0, 300.0),
    "l40s": DeviceClass(48.0, 362.0, 864.0, 32.0),
    "cpu": DeviceClass(64.0, 2.0, 200.0, 20.0),
}
"""SXM parts with NVLink; the L40S on PCIe 4; `cpu` is the order of magnitude of a server socket."""
