"""The rules of the layout: who imports whom, where libraries enter, and how long things get."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("appo", "cli", "configs", "core", "evaluator", "learner", "simulator", "workers")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 80

# Folder → what of distrl it may import besides itself. configs is a leaf, but for core's errors, the
# names of published models and the user's own modules.
ALLOWED = {
    "core": set(),
    "configs": {"core.errors", "core.importing", "core.published"},
    "workers": {"core", "configs"},
    "learner": {"core", "configs"},
    "simulator": {"core", "workers.devices"},
    "evaluator": {"core", "configs", "workers"},
    "appo": {"core", "configs", "workers", "learner", "evaluator"},
    "cli": {"core", "configs", "workers", "learner", "evaluator", "appo"},
}
TORCH_FOLDERS = ("core/policies/", "workers/inference/", "learner/", "evaluator/judges/", "appo/")
TORCH_FAMILY = {"torch", "transformers", "tokenizers", "peft", "accelerate", "safetensors", "tensorboard"}
ONE_FILE = (
    "zmq",
    "datasets",
    "adbutils",
    "deepspeed",
    "ray",
    "selenium",
    "miniwob",
    "grpc",
    "google.protobuf",
    "rich.console.Console",  # core/terminal.py: others would not escape what they print
)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imports(path: Path) -> Iterator[str]:
    """All modules that the file imports, anywhere in it; `from a import b` counts as a.b."""
    for node in ast.walk(tree(path)):
        yield from imported_by(node)


def imported_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"a relative import in line {node.lineno}"
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def folder_problem(path: Path, module: str) -> str | None:
    """What is wrong with `path` importing `module`, if anything."""
    folder, inside = name_of(path).partition("/")[0], module.removeprefix("distrl.")
    if module.partition(".")[0] in FOLDERS:
        return f"import distrl.{module} instead"
    if inside in (module, "__version__") or within(inside, folder):
        return None
    if not any(within(inside, allowed) for allowed in ALLOWED[folder]):
        return f"{folder} may not import it"
    return None


def test_folders_import_only_what_they_may() -> None:
    found = [
        (name_of(path), module, folder_problem(path, module)) for path in FILES for module in imports(path)
    ]
    assert [problem for problem in found if problem[2]] == []


def test_torch_stays_in_its_folders() -> None:
    users = {name_of(p) for p in FILES if {m.partition(".")[0] for m in imports(p)} & TORCH_FAMILY}
    assert sorted(user for user in users if not user.startswith(TORCH_FOLDERS)) == []


def test_without_the_torch_folders_nothing_loads_torch() -> None:
    """Every other module imports in one process, and torch is not there afterwards: a worker needs none."""
    light = [name_of(path) for path in FILES if not name_of(path).startswith(TORCH_FOLDERS)]
    modules = [
        "distrl." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in light
    ]
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}:\n    importlib.import_module(name)\n"
        f"print('loaded:', *(set(sys.modules) & {TORCH_FAMILY!r}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.rpartition("loaded:")[2].split() == []


@pytest.mark.parametrize("library", ONE_FILE)
def test_heavy_libraries_enter_through_one_file(library: str) -> None:
    users = [name_of(path) for path in FILES if any(within(module, library) for module in imports(path))]
    assert len(users) <= 1, f"{library} is imported by {users}"
    if library == "zmq":
        assert users == ["core/sockets.py"]


def test_vllm_enters_where_it_serves_and_where_the_learner_sends_it_weights() -> None:
    users = [name_of(path) for path in FILES if any(within(module, "vllm") for module in imports(path))]
    assert users == ["learner/transfer.py", "workers/inference/engine_vllm.py"]


def test_commands_import_only_light_things_at_the_top() -> None:
    heavy = []
    for path in (ROOT / "cli").glob("*.py"):
        for node in tree(path).body:
            for module in imported_by(node):
                package = module.partition(".")[0]
                is_light = package in {"typer", "__future__", *sys.stdlib_module_names}
                ours = any(
                    within(module, ok) for ok in ("distrl.cli", "distrl.core.errors", "distrl.__version__")
                )
                if not is_light and not ours:
                    heavy.append((name_of(path), module))
    assert heavy == []


def test_help_is_light() -> None:
    code = (
        "import sys\nfrom distrl.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "print('loaded:', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    loaded = set(result.stdout.rpartition("loaded:")[2].split())
    assert "typer" in loaded
    assert not loaded & {*TORCH_FAMILY, "zmq", "pydantic", "yaml", "numpy", "PIL", "adbutils", "msgpack"}


def test_files_and_functions_stay_short() -> None:
    long = []
    for path in FILES:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > MAX_FILE_LINES:
            long.append((name_of(path), "", lines))
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                length = node.end_lineno - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    long.append((name_of(path), node.name, length))
    assert long == []


def test_every_file_says_what_it_is_about() -> None:
    assert [
        name_of(path) for path in FILES if path.stat().st_size and not ast.get_docstring(tree(path))
    ] == []


def test_no_grab_bags() -> None:
    assert not [name_of(path) for path in FILES if path.stem in {"utils", "helpers", "misc", "common"}]


def test_the_simulator_has_no_import_circle_of_more_than_four_files() -> None:
    """An app can be read without the phone around it, and the phone without its adb."""
    names = [
        (path, "distrl." + name_of(path)[:-3].replace("/", ".").removesuffix(".__init__")) for path in FILES
    ]
    modules = {name: path for path, name in names if within(name, "distrl.simulator")}
    below = {
        name: {found if found in modules else found.rpartition(".")[0] for found in imports(path)}
        & set(modules)
        for name, path in modules.items()
    }

    def reached(start: str) -> set[str]:
        seen, left = set[str](), [start]
        while left:
            new = below[left.pop()] - seen
            seen |= new
            left += new
        return seen

    reach = {name: reached(name) for name in modules}
    circles = {frozenset(other for other in reach[name] if name in reach[other]) for name in modules}
    assert [sorted(circle) for circle in circles if len(circle) > 4] == []
