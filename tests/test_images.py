"""The images can be built from what the repository has, and the compose file fits them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from distrl.configs.load import load_config
from distrl.core.sockets import is_local

ROOT = Path(__file__).resolve().parent.parent
DOCKERFILES = sorted((ROOT / "docker").glob("*.Dockerfile"))
COMPOSE = ROOT / "docker" / "compose.yaml"
FOLDERS = ("appo", "cli", "configs", "core", "docs", "evaluator", "learner", "simulator", "src", "workers")


def extras() -> set[str]:
    """Those that pyproject.toml defines."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text.split("[project.optional-dependencies]\n")[1].split("\n[")[0]
    return set(re.findall(r"^([\w-]+) = \[", section, re.MULTILINE))


def compose() -> dict[str, Any]:
    """The compose file, with the defaults of its variables."""
    text = COMPOSE.read_text(encoding="utf-8")
    found = yaml.safe_load(re.sub(r"\$\{\w+:?-([^}]*)\}", r"\1", text))
    assert isinstance(found, dict)
    return found


def test_the_build_context_is_what_the_package_is_built_from() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert sent == {*FOLDERS, "pyproject.toml", "constraints.txt", "README.md", "LICENSE"}
    assert "*" in lines, "keys and runs must not be sent"
    assert [name for name in sent if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("file", [*DOCKERFILES, COMPOSE], ids=lambda path: path.name)
def test_every_extra_is_defined(file: Path) -> None:
    named = re.findall(r"EXTRAS[=:] *(?:\$\{EXTRAS:-)?([\w,-]+)", file.read_text(encoding="utf-8"))
    assert named
    assert {name for names in named for name in names.split(",")} <= extras()


def test_a_worker_gets_no_torch() -> None:
    text = (ROOT / "docker" / "worker.Dockerfile").read_text(encoding="utf-8")
    assert not {"train", "vllm", "all"} & set(
        re.findall(r"[\w-]+", " ".join(re.findall(r"EXTRAS=\S+", text)))
    )


@pytest.mark.parametrize("file", DOCKERFILES, ids=lambda path: path.name)
def test_hadolint_finds_nothing(file: Path) -> None:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if program is None:
        pytest.skip("needs hadolint: not installed")
    found = subprocess.run([program, "--no-color", str(file)], capture_output=True, text=True, check=False)
    assert found.stdout == ""
    assert found.returncode == 0, found.stderr


def test_the_services_fit_the_images() -> None:
    found = compose()
    for name, service in found["services"].items():
        build = service["build"]
        assert (COMPOSE.parent / build["context"] / build["dockerfile"]).resolve() in DOCKERFILES
        assert {volume.split(":")[0] for volume in service["volumes"]} <= set(found["volumes"])
        (script,) = service["command"]
        script = script.replace("$$", "$")
        shell = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False)
        assert (name, shell.stderr) == (name, "")
    assert "server.key" not in found["services"]["worker"]["command"][0]
    assert found["services"]["worker"]["volumes"] == ["farm-keys:/work/keys:ro"]


def test_the_services_use_a_valid_configuration() -> None:
    environment = compose()["services"]["worker"]["environment"]
    settings = [word.removeprefix("--set=") for word in environment["SETTINGS"].split()]
    config = load_config(environment["CONFIG"], settings)
    assert not is_local(config.network.control)
    assert config.network.keys_dir
