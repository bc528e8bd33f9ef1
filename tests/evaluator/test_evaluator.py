"""The evaluator on a counting phone: numbers, retries, faults apart, resuming, stopping, broken slots."""

from __future__ import annotations

import re
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from counting_phone import (
    CountingEnv,
    Quiet,
    TappingPolicy,
    counting_config,
    write_suite,
)
from episode_factory import make_task
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, NothingCameIn, RunDirectoryError
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Purpose
from distrl.evaluator.evaluator import Evaluator, select_tasks
from distrl.evaluator.measure import Measured, measure
from distrl.evaluator.report.compare import compare
from distrl.evaluator.results import EPISODES_FILE, SplitResult, Subject, load_evaluation, read_episodes
from distrl.evaluator.runner import EvaluationStopped

SERVED = Subject(kind="served", name="here")


def run(config: Config, tmp_path: Path, taps: int = 1) -> SplitResult:
    """The test split, measured with a policy that taps so often."""
    evaluator = Evaluator(config, tmp_path / "out", SERVED, progress=Quiet())
    return evaluator.run(lambda _: TappingPolicy(taps)).splits["test"]


@pytest.fixture(autouse=True)
def no_resets() -> None:
    CountingEnv.resets.clear()


def test_a_policy_is_measured_by_split_and_template(tmp_path: Path) -> None:
    tasks = [
        {"taps": 2, "template": "two"},
        {"taps": 2, "template": "two"},
        {"taps": 3, "template": "three"},
        {"taps": 2, "split": "unseen_layout"},
    ]
    config = counting_config(write_suite(tmp_path, tasks), temperature=0.5)
    config = config.model_copy(update={"learner": config.learner.model_copy(update={"max_new_tokens": 7})})
    evaluator = Evaluator(config, tmp_path / "out", SERVED, ["test", "unseen_layout"], progress=Quiet())
    policy = TappingPolicy(2)
    evaluation = evaluator.run(lambda _: policy)

    assert {(asked.temperature, asked.max_new_tokens) for asked in policy.asked} == {(0.5, 7)}
    test = evaluation.splits["test"]
    assert (test.overall.successes, test.overall.episodes) == (2, 3)
    assert test.templates["two"].success_rate == 1.0
    assert test.templates["three"].success_rate == 0.0
    assert evaluation.splits["unseen_layout"].overall.success_rate == 1.0
    assert evaluation.weight_versions == (4, 4)
    loaded = load_evaluation(tmp_path / "out")
    assert loaded.evaluation == evaluation
    store = TrajectoryStore(loaded.directory / "store.sqlite3")
    kept = list(store.iterate())
    assert len(kept) == 4
    for trajectory in kept:
        assert trajectory.purpose is Purpose.EVAL
        assert set(store.images(trajectory.image_digests)) == set(trajectory.image_digests)
    store.close()


def test_faults_are_retried_and_what_stays_broken_is_listed_apart(tmp_path: Path) -> None:
    config = counting_config(
        write_suite(tmp_path, [{"taps": 1, "faults": 1}, {"taps": 1, "faults": 99}, {"taps": 5}]), retries=2
    )
    progress = Quiet()
    evaluation = Evaluator(config, tmp_path / "out", SERVED, progress=progress).run(
        lambda _: TappingPolicy(1)
    )
    result = evaluation.splits["test"]
    assert (result.overall.successes, result.overall.episodes) == (1, 2)
    assert [(e.task_id[-2:], e.fault, e.attempt) for e in result.faulted] == [("/1", Fault.DEVICE, 2)]
    assert sum("trying again" in line for line in progress.said) == 3
    again = Evaluator(config, tmp_path / "out", SERVED, resume=True, progress=Quiet())
    (faulted,) = again.run(lambda _: TappingPolicy(1)).splits["test"].faulted
    assert faulted.attempt == 5, "as many tries again, counted on: no two share a name"


def test_when_no_phone_starts_the_evaluation_ends(tmp_path: Path) -> None:
    config = counting_config(write_suite(tmp_path, [{"taps": 1}] * 5))
    config = config.model_copy(update={"env": config.env.model_copy(update={"options": {"starts": False}})})
    with pytest.raises(NothingCameIn, match="No environment starts: the phone does not boot"):
        run(config, tmp_path)
    assert not (tmp_path / "out").exists()


def test_an_interrupted_evaluation_continues_where_it_stopped(tmp_path: Path) -> None:
    config = counting_config(write_suite(tmp_path, [{"taps": 1}] * 6), slots=1)
    stop = threading.Event()

    evaluator = Evaluator(config, tmp_path / "out", SERVED, stop=stop, progress=Quiet(stop, stop_after=2))
    with pytest.raises(EvaluationStopped, match="keeps the finished episodes"):
        evaluator.run(lambda _: TappingPolicy(1))
    with pytest.raises(RunDirectoryError, match="exists already"):
        Evaluator(config, tmp_path / "out", SERVED, progress=Quiet())

    progress = Quiet()
    evaluator = Evaluator(config, tmp_path / "out", SERVED, resume=True, progress=progress)
    evaluation = evaluator.run(lambda _: TappingPolicy(1))
    assert progress.said[0] == "2 of 6"
    assert len(progress.results) == 4
    assert evaluation.splits["test"].overall.episodes == 6
    assert evaluation.duration_s == 0.0, "earlier sessions are not timed"


def test_an_error_before_the_first_episode_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    class Broken(TappingPolicy):
        """Answers so many times."""

        def __init__(self, answers: int) -> None:
            super().__init__(1)
            self.left = answers

        def act(self, *given: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise ZeroDivisionError("a bug")
            return super().act(*given)

    config, out = counting_config(write_suite(tmp_path, [{"taps": 1}] * 3), slots=1), tmp_path / "out"
    with pytest.raises(ZeroDivisionError):
        Evaluator(config, out, SERVED, progress=Quiet()).run(lambda _: Broken(0))
    assert not out.exists()
    other = Subject(kind="served", name="there")
    with pytest.raises(ZeroDivisionError):
        Evaluator(config, out, other, progress=Quiet()).run(lambda _: Broken(2))
    assert len(read_episodes(out / EPISODES_FILE)) == 1
    with pytest.raises(ZeroDivisionError):
        Evaluator(config, out, other, resume=True, progress=Quiet()).run(lambda _: Broken(0))
    assert len(read_episodes(out / EPISODES_FILE)) == 1


def test_baselines(tmp_path: Path) -> None:
    """Credit asks for the agent's word that it is done, so a random agent must be able to say it."""
    config = counting_config(write_suite(tmp_path, [{"taps": 0}] * 24))
    expert = measure(config, Measured(agent="expert"), tmp_path / "expert", progress=Quiet())
    assert expert.splits["test"].overall.success_rate == 1.0
    assert expert.weight_versions == (-1, -1)
    random = measure(config, Measured(agent="random"), tmp_path / "random", progress=Quiet())
    assert 0.0 < random.splits["test"].overall.success_rate < 1.0


def test_it_must_be_clear_whom_to_measure() -> None:
    for who in (Measured(), Measured(agent="expert", learner="tcp://127.0.0.1:1"), Measured(agent="monkey")):
        with pytest.raises(ConfigError, match=r"Choose what to evaluate|no baseline agent 'monkey'"):
            who.subject()


def test_an_evaluation_with_other_settings_is_not_continued(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, [{"taps": 1}])
    measure(counting_config(suite), Measured(agent="expert"), tmp_path / "out", progress=Quiet())
    for section, change in (
        ("env", {"options": {"starts": False}}),
        ("agent", {"options": {"history": 0}}),
        ("worker", {"rewards": {"require_complete": False}}),
    ):
        raw = counting_config(suite).model_dump()
        raw[section] |= change
        other = Config.model_validate(raw)
        with pytest.raises(RunDirectoryError, match="holds another evaluation"):
            measure(other, Measured(agent="expert"), tmp_path / "out", resume=True, progress=Quiet())


def test_edited_tasks_are_neither_continued_nor_compared(tmp_path: Path) -> None:
    expert = Measured(agent="expert")
    config = counting_config(write_suite(tmp_path, [{"taps": 1}, {"taps": 2}]))
    measure(config, expert, tmp_path / "before", progress=Quiet())
    write_suite(tmp_path, [{"taps": 1}, {"taps": 3}])
    with pytest.raises(RunDirectoryError, match=r"the tasks of .*counting\.jsonl, .* have changed since"):
        measure(config, expert, tmp_path / "before", resume=True, progress=Quiet())
    measure(config, expert, tmp_path / "after", progress=Quiet())
    loaded = {name: load_evaluation(tmp_path / name) for name in ("before", "after")}
    assert compare(loaded)[0].overall.unlike == "not on the same tasks and seeds: 1 in common"


@pytest.mark.needs("jinja2")
def test_the_command_and_its_report_show_faults_rates_and_gains(tmp_path: Path) -> None:
    tasks = [{"taps": 1}, {"taps": 2, "faults": 1}, {"taps": 1, "faults": 9}]
    file = tmp_path / "counting.yaml"
    file.write_text(counting_config(write_suite(tmp_path, tasks)).to_yaml())
    said = ""
    for agent, options in (("random", []), ("expert", ["--baseline", str(tmp_path / "random")])):
        CountingEnv.resets.clear()
        words = ["evaluate", str(file), "--agent", agent, "--output", str(tmp_path / agent), *options]
        result = CliRunner().invoke(app, [*words, "--split", "test"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        said = result.output
    assert "2 of 2, 2.5 steps\n" in said
    assert "  invalid actions 0%, repeated 0%, " in said
    assert "3 faulted episodes were tried again\n" in said
    assert "1 tasks faulted in every try and are not counted\n" in said
    assert re.search(r"^test gains \+\d+\.0 points \([+-].* to \+.*\); \d newly solved, 0 lost$", said, re.M)
    page = (tmp_path / "expert" / "report.html").read_text()
    assert page.count("the phone went away") == 2, "of each of the two evaluations, apart"
    assert "Tango" in page


def test_an_evaluation_that_only_faults_ends_with_a_line_and_a_code(tmp_path: Path) -> None:
    tasks = [{"taps": 1, "faults": 9}, {"taps": 2, "faults": 9}]
    file = tmp_path / "counting.yaml"
    file.write_text(counting_config(write_suite(tmp_path, tasks)).to_yaml())
    words = ["evaluate", str(file), "--agent", "expert", "--output", str(tmp_path / "out"), "--split", "test"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 12, result.output
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "nothing was measured: all 2 tasks faulted, the last by device (" in errors[0]
    assert "the phone went away" in errors[0]
    assert "--resume" in errors[0]


TASKS = [make_task(i, template) for template, n in (("a", 6), ("b", 3), ("c", 1)) for i in range(n)]


def test_templates_share_the_limit() -> None:
    chosen = select_tasks(TASKS, 5)
    assert Counter(task.template for task in chosen) == {"a": 2, "b": 2, "c": 1}
    assert chosen == [task for task in TASKS if task in chosen]
    assert select_tasks(TASKS, None) == select_tasks(TASKS, 99) == TASKS
