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
    "policy.model=model",
    "policy.image_features=blip2",
    "policy.device=cpu",
    "policy.max_prompt_tokens=6000",
    "tasks.test=[test]",
    "worker.slots=2",
    "evaluate={episodes: 1, slots: 1}",
    "learner.episodes=4",
    "learner.batch_trajectories=2",
    "learner.min_replay=2",
    "learner.updates_per_episode=1.0",
    "learner.eval_every=0",
    "learner.keep_best=false",
    "learner.max_new_tokens=8",
]


def test_a_run_learns_and_ends_with_a_report(tmp_path: Path) -> None:
    from autoui_models import save_autoui, save_blip2

    save_autoui(tmp_path / "model")
    save_blip2(tmp_path / "blip2")
    options = [word for one in SMALL for word in ("--set", one)]
    done = subprocess.run(
        [sys.executable, "-m", "distrl", "train", "autoui", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    run = tmp_path / "runs" / "autoui"
    logs = "\n".join(f"== {log.name}\n{log.read_text()[-3000:]}" for log in run.glob("logs/*.log"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("loss/policy" in row for row in rows), sorted({name for row in rows for name in row})
    report = json.loads((run / "report.json").read_text())
    assert set(report["evaluations"]) == {"warm start", "after training"}
