"""The options of `nextaction plan`; their values stay text until the planner judges them, so that errors name them."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from ranker.commands.options.parsing import add_command, reports

TEXT = (
    "Plan the memory and the speed of a transformer before anything runs: what each device holds, whether it fits, "
    "the largest batch and context that do, the predicted latency, and which option to change if it does not fit or "
    "is late; each such suggestion has been planned again. Exits with 0 whatever the plan says, unless --require-fit."
)

GROUPS = (
    (
        "model",
        (
            ("params", None, "parameters, such as 70e9"),
            ("layers", None, ""),
            ("hidden", None, "width of the residual stream"),
            ("kv-heads", None, "heads of keys and values"),
            ("head-dim", None, "width of a head"),
            ("heads", "hidden / head-dim", "heads of queries"),
            ("ffn", "what the parameters leave", "width of the feed-forward blocks"),
        ),
    ),
    (
        "formats",
        (
            ("weights", "bf16", "fp32, bf16, fp16, fp8, int8 or int4"),
            ("weight-group", "128", "weights that share a scale and a minimum of 16 bits each, in int8 and int4"),
            ("kv", "bf16", "keys and values in full pages: fp32, bf16, int8 or int4"),
            ("kv-group", "32", "keys or values that share a scale and a minimum, in int8 and int4"),
            ("kv-metadata-bits", "16", "of a scale, and of a minimum; 32 as in our pages on the CPU"),
            ("tail", "fp32", "exact pages at the end of each history: fp32 or bf16"),
            ("activations", "bf16", "of the workspace: fp32 or bf16"),
            ("page-tokens", "32", "entries of a page, a multiple of the group"),
        ),
    ),
    (
        "load",
        (
            ("context", None, "events of a history that are encoded, at most"),
            ("batch", "1", "histories in a batch"),
            ("batches-in-flight", "1", "that hold a workspace and pages at once"),
            ("new-tokens", "--context", "events per history that are not in pages yet; by default nothing is cached"),
            ("candidates", "50", "scored per history; decoding t tokens is --candidates t --micro-batch 1"),
            ("micro-batch", "--candidates", "candidates per history that are scored at once"),
            ("chunk-tokens", "2048", "most tokens that are encoded at once"),
        ),
    ),
    (
        "devices",
        (
            ("device", "h100", "defaults of memory and rates: h100, h200, a100, l40s or cpu"),
            ("devices", "1", "that hold the model together, split by heads and columns"),
            ("device-gib", "the class's", "memory of each"),
            ("share", "0.85", "of the memory, for everything together"),
            ("reserved-gib", "1", "of each, for context, libraries and captured graphs"),
            ("pool-gib-per-batch", "what is left", "of each, set apart for every batch in flight"),
            ("tflops", "the class's", "dense 16-bit matrix products of a device, 10^12 a second"),
            ("gb-per-s", "the class's", "from a device's memory, 10^9 bytes a second"),
            ("link-gb-per-s", "the class's", "between devices, one direction"),
            ("link-latency-us", "10", "of one exchange between devices"),
            ("compute-efficiency", "0.5", "share of --tflops that kernels reach"),
            ("bandwidth-efficiency", "0.7", "share of --gb-per-s and --link-gb-per-s that they reach"),
        ),
    ),
    (
        "target",
        (
            ("sla-ms", "none", "a batch must be predicted within it"),
            ("rps", "none", "requests a second; plans the fleet"),
            ("utilisation", "0.7", "share of a replica's capacity that is used"),
            ("request-bytes", "450", "of a request on the wire"),
            ("answer-bytes", "850", "of its answer"),
            ("event-bytes", "1550", "of the feedback and interactions posted for it"),
            ("log-bytes", "4800", "of all its lines in the log"),
        ),
    ),
)
"""Name, default as text (None: the option is required), help."""


def add_options(command: ArgumentParser) -> None:
    """All groups, and the switch that turns a plan that does not fit into a failure."""
    for title, options in GROUPS:
        group = command.add_argument_group(title)
        for name, default, text in options:
            shown = text if default is None else f"{text} (default: {default})".strip()
            group.add_argument(f"--{name}", metavar="N", required=default is None, help=shown or name)
    command.add_argument(
        "--require-fit", action="store_true", help="exit with 1 when it does not fit, or misses the SLA"
    )


def add_plan(commands: Any) -> None:
    """Adds `nextaction plan`."""
    plan = add_command(commands, "plan", TEXT, "plan")
    add_options(plan)
    reports(plan)
