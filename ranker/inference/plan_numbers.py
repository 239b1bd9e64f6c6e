"""Numbers of a plan, whether a person typed them or a program gave them; what cannot be is named with its option.

PlanError: an option with a value that it cannot have; its text is one line
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from ranker.inference.memory_errors import InvalidSize
from ranker.inference.sizes import LARGEST

GIB = 1 << 30
SHOWN = 60
LARGEST_RATE = 1e15
SMALLEST_RATE = 1e-15
"""Within these bounds no product of a plan leaves the floats."""


class PlanError(InvalidSize):
    """An option with a value that it cannot have.

    Args:
        field: as the dataclasses name it, and the command line with dashes.
        must: what it must be, such as `must be above 0`.
    """

    def __init__(self, field: str, value: object, must: str) -> None:
        shown = repr(value)
        super().__init__(f"{option(field)} {must}, not {shown if len(shown) <= SHOWN else shown[:SHOWN] + '…'}")
        self.field = field
        self.value = value


def option(field: str) -> str:
    """How the command line calls a field."""
    return "--" + field.replace("_", "-")


def whole(field: str, value: object, least: int = 1, most: int = LARGEST) -> int:
    """A whole number, `4096` or `70e9`.

    Raises:
        PlanError: it is none, or outside the bounds.
    """
    must = f"must be a whole number from {least} to {'2^63-1' if most == LARGEST else most}"
    number = _decimal(field, value, must)
    if not least <= number <= most or number != number.to_integral_value():  # bounds first: 1e400000000 is long
        raise PlanError(field, value, must)
    return int(number)


def positive(field: str, value: object, most: float = LARGEST_RATE) -> float:
    """A finite number above 0.

    Raises:
        PlanError: it is none.
    """
    must = f"must be a number from {SMALLEST_RATE:g} to {most:g}"
    number = _decimal(field, value, must)
    if not Decimal(SMALLEST_RATE) <= number <= Decimal(most):
        raise PlanError(field, value, must)
    return float(number)


def fraction(field: str, value: object) -> float:
    """A share, above 0 and at most 1.

    Raises:
        PlanError: it is none.
    """
    must = "must be above 0 and at most 1"
    number = _decimal(field, value, must)
    if not Decimal(SMALLEST_RATE) <= number <= 1:
        raise PlanError(field, value, must)
    return float(number)


def one_of(field: str, value: object, known: Sequence[str]) -> str:
    """A name from a list.

    Raises:
        PlanError: it is not in it.
    """
    if value not in known:
        raise PlanError(field, value, f"must be one of {', '.join(known)}")
    return str(value)


def _decimal(field: str, value: object, must: str) -> Decimal:
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise PlanError(field, value, must) from None
    if not number.is_finite() or isinstance(value, bool):
        raise PlanError(field, value, must)
    return number
