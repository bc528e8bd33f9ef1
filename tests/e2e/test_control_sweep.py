"""`distrl sweep` over runs of continuous control, as a user runs it; measuring and reporting one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: children end with their parent"),
    pytest.mark.timeout(900),
    pytest.mark.needs("torch", "gymnasium", "jinja2"),
]


def distrl(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "distrl", *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_two_arms_are_run_compared_measured_and_reported(tmp_path: Path) -> None:
    from appo_world import config_data

    base = config_data(max_env_steps=3000, eval_every=1024)
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base | {"evaluate": {"episodes": 20, "slots": 4}}))
    arms = {"learns": {}, "cannot": {"learner.algorithm.local_lr": 1e-9}}
    (tmp_path / "try.yaml").write_text(yaml.safe_dump({"base": "base.yaml", "arms": arms, "seeds": [3]}))
    table = distrl(tmp_path, "sweep", "try.yaml")
    assert "learns" in table
    results = json.loads((tmp_path / "runs" / "try" / "results.json").read_text())
    after = {arm["name"]: arm["after"]["value"] for arm in results["arms"]}
    assert after["learns"] > after["cannot"] + 1.0
    assert all(arm["episodes"]["value"] > 100 for arm in results["arms"])

    run = tmp_path / "runs" / "try" / "learns" / "seed-3"
    assert not (run / "logs" / "inference-0.log").exists()
    told = distrl(tmp_path, "evaluate", "base.yaml", "--checkpoint", str(run), "--output", "measured")
    measured = json.loads((tmp_path / "measured" / "results.json").read_text())
    final = next((run / "evaluations").iterdir())
    assert measured["mean"] == json.loads((final / "results.json").read_text())["mean"]
    assert len(measured["returns"]) == 20
    assert "mean return" in told
    random = distrl(tmp_path, "evaluate", "base.yaml", "--agent", "random", "--output", "random")
    assert "mean return -" in random

    (run / "report.html").unlink()
    distrl(tmp_path, "report", str(run))
    page = (run / "report.html").read_text()
    assert "Return over environment steps" in page
    data = json.loads((run / "report.json").read_text())
    assert data["evaluations"]["after training"]["mean"] == measured["mean"]
    assert data["learning_curve"]["env_steps"]["validation"]
