"""Hub models: learner, server and worker on real sockets, in one process.

What a server says is what the learner computes, unless it serves an old adapter under a new number; AutoUI
learns by its preset.
"""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")
pytest.importorskip("peft", reason="needs peft: not installed")

from autoui_models import save_autoui, save_blip2
from role_processes import free_endpoints
from tiny_qwen import save_qwen3_vl
from torch import Tensor

from distrl.cli.run_worker import work
from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.metrics import read_metrics
from distrl.core.rundir import RunDir
from distrl.core.sockets import Wire
from distrl.evaluator.suites import load_suite
from distrl.learner.build import TaskSets, open_learner
from distrl.workers.inference.engine import HFEngine
from distrl.workers.inference.serve import serve_beside_learner

LEAVE_S = 60.0
STUCK_AFTER = 6
"""The version that the wrong server keeps serving."""


def configure(folder: Path) -> Config:
    """Short episodes of counting, an update for each, every one of which is measured."""
    save_qwen3_vl(folder / "model")
    control, broadcast, weights = free_endpoints(3)
    return Config.model_validate(
        {
            "runs_dir": str(folder),
            "tasks": {"suite": "counting_suite:short_tasks"},
            "env": {"import_path": "counting_env:CountingEnv"},
            "agent": {"kind": "autoui"},
            "policy": {
                "kind": "hub",
                "model": str(folder / "model"),
                "device": "cpu",
                "max_prompt_tokens": 400,
                "critic": "head",
                "lora": {"rank": 2, "targets": ["q_proj", "v_proj"]},
            },
            "network": {"control": control, "broadcast": broadcast, "weights": weights},
            "worker": {"slots": 2},
            "learner": {
                "algorithm": "aride",
                "demonstrations": {"episodes": 0, "updates": 0, "critic_updates": 0},
                "optim": {"lr": 0.02},
                "batch_trajectories": 2,
                "min_replay": 2,
                "updates_per_episode": 1.0,
                "publish_every": 1,
                "max_staleness": 2,
                "max_new_tokens": 6,
                "episodes": 14,
                "eval_every": 0,
                "keep_best": False,
                "mismatch": {"every": 1, "alarm_kl": 1e-6},
            },
        }
    )


def complete(config: Config, folder: Path) -> list[dict[str, float]]:
    """Learner, server and worker until the learner is done. Returns the metrics."""
    run = RunDir.create_or_open(config, resume=False)
    tasks = TaskSets(load_suite(config.tasks.suite, "train"), [], [])
    stop = threading.Event()
    with (
        Wire() as wire,
        open_learner(config, run, tasks, stop) as learner,
        serve_beside_learner(config, [], "inference-0", wire),
    ):
        worker = threading.Thread(target=work, args=(config, "w", folder / "spool", stop), daemon=True)
        worker.start()
        try:
            learner.run()
        finally:
            stop.set()
            worker.join(LEAVE_S)
    return list(read_metrics(run.metrics))


def measurements(folder: Path) -> list[dict[str, float]]:
    """What such a run says of the mismatch."""
    return [row for row in complete(configure(folder), folder) if row.get("mismatch/tokens")]


def test_an_old_adapter_under_a_new_number_raises_the_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    load = HFEngine.load
    served: dict[str, Tensor] = {}

    def load_stuck(engine: HFEngine, version: int, state: dict[str, Tensor]) -> None:
        if version <= STUCK_AFTER:
            served.update({name: tensor.clone() for name, tensor in state.items()})
        load(engine, version, served)

    monkeypatch.setattr(HFEngine, "load", load_stuck)
    with caplog.at_level(logging.WARNING):
        rows = measurements(tmp_path)
    right = [row for row in rows if row["step"] < STUCK_AFTER - 1]
    assert right
    assert max(row["mismatch/kl"] for row in right) < 1e-7
    assert not any(row["mismatch/alarm"] or row["mismatch/outside"] for row in right)
    assert rows[-1]["mismatch/alarm"]
    assert rows[-1]["mismatch/kl"] > 1e-6
    assert "Train-inference mismatch: tokens sampled with weights" in caplog.text
    assert re.search(r"worst in trajectory \w+, written by server tcp://", caplog.text)


def test_autoui_learns_by_its_preset(tmp_path: Path) -> None:
    save_autoui(tmp_path / "model")
    save_blip2(tmp_path / "blip2")
    small: dict[str, object] = {
        "runs_dir": tmp_path,
        "policy.model": tmp_path / "model",
        "policy.image_features": tmp_path / "blip2",
        "policy.device": "cpu",
        "policy.max_prompt_tokens": 6000,
        "worker.slots": 2,
        "learner.episodes": 4,
        "learner.batch_trajectories": 2,
        "learner.min_replay": 2,
        "learner.updates_per_episode": 1.0,
        "learner.eval_every": 0,
        "learner.keep_best": "false",
        "learner.max_new_tokens": 8,
    }
    for name, endpoint in zip(("control", "broadcast", "weights"), free_endpoints(3), strict=True):
        small[f"network.{name}"] = endpoint
    config = load_config("autoui", [f"{key}={value}" for key, value in small.items()])
    rows = complete(config, tmp_path)
    assert any("loss/policy" in row for row in rows), sorted({name for row in rows for name in row})
