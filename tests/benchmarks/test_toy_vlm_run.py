"""benchmarks/toy_vlm.py as a user runs it: `distrl train qwen-vl` with a tiny model, from start to report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import toy_vlm

from distrl.core.metrics import read_metrics

pytestmark = [
    pytest.mark.needs("torch", "transformers", "peft", "jinja2"),
    pytest.mark.timeout(900),
]


@pytest.mark.parametrize("engine", ["hf", pytest.param("vllm", marks=pytest.mark.needs("vllm"))])
def test_what_pays_is_found_by_trying(engine: str, tmp_path: Path) -> None:
    outcome = toy_vlm.run(tmp_path, "corner", 0, engine, ["learner.episodes=288"])
    before, after = outcome.before["all"], outcome.after["all"]
    assert before.episodes == after.episodes == 48
    assert after.interval.low > before.interval.high, (before, after)

    run = tmp_path / "runs" / "latest"
    report = json.loads((run / "report.json").read_text())
    assert set(report["evaluations"]) == {"warm start", "after training"}
    assert (run / "report.html").is_file()
    measured = [row for row in read_metrics(run / "metrics.jsonl") if row.get("mismatch/tokens")]
    assert measured
    assert max(row["mismatch/outside"] for row in measured) == 0.0, "learner and server disagree"
