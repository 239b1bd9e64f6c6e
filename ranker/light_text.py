"""Checks the text of a LightGBM model before LightGBM reads it: a damaged one would end the process.

Its parser trusts what it reads: a child that is not there, a categorical split without categories or a
parameter without its bracket is followed into memory that is not its own. Only what our training writes is
let through, numerical trees of one class, and without the parameters of their training: scores need none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

CATEGORICAL = 1
"""The bit of a decision type that asks for categories."""

INTEGERS = (b"split_feature", b"decision_type", b"left_child", b"right_child", b"internal_count")
"""Fields with a whole number per split."""
FRACTIONS = (b"split_gain", b"threshold", b"internal_value", b"internal_weight")
PARAMETERS = b"end of trees\n\nparameters:\n\nend of parameters\n"

# A threshold is infinite where a split tells what is missing from what is known.
_NUMBER = re.compile(rb"[-+]?(?:inf|[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)")

Fields = Mapping[bytes, bytes]
N = TypeVar("N", int, float)


def checked_model_text(packed: bytes) -> str:
    """A model that is whole, as far as scores need it.

    Raises:
        ValueError: it is not; says what.
    """
    header, begins, _ = packed.partition(b"\nTree=0\n")
    head = _fields(header)
    if not begins or b"tree_sizes" not in head:
        raise ValueError("not a LightGBM model with trees")
    for name in (b"num_class", b"num_tree_per_iteration"):
        if head.get(name) != b"1":
            raise ValueError(f"{name.decode()} is not 1")
    features = int(head.get(b"max_feature_idx", b"-1")) + 1
    end = _check_trees(packed, len(header) + 1, list(map(int, head[b"tree_sizes"].split())), features)
    if not packed.startswith(b"end of trees\n", end):
        raise ValueError(f"the trees do not end at byte {end}")
    return (packed[:end] + PARAMETERS).decode()


def model_trees(text: str) -> tuple[int, list[Fields]]:
    """How many features there are, and the fields of each tree, of a text that was checked."""
    header, *blocks = text.encode().partition(b"end of trees")[0].split(b"\nTree=")
    return int(_fields(header)[b"max_feature_idx"]) + 1, [_fields(block) for block in blocks]


def numbers(tree: Fields, name: bytes, kind: Callable[[bytes], N]) -> list[N]:
    """The numbers of a field of a tree that was checked."""
    return list(map(kind, tree[name].split()))


def _check_trees(packed: bytes, start: int, sizes: list[int], features: int) -> int:
    """The byte after the last tree."""
    for number, size in enumerate(sizes):
        block = packed[start : start + max(size, 0)]
        if not block.startswith(b"Tree=%d\n" % number) or len(block) != size:
            raise ValueError(f"tree {number} does not begin at byte {start}")
        try:
            _check_tree(_fields(block), features)
        except (ValueError, KeyError) as error:
            raise ValueError(f"tree {number}: {error}") from None
        start += size
    return start


def _check_tree(tree: Fields, features: int) -> None:
    leaves = int(tree[b"num_leaves"])
    if leaves < 1 or tree.get(b"num_cat") != b"0" or tree.get(b"is_linear", b"0") != b"0":
        raise ValueError("not numerical, or without leaves")
    if not all(map(math.isfinite, _numbers(tree, b"leaf_value", float, leaves))):
        raise ValueError("leaf_value is not finite")
    splits = leaves - 1
    _numbers(tree, b"leaf_weight", float, splits and leaves)  # a tree of one leaf has no weight
    _numbers(tree, b"leaf_count", int, leaves)
    _numbers(tree, b"shrinkage", float, 1)
    for name in FRACTIONS:
        _numbers(tree, name, float, splits)
    feature, kind, left, right, _ = (_numbers(tree, name, int, splits) for name in INTEGERS)
    if not all(0 <= number < features for number in feature):
        raise ValueError(f"split_feature is not one of {features}")
    if any(bits & CATEGORICAL or not 0 <= bits < 16 for bits in kind):
        raise ValueError("decision_type is not a numerical one")
    _check_children(left, right)


def _check_children(left: list[int], right: list[int]) -> None:
    """Each node but the first, and each leaf (-1 is the first), below exactly one node that came before it."""
    pairs = [(parent, child) for side in (left, right) for parent, child in enumerate(side)]
    wanted = [*range(-len(left) - 1, 0), *range(1, len(left))] if left else []
    if sorted(child for _, child in pairs) != wanted or any(0 <= child <= parent for parent, child in pairs):
        raise ValueError("its nodes are no tree")


def _numbers(tree: Fields, name: bytes, kind: Callable[[bytes], N], count: int) -> list[N]:
    texts = tree[name].split(b" ") if tree[name] else []
    if len(texts) != count or not all(map(_NUMBER.fullmatch, texts)):
        raise ValueError(f"{name.decode()} is not {count} numbers")
    return list(map(kind, texts))


def _fields(block: bytes) -> Fields:
    return {name: value for name, is_field, value in (line.partition(b"=") for line in block.split(b"\n")) if is_field}
