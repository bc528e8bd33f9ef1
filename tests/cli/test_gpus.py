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


def test_each_process_gets_its_own() -> None:
    assert places() == {"learner": ("0",), "inference-0": ("1",)}
    assert places("local.inference_servers=3") == {
        "learner": ("0",), "inference-0": ("1",), "inference-1": ("2",), "inference-2": ("3",),
    }  # fmt: skip
    many = places("learner.num_processes=2", VLLM, "inference.engine.tensor_parallel_size=2")
    assert many == {"learner": ("0", "1"), "inference-0": ("2", "3")}


def test_servers_share_what_is_left() -> None:
    shared = places("local.inference_servers=3", visible=["5", "7"])
    assert shared == {"learner": ("5",), **{f"inference-{i}": ("7",) for i in range(3)}}


def test_servers_go_where_the_learner_is_if_nothing_is_left() -> None:
    all_ranks = places("learner.num_processes=4", "local.inference_servers=2")
    assert all_ranks == {"learner": tuple(FOUR), "inference-0": ("0",), "inference-1": ("1",)}
    wide = places(VLLM, "inference.engine.tensor_parallel_size=4")
    assert wide == {"learner": ("0",), "inference-0": tuple(FOUR)}


@pytest.mark.parametrize(
    ("settings", "visible", "who"),
    [
        ([], FOUR, None),
        (["local.inference_servers=3"], FOUR, None),
        (["local.inference_servers=4"], FOUR, "GPU 1 is for inference-0, inference-3,"),
        (["local.inference_servers=4", "inference.engine.gpu_memory_utilization=0.4"], FOUR, None),
        (["learner.num_processes=4"], FOUR, "GPU 0 is for learner, inference-0,"),
        ([], ["0"], "GPU 0 is for learner, inference-0,"),
        (["inference.engine.gpu_memory_utilization=0.4"], ["0"], None),
        ([], [], None),
        (["local.gpus=shared"], FOUR, "GPU 0 is for learner, inference-0,"),
        (["learner.device=cuda:1"], FOUR, None),
    ],
)
def test_a_gpu_with_too_little_room_for_vllm_is_told(settings, visible, who) -> None:
    config = load_config("qwen-vl", [VLLM, *settings])
    said = gpus.crowded(config, gpus.for_training(config, visible), visible)
    assert (said is None) if who is None else said.startswith(who)
    without = [setting for setting in settings if not setting.startswith("inference.engine")]
    assert gpus.crowded(load_config("qwen-vl", without), {}, visible) is None


def test_who_is_on_the_cpu_takes_none() -> None:
    assert places("learner.device=cpu") == {"inference-0": ("0",)}
    assert places("policy.device=cpu") == {"learner": ("0",)}


@pytest.mark.parametrize("setting", ["local.gpus=shared", "learner.device=cuda:1", "policy.device=cuda:0"])
def test_who_chooses_devices_is_left_alone(setting) -> None:
    assert places(setting) == {}
    assert gpus.for_evaluations(load_config("qwen-vl", [setting]), ["a", "b"], FOUR) == {}


def test_one_gpu_is_shared_by_all() -> None:
    assert places(visible=["0"]) == {}
    assert places(visible=[]) == {}


def test_continuous_control_needs_none() -> None:
    assert places(preset="appo-lunarlander") == {}


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


def test_numbers_are_in_the_order_of_who_gave_them() -> None:
    assert gpus.variables(["1", "2"], {}) == {gpus.VISIBLE: "1,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert gpus.variables(["1"], {gpus.VISIBLE: "0,1"}) == {gpus.VISIBLE: "1"}
    assert gpus.variables([], {}) == {}


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
    assert "GPUs: learner 4, inference-0 6; unused: 7 (local.inference_servers" in out.getvalue()


@pytest.mark.parametrize(("settings", "expected"), [((), ["4", "6"]), (("local.gpus=shared",), [None])])
def test_evaluations_run_at_once_if_each_has_a_gpu(tmp_path: Path, monkeypatch, settings, expected) -> None:
    run, started, _ = local_run(tmp_path, monkeypatch, *settings)
    names = {"warm start": "step_0", "after training": "step_4"}
    monkeypatch.setattr("distrl.cli.local.run.arms", lambda run, config: names)
    monkeypatch.setattr("distrl.cli.local.run.resolve", lambda directory, name: directory / name)
    monkeypatch.setattr(Supervisor, "is_done", lambda self, name: False)
    assert run.evaluate() is None
    assert [program.env.get(gpus.VISIBLE) for program in started] == expected
