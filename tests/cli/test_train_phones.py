"""`distrl train phones`: lists of instructions on devices of one's own, as docs/evaluation.md says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.cli.run_kind import GuiRun
from distrl.configs.load import check_config, load_config
from distrl.core.errors import ConfigError, TaskError

DATA = Path(__file__).parents[2] / "docs" / "evaluation.md"
runner = CliRunner()


@pytest.fixture(autouse=True)
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The documented import, of three lists."""
    monkeypatch.chdir(tmp_path)
    command = re.search(r"^ *distrl (tasks import train=.*)$", DATA.read_text(encoding="utf-8"), re.MULTILINE)
    assert command is not None
    for goal, name in enumerate(re.findall(r"=(\S+\.txt)", command[1])):
        Path(name).write_text(f"Open app {goal}\n", encoding="utf-8")
    assert runner.invoke(app, command[1].split()).exit_code == 0


def excerpt() -> dict[str, Any]:
    """What the documentation shows of the preset."""
    section = DATA.read_text(encoding="utf-8").partition("## Lists of instructions")[2]
    found = re.search(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert found is not None
    shown: dict[str, Any] = yaml.safe_load(found[1])
    return shown


def holds(whole: object, part: object) -> bool:
    """Whether `whole` has all that `part` says."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(holds(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and all(map(holds, whole, part)) and len(whole) == len(part)
    return whole == part


def test_imported_instructions_pass_with_the_preset_and_with_what_is_documented() -> None:
    assert GuiRun(load_config("phones")).check_tasks() == []
    assert GuiRun(check_config(excerpt(), "docs/evaluation.md")).check_tasks() == []
    assert holds(load_config("phones").model_dump(mode="json"), excerpt())


@pytest.mark.parametrize(
    ("overrides", "error", "message"),
    [
        (["devices.pool=[]"], TaskError, "no task template 'instruction'"),
        (
            ["tasks.validation=none"],
            TaskError,
            r"tasks\.validation: .* no split 'none'. Its splits: train, val",
        ),
        (["learner.demonstrations.episodes=200"], ConfigError, "no scripted expert"),
        (["worker.rewards.source=environment"], ConfigError, "split 'train' cannot be judged"),
    ],
)
def test_each_step_that_is_missed_is_told(overrides: list[str], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        GuiRun(load_config("phones", overrides)).check_tasks()
