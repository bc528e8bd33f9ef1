"""`distrl train` with vLLM as a user runs it: a tiny Qwen-VL learns an adapter on simulated phones."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.needs("torch", "transformers", "jinja2", "vllm"),
    pytest.mark.timeout(900),
]

DEADLINE_S = 840.0
CONFIG = """
name: small
policy:
  kind: hub
  model: MODEL
  device: cpu
  max_prompt_tokens: 400
  lora: {rank: 4, alpha: 8, targets: [q_proj, v_proj]}
inference: {engine: vllm, max_batch: 4, vllm: {kv_cache_gb: 0.125}}
learner:
  episodes: 6
  batch_trajectories: 2
  min_replay: 2
  updates_per_episode: 1.0
  publish_every: 1
  eval_every: 0
  keep_best: false
  max_new_tokens: 12
  demonstrations: {episodes: 2, updates: 2, batch_size: 4, critic_updates: 1}
evaluate: {episodes: 1, slots: 1}
worker: {slots: 3}
local: {workers: 1, inference_servers: 1}
"""


def test_a_run_with_vllm_acts_with_ever_newer_adapters_and_ends_with_a_report(tmp_path: Path) -> None:
    from tiny_qwen import save_qwen25_vl

    save_qwen25_vl(tmp_path / "model")
    (tmp_path / "config.yaml").write_text(CONFIG.replace("MODEL", str(tmp_path / "model")))
    command = [sys.executable, "-m", "distrl", "train", "config.yaml"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    run = tmp_path / "runs" / "small"
    logs = "\n".join(f"== {log.name}\n{log.read_text()[-3000:]}" for log in run.glob("logs/*.log"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    served = [int(number) for number in re.findall(r"weights (\d+) are in use", logs)]
    assert len(served) >= 2
    assert served == sorted(set(served))
    report = json.loads((run / "report.json").read_text())
    assert set(report["evaluations"]) == {"warm start", "after training"}
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert any("loss/policy" in row for row in rows), sorted({name for row in rows for name in row})
