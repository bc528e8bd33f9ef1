"""The page about one's own environment, agent and tasks: its code runs as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
README = Path(__file__).parents[1] / "README.md"
FILE = re.compile(r"^\*\*`(\S+)`\*\*.*?^```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A directory with the files of the page."""
    folder = tmp_path / "mine"
    folder.mkdir()
    files = dict(FILE.findall(PAGE.read_text(encoding="utf-8")))
    modules = {f"my_{name}.py" for name in ("env", "agent", "tasks", "objective", "judge")}
    assert set(files) == modules | {"mine.yaml"}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def distrl(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    # As the console script does, and unlike `python -m`, it does not put the current directory on the path.
    code = "import sys; sys.path[0] = sys.prefix; from distrl.cli.main import main; main()"
    environment = {name: value for name, value in os.environ.items() if name != "DISTRL_DEBUG"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.needs("jinja2")
def test_the_page_s_commands_work_where_its_files_are(mine: Path) -> None:
    listed = distrl("tasks", "list", "my_tasks:tasks", cwd=mine)
    assert "clicks/12" in listed.stdout, listed.stderr
    measured = distrl("evaluate", "mine.yaml", "--agent", "expert", cwd=mine)
    assert measured.returncode == 0, measured.stderr
    assert re.search(r"test +100%", measured.stdout)
    assert (mine / "runs/evaluations/mine-expert/report.html").is_file()
    (command,) = re.findall(r"^    distrl (.* --rejudge .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    judged = distrl(*command.split(), cwd=mine)
    assert "Count against ground truth: 100.0% agree" in judged.stdout, judged.stderr


def test_a_run_s_own_configuration_finds_the_modules_from_elsewhere(mine: Path, tmp_path: Path) -> None:
    """As `train` starts its processes: with the copy of the configuration in the run directory."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shown = distrl("train", str(mine / "mine.yaml"), "--dry-run", cwd=elsewhere)
    assert shown.returncode == 0, shown.stderr
    (elsewhere / "config.yaml").write_text(shown.stdout, encoding="utf-8")
    measured = distrl("evaluate", "config.yaml", "--agent", "expert", "--output", "e", cwd=elsewhere)
    assert measured.returncode == 0, measured.stderr
    assert "100%" in measured.stdout


def test_what_its_code_raises_is_one_line_with_its_place(mine: Path) -> None:
    file = mine / "my_env.py"
    text = file.read_text(encoding="utf-8").replace("self.count += ", "self.cuont += ")
    file.write_text(text, encoding="utf-8")
    line = text[: text.index("self.cuont")].count("\n") + 1
    wrong = distrl("evaluate", "mine.yaml", "--agent", "expert", cwd=mine)
    assert wrong.returncode == 16
    told = "error: my_env:Clicker.step raised AttributeError: 'Clicker' object has no attribute 'cuont'"
    assert wrong.stderr.splitlines()[-1].startswith(told)
    assert f"(my_env.py:{line})" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_the_environment_in_the_readme_is_solved_by_its_expert(tmp_path: Path) -> None:
    code = re.search(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert code is not None
    (tmp_path / "my_env.py").write_text(code[1], encoding="utf-8")
    task = "{id: a, suite: s, template: t, split: test, goal: Tap twice, params: {times: 2}, max_steps: 5}"
    (tmp_path / "tasks.yaml").write_text(f"- {task}\n", encoding="utf-8")
    config = "tasks: {suite: tasks.yaml, test: [test]}\nenv: {import_path: 'my_env:Clicker'}\n"
    (tmp_path / "mine.yaml").write_text(config, encoding="utf-8")
    measured = distrl("evaluate", "mine.yaml", "--agent", "expert", cwd=tmp_path)
    assert re.search(r"test +100%", measured.stdout), measured.stderr
