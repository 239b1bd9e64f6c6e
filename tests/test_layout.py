"""The import rules of the layout: arrows point inwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("features", "ranker", "training")
FOUNDATIONS = {"types", "errors", "config", "second_config", "config_file", "policy_config", "clock", "degraded"}
FORBIDDEN_EVERYWHERE = {"pickle", "marshal", "shelve"}


@dataclass(frozen=True)
class Import:
    """A module imported somewhere; `inside` a function (or for types only), or at the top of the file."""

    source: str
    target: str
    inside: bool

    def __str__(self) -> str:
        return f"{self.source} imports {self.target}"


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path) -> Iterator[Import]:
    tree = ast.parse(path.read_text("utf-8"), str(path))
    inner = {node for block in ast.walk(tree) if is_deferred(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            targets = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (Import(module_of(path), target, node in inner) for target in targets)


def is_deferred(node: ast.AST) -> bool:
    """Whether what it imports is not imported with its module: a function's body, or for types only."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    assert files
    return [found for path in files for found in imports_of(path)]


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def broken(found: list[Import]) -> list[str]:
    return [str(each) for each in found]


def test_features_import_nothing_of_ours(imports: list[Import]) -> None:
    assert not broken([i for i in imports if within(i.source, "features") and within(i.target, "ranker", "training")])


def test_nothing_imports_training_or_the_api_but_the_command_line_inside_functions(imports: list[Import]) -> None:
    def allowed(found: Import) -> bool:
        home = "training" if within(found.target, "training") else "ranker.api"
        by_command = found.inside and within(found.source, "ranker.cli", "ranker.commands")
        return within(found.source, home) or by_command

    inward = [i for i in imports if within(i.target, "training", "ranker.api")]
    assert not broken([i for i in inward if not allowed(i)])


def test_nothing_imports_the_command_line(imports: list[Import]) -> None:
    inward = [i for i in imports if within(i.target, "ranker.cli", "ranker.commands")]
    assert not broken([i for i in inward if not within(i.source, "ranker.cli", "ranker.commands")])


def test_the_foundations_of_ranker_import_only_each_other_and_features(imports: list[Import]) -> None:
    modules = tuple(f"ranker.{name}" for name in FOUNDATIONS)
    ours = [i for i in imports if i.source in modules and within(i.target, "ranker", "training")]
    assert not broken([i for i in ours if not within(i.target, *modules)])


def test_stages_never_import_each_other(imports: list[Import]) -> None:
    between = [i for i in imports if within(i.source, "ranker.stages") and within(i.target, "ranker.stages")]
    assert not broken(between)


def test_the_inference_core_knows_neither_users_actions_nor_http(imports: list[Import]) -> None:
    core = [i for i in imports if within(i.source, "ranker.inference")]
    outside = ("features", "ranker.stages", "ranker.api", "ranker.types", "training", "fastapi", "starlette")
    assert not broken([i for i in core if within(i.target, *outside)])


@pytest.mark.parametrize(
    ("library", "home"), [("fastapi", "ranker.api"), ("redis", "features.redis_store"), ("uvicorn", "ranker")]
)
def test_a_library_stays_where_it_belongs(imports: list[Import], library: str, home: str) -> None:
    assert not broken([i for i in imports if within(i.target, library) and not within(i.source, home)])


def test_nothing_can_run_what_it_reads(imports: list[Import]) -> None:
    assert not broken([i for i in imports if i.target.split(".")[0] in FORBIDDEN_EVERYWHERE])
