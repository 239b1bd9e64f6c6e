"""The options of the benches that judge learning by a simulated truth."""

from __future__ import annotations

from typing import Any

from ranker.commands.options.parsing import add_command, count, reports, share


def add_learning(benches: Any) -> None:
    """Adds `nextaction bench position` and `nextaction bench curve`."""
    text = "What position bias costs and what each way of learning gets back, where the truth is known."
    position = add_command(benches, "position", text, "bench_position")
    position.add_argument("--slates", type=count, default=20_000, help="lists in the log (default %(default)s)")
    position.add_argument("--shuffled", type=share, default=0.05, help="share in random order (default %(default)s)")
    position.add_argument("--quick", action="store_true", help="5,000 lists, smaller models: a few seconds")
    position.add_argument("--seed", type=count, default=1)
    reports(position)
    text = "Is more data worth its price: rows and exploration share against true quality, with what each cost."
    curve = add_command(benches, "curve", text, "bench_curve")
    curve.add_argument("--quick", action="store_true", help="two shares, two doublings: about a minute")
    curve.add_argument(
        "--worth", type=share, default=0.005, help="NDCG that a doubling must bring (default %(default)s)"
    )
    curve.add_argument("--users", type=count, help="simulated people (default 200, with --quick 120)")
    curve.add_argument("--seed", type=count, default=1)
    reports(curve)
