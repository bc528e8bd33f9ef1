"""`distrl sweep` as a user runs it, over continuous control: a run fails, one is interrupted and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from waiting import until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: children end with their parent"),
    pytest.mark.timeout(900),
    pytest.mark.needs("torch", "gymnasium", "jinja2"),
]

DEADLINE_S = 300.0
ARMS = {
    "broken": {"env.options.id": "broken_env:Broken-v0"},
    "learns": {"learner.algorithm.max_env_steps": 40_000},
    "cannot": {"learner.algorithm.local_lr": 1e-9},
}
BROKEN_ENV = """
import sys
import gymnasium
from appo_envs import Aim

class Broken(Aim):
    def __init__(self):
        super().__init__()
        if "sweep" not in sys.argv:  # which makes one to see whether the configuration is right
            raise RuntimeError("There is no simulator.")

gymnasium.register(id="Broken-v0", entry_point=Broken)
"""


class SweepProcess:
    """A `distrl sweep` in `directory`; its output goes to a file."""

    def __init__(self, directory: Path, number: int, *options: str) -> None:
        self.out = directory / f"out-{number}.txt"
        command = [sys.executable, "-m", "distrl", "sweep", "try.yaml", *options]
        with self.out.open("w") as out:
            self.process = subprocess.Popen(
                command, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )

    @property
    def output(self) -> str:
        return self.out.read_text()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., SweepProcess]]:
    from appo_world import config_data

    base = config_data(max_env_steps=3000, eval_every=1024) | {"evaluate": {"episodes": 20, "slots": 4}}
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    (tmp_path / "try.yaml").write_text(yaml.safe_dump({"base": "base.yaml", "arms": ARMS, "seeds": [3]}))
    (tmp_path / "broken_env.py").write_text(BROKEN_ENV)
    started: list[SweepProcess] = []

    def _start(*options: str) -> SweepProcess:
        started.append(SweepProcess(tmp_path, len(started), *options))
        return started[-1]

    yield _start
    for sweep in started:
        sweep.process.kill()
        sweep.process.wait()


def distrl(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "distrl", *arguments]
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_a_sweep_is_resumed_after_an_interruption_past_a_failure_and_a_run_of_it_measured(
    tmp_path: Path, start
) -> None:
    runs = tmp_path / "runs" / "try"
    run, log = runs / "learns" / "seed-3", runs / "learns" / "seed-3.log"
    first = start("--arms", "broken,learns")

    def is_training() -> bool:
        assert first.process.poll() is None, first.output
        return log.is_file() and "[training]" in log.read_text()

    until(is_training, "training", DEADLINE_S, details=lambda: first.output)
    first.process.send_signal(signal.SIGINT)
    assert first.process.wait(60.0) == 130, first.output
    assert "Waiting for the checkpoint of the run under way" in first.output
    assert "Continue with: distrl sweep" in first.output
    assert "broken, seed 3 failed" in first.output
    assert "There is no simulator" in first.output, "the failed run's log is shown"
    assert (run / "checkpoints" / "latest").is_file()

    again = start()
    assert again.process.wait(DEADLINE_S) == 11, again.output + log.read_text()[-3000:]
    assert "learns seed 3 continues" in again.output
    assert "broken, seed 3 failed" in again.output
    assert "resumed after" in (run / "logs" / "learner.log").read_text()
    arms = {arm["name"]: arm for arm in json.loads((runs / "results.json").read_text())["arms"]}
    assert [arms[name]["seeds"] for name in ARMS] == [[], [3], [3]]
    assert arms["learns"]["after"]["value"] > arms["cannot"]["after"]["value"] + 1.0
    assert arms["learns"]["episodes"]["value"] > 100
    assert "| learns | 1/1 |" in (runs / "table.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in runs.glob("*/seed-3/**/*")}

    last = start("--arms", "learns,cannot")
    assert last.process.wait(DEADLINE_S) == 0, last.output
    assert "starts" not in last.output
    assert "continues" not in last.output
    assert {path: path.stat().st_mtime_ns for path in runs.glob("*/seed-3/**/*")} == before

    assert not (run / "logs" / "inference-0.log").exists()
    told = distrl(tmp_path, "evaluate", "base.yaml", "--checkpoint", str(run), "--output", "measured")
    measured = json.loads((tmp_path / "measured" / "results.json").read_text())
    final = next((run / "evaluations").iterdir())
    assert measured["mean"] == json.loads((final / "results.json").read_text())["mean"]
    assert len(measured["returns"]) == 20
    assert "mean return" in told
    data = json.loads((run / "report.json").read_text())
    assert data["evaluations"]["after training"]["mean"] == measured["mean"]
    assert data["learning_curve"]["env_steps"]["validation"]
    assert "Return over environment steps" in (run / "report.html").read_text()
