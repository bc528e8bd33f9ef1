"""Which GPUs a local run's processes see, by the environment that they would be started with."""

from __future__ import annotations

import io
import threading
from pathlib import Path

import pytest

from distrl.cli.local import gpus
from distrl.cli.local.programs import free_addresses
from distrl.cli.local.run import LocalRun
from distrl.configs.load import load_config
from distrl.core.rundir import RunDir
from distrl.core.supervisor import Program, Supervisor
from distrl.core.terminal import Console

FOUR = ["0", "1", "2", "3"]
VLLM = "inference.engine=vllm"


def places(*settings: str, visible: list[str] = FOUR, preset: str = "qwen-vl") -> gpus.Places:
    return gpus.for_training(load_config(preset, list(settings)), visible)


RANKS = "learner.num_processes"
WIDTH = "inference.engine.tensor_parallel_size"
SERVERS = "local.inference_servers"


@pytest.mark.parametrize(
    ("settings", "visible", "learner", "servers"),
    [
        ([], FOUR, "0", ["1"]),
        ([f"{SERVERS}=3"], FOUR, "0", ["1", "2", "3"]),
        ([f"{RANKS}=2", VLLM, f"{WIDTH}=2"], FOUR, "01", ["23"]),
        ([f"{SERVERS}=3"], ["5", "7"], "5", ["7", "7", "7"]),  # they share what is left
        ([f"{RANKS}=4", f"{SERVERS}=2"], FOUR, "0123", ["0", "1"]),  # nothing is left
        ([VLLM, f"{WIDTH}=4"], FOUR, "0", ["0123"]),
        ([VLLM, "local.gpus=colocated"], FOUR, "0", ["0"]),
        (["learner.device=cpu"], FOUR, "", ["0"]),
        (["policy.device=cpu"], FOUR, "0", []),
        (["learner.device=cuda:1"], FOUR, "", []),
        (["policy.device=cuda:0"], FOUR, "", []),
        ([], ["0"], "", []),
        ([], [], "", []),
    ],
)
def test_each_process_gets_its_own_as_far_as_they_go(settings, visible, learner, servers) -> None:
    expected = {"learner": tuple(learner)} if learner else {}
    expected |= {f"inference-{i}": tuple(mine) for i, mine in enumerate(servers)}
    assert places(*settings, visible=visible) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("2, 5", ["2", "5"]), ("GPU-ab,GPU-cd", ["GPU-ab", "GPU-cd"]), ("0,-1,1", ["0"]), ("", [])],
)
def test_what_the_user_lets_cuda_see_counts(value, expected) -> None:
    assert gpus.visible({gpus.VISIBLE: value}) == expected


def test_else_nvidia_smi_says_what_is_there(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.visible({}) == []
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\n[ "$1" = --query-gpu=index ] && printf "0\\n1\\n"\n')
    program.chmod(0o755)
    assert gpus.visible({}) == ["0", "1"]


def local_run(tmp_path: Path, monkeypatch, *settings: str) -> tuple[LocalRun, list[Program], io.StringIO]:
    """One that is told to stop at once, and what it starts."""
    config = load_config("qwen-vl", [f"runs_dir={tmp_path}", *settings])
    started: list[Program] = []
    monkeypatch.setattr(Supervisor, "start", lambda self, program: started.append(program))
    monkeypatch.setenv(gpus.VISIBLE, "4,6,7")
    stop, out = threading.Event(), io.StringIO()
    stop.set()
    run = RunDir.create_or_open(config, resume=False)
    console = Console(file=out, width=200)
    return LocalRun(config, free_addresses(config.network), run, stop, console), started, out


def test_a_run_starts_its_processes_so(tmp_path: Path, monkeypatch) -> None:
    run, started, out = local_run(tmp_path, monkeypatch)
    assert not run.train()
    seen = {program.name: program.env.get(gpus.VISIBLE) for program in started}
    assert seen == {"learner": "4", "inference-0": "6", "worker-0": None}
    assert "GPUs: learner 4, inference-0 6." in out.getvalue()
