"""The wheel holds every module and every data file of the package."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("appo", "cli", "configs", "core", "evaluator", "learner", "simulator", "workers")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, free of what earlier builds left behind."""
    source = tmp_path_factory.mktemp("source")
    for folder in (*FOLDERS, "src"):
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / folder, source / folder, symlinks=True, ignore=ignore)
    shutil.copytree(ROOT / "docs", source / "docs")
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source / file)
    return source


@pytest.fixture(scope="module")
def names(source: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The file names in the wheel built from that copy."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=environment, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_file_of_the_package_is_in_the_wheel(source: Path, names: set[str]) -> None:
    expected = {"distrl/__init__.py", "distrl/__main__.py", "distrl/py.typed"}
    for folder in FOLDERS:
        files = [
            path for path in (source / folder).rglob("*") if path.is_file() and path.parent.name != "images"
        ]
        expected |= {f"distrl/{path.relative_to(source).as_posix()}" for path in files}
    assert sorted(expected - names) == []
    assert "distrl/configs/quickstart.yaml" in names
    assert not [name for name in names if not name.startswith(("distrl/", "distrl-"))]


def test_the_pages_that_messages_refer_to_are_in_the_wheel(source: Path, names: set[str]) -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in source.rglob("*.py"))
    pages = set(re.findall(r"(?<![\w/])(?:simulator/)?docs/[a-z-]+\.md", text))
    assert "docs/extending.md" in pages
    assert {f"distrl/{page}" for page in pages} <= names
