"""Reading a YAML file into a checked, frozen type: every complaint is one line that names file, field and value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
import yaml

from ranker.errors import ConfigError

MAX_FILE_BYTES = 16 * 1024 * 1024
MAX_SHOWN = 80

T = TypeVar("T")

_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_AT = re.compile(r" - at `(?:key in )?\$(.*)`$")


def read_yaml(path: Path) -> Any:
    """The content of a YAML file; an empty one is an empty mapping.

    Raises:
        ConfigError: it cannot be read, is too large, is not YAML, has the same key twice, or has aliases.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: is larger than {MAX_FILE_BYTES} bytes")
    try:
        # _Loader is a SafeLoader: plain values only.
        tree = yaml.load(content, _Loader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {_one_line(error)}") from error
    return {} if tree is None else tree


def load(path: Path, kind: type[T]) -> T:
    """A file as a frozen struct.

    Raises:
        ConfigError: also for an unknown key, naming its nearest neighbour, and for a value of the wrong type or range.
    """
    return build(path, read_yaml(path), kind)


def build(path: Path, tree: Any, kind: type[T], field: str = "") -> T:
    """The part of a file at `field` as a frozen struct."""
    _check_keys(path, tree, kind, field)
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_explained(error, tree, field)}") from error


def _explained(error: msgspec.ValidationError, tree: Any, field: str) -> str:
    """`port: Expected `int`, got `str`, not 'http'`."""
    text = str(error)
    place = _AT.search(text)
    steps = place[1] if place else ""
    name = (field + steps).lstrip(".") or "the file"
    value = _value_at(tree, steps)
    shown = "" if isinstance(value, Mapping) else f", not {_shown(value)}"
    return f"{name}: {_AT.sub('', text)}{shown}".replace("\n", " ")


def _value_at(tree: Any, steps: str) -> Any:
    for key, index in _STEP.findall(steps):
        try:
            tree = tree[key] if key else tree[int(index)]
        except (KeyError, IndexError, TypeError, ValueError):
            break
    return tree


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def _check_keys(path: Path, tree: Any, kind: Any, field: str) -> None:
    """Walks the types along the values: msgspec would name an unknown key, but not what was meant."""
    if get_origin(kind) in (Union, UnionType):
        for part in get_args(kind):
            _check_keys(path, tree, part, field)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(tree, Mapping):
        _check_struct(path, tree, kind, field)
    elif isinstance(tree, Mapping) and get_origin(kind) is dict:
        for key, value in tree.items():
            _check_keys(path, value, get_args(kind)[1], f"{field}.{key}")
    elif isinstance(tree, list) and get_origin(kind) in (list, tuple):
        for index, value in enumerate(tree):
            _check_keys(path, value, get_args(kind)[0], f"{field}[{index}]")


def _check_struct(path: Path, tree: Mapping[Any, Any], kind: type[msgspec.Struct], field: str) -> None:
    kinds = get_type_hints(kind)
    for key, value in tree.items():
        name = f"{field}.{key}".lstrip(".")
        if key not in kinds:
            near = difflib.get_close_matches(str(key), kinds, 1, 0.0)
            raise ConfigError(f"{path}: {name}: unknown key {_shown(key)}; the nearest known one is {near[0]!r}")
        _check_keys(path, value, kinds[key], name)


def _one_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error) or type(error).__name__
    return " ".join(problem.split()) + (f" in line {mark.line + 1}" if mark is not None else "")


_NUMBER = r"[-+]?(?:0|[1-9][0-9]*)"
# YAML 1.2's plain values: with those of 1.1 `off` and `NO` would be false, and 22:00 would be 1320.
_PLAIN = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", _NUMBER, list("-+0123456789")),
    (
        "float",
        rf"(?:{_NUMBER}(?:\.[0-9]*)?|[-+]?\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan",
        list("-+.0123456789"),
    ),
)


class _Loader(yaml.SafeLoader):
    """Plain values without repeated keys and without aliases (which could grow a small file without end)."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = cast(Any, self).peek_event().start_mark
            raise yaml.constructor.ConstructorError(None, None, "aliases are not supported", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"the key {key.value!r} is there twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [
        *(
            (f"tag:yaml.org,2002:{tag}", re.compile(rf"(?:{pattern})\Z"))
            for tag, pattern, firsts in _PLAIN
            if first in firsts
        ),
        *(pair for pair in _Loader.yaml_implicit_resolvers.get(first, ()) if pair[0].endswith(":timestamp")),
    ]
    for first in {first for _, _, firsts in _PLAIN for first in firsts}
}
