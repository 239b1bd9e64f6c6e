"""The options of the last-item protocol, of `nextaction train second` and of `nextaction evaluate`."""

from __future__ import annotations

from argparse import Action, ArgumentError, ArgumentParser, Namespace
from typing import Any

from ranker.commands.options.parsing import count

PROTOCOLS = ("log", "last-item")


class _Protocol(Action):
    """Chooses the module that runs the command."""

    def __call__(self, _parser: ArgumentParser, namespace: Namespace, values: Any, _option: str | None = None) -> None:
        if values not in PROTOCOLS:
            raise ArgumentError(self, f"{values!r} is not one of {', '.join(PROTOCOLS)}")
        setattr(namespace, self.dest, values)
        if values == "last-item":
            namespace.module = "last_item"


def add_train_protocol(command: ArgumentParser) -> None:
    """`--protocol` of `nextaction train second`, and what belongs to it."""
    _add_protocol(command, "log learns from rankings and feedback; last-item from sequences, and publishes no service")
    group = command.add_argument_group("with --protocol last-item")
    group.add_argument("--seed", type=int, metavar="N", help="of weights, order and dropout (default 0)")
    group.add_argument("--baselines", action="store_true", help="also train the plain SASRec, to be judged beside")
    group.add_argument("--epochs", type=count, metavar="N", help="at most so many")
    group.add_argument(
        "--threads",
        type=count,
        metavar="N",
        help="of torch (default by the file of --config, 1: more gain little, and lose much on a busy machine)",
    )


def add_evaluate_protocol(command: ArgumentParser) -> None:
    """`--protocol` of `nextaction evaluate`, and what belongs to it."""
    _add_protocol(command, "log replays; last-item ranks all items for each user's last one")
    group = command.add_argument_group("with --protocol last-item")
    group.add_argument("--mask-history", action="store_true", help="do not rank what a user has had before")
    group.add_argument("--parts", action="store_true", help="judge the network and the transitions alone too")


def _add_protocol(command: ArgumentParser, text: str) -> None:
    choices = "{" + ",".join(PROTOCOLS) + "}"
    command.add_argument("--protocol", action=_Protocol, default="log", metavar=choices, help=text)
