"""`distrl train autoui` as a user runs it, with tiny random models in the place of AutoUI and BLIP-2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.needs("torch", "transformers", "peft", "jinja2"),
    pytest.mark.timeout(600),
]

DEADLINE_S = 540.0
SMALL = [
    "policy.device=cpu",
    "policy.max_prompt_tokens=6000",
    "worker.slots=2",
    "evaluate={episodes: 1, slots: 1, examples: 1}",
    "learner.episodes=6",
    "learner.batch_trajectories=2",
    "learner.min_replay=2",
    "learner.updates_per_episode=1.0",
    "learner.eval_every=0",
    "learner.keep_best=false",
    "learner.max_new_tokens=8",
    "learner.demonstrations={episodes: 2, updates: 2, batch_size: 4, critic_updates: 1}",
]


def distrl(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "distrl", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    logs = "\n".join(f"== {log}\n{log.read_text()[-3000:]}" for log in directory.glob("runs/*/logs/*.log"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    return done.stdout


def test_a_run_learns_is_exported_and_measured_as_a_model_again(tmp_path: Path) -> None:
    from autoui_models import save_autoui, save_blip2

    save_autoui(tmp_path / "model")
    save_blip2(tmp_path / "blip2")
    models = ["policy.model=model", "policy.image_features=blip2"]
    options = [word for one in [*models, *SMALL] for word in ("--set", one)]
    assert "kind: autoui" in distrl(tmp_path, "train", "autoui", *options, "--dry-run")
    distrl(tmp_path, "train", "autoui", *options)
    run = tmp_path / "runs" / "autoui"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("loss/policy" in row for row in rows), sorted({name for row in rows for name in row})
    report = json.loads((run / "report.json").read_text())
    assert set(report["evaluations"]) == {"warm start", "after training"}
    distrl(tmp_path, "export", "runs/autoui", "--merged", "again")
    again = [*options, "--set", "policy.model=again", "--split", "test"]
    distrl(tmp_path, "evaluate", "autoui", "--agent", "model", *again)
    results = json.loads((tmp_path / "runs" / "evaluations" / "autoui-model" / "results.json").read_text())
    assert results["spec"]["subject"] == {"kind": "model", "name": "again"}
