"""A server that serves an old LoRA adapter under new numbers: all roles on real sockets, in one process."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")
pytest.importorskip("peft", reason="needs peft: not installed")

from role_processes import free_endpoints
from tiny_qwen import save_qwen3_vl
from torch import Tensor

from distrl.cli.run_worker import work
from distrl.configs.schema import Config
from distrl.core.metrics import read_metrics
from distrl.core.rundir import RunDir
from distrl.core.sockets import Wire
from distrl.evaluator.suites import load_suite
from distrl.learner.build import TaskSets, open_learner
from distrl.workers.inference.engine_hf import HFEngine
from distrl.workers.inference.serve import serve_beside_learner

LEAVE_S = 60.0
STUCK_AFTER = 8
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
                "episodes": 24,
                "eval_every": 0,
                "keep_best": False,
                "mismatch": {"every": 1, "alarm_kl": 1e-6},
            },
        }
    )


def complete(folder: Path) -> list[dict[str, float]]:
    """Learner, server and worker until the learner is done. Returns the measurements."""
    config = configure(folder)
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
    return [row for row in read_metrics(run.metrics) if row.get("mismatch/tokens")]


def test_what_the_server_says_is_what_the_learner_computes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        rows = complete(tmp_path)
    assert len(rows) >= 10
    assert max(row["mismatch/kl"] for row in rows) < 1e-7
    assert max(row["mismatch/outside"] for row in rows) == 0.0
    assert not any(row["mismatch/alarm"] for row in rows)
    assert "mismatch" not in caplog.text


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
        rows = complete(tmp_path)
    assert not rows[0]["mismatch/alarm"]
    assert rows[0]["mismatch/kl"] < 1e-7
    assert rows[-1]["mismatch/alarm"]
    assert rows[-1]["mismatch/kl"] > 1e-6
    assert "Train-inference mismatch: tokens sampled with weights" in caplog.text
    assert re.search(r"worst in trajectory \w+, written by server tcp://", caplog.text)
