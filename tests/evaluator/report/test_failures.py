"""Failure modes on the page: counted by split and evaluation, with examples; the limit of the viewer."""

from __future__ import annotations

from pathlib import Path

import pytest
from many_episodes import write_evaluation

from distrl.core.types import Outcome
from distrl.evaluator.failure_modes import FailureMode
from distrl.evaluator.report.compare import choose_examples, choose_failures, failure_data, failure_tables
from distrl.evaluator.report.viewer import build_viewer
from distrl.evaluator.results import LoadedEvaluation, load_evaluation, split_result


@pytest.fixture
def loaded(tmp_path: Path) -> dict[str, LoadedEvaluation]:
    return {
        name: load_evaluation(write_evaluation(tmp_path / name, 60, solved, seed))
        for seed, (name, solved) in enumerate({"before": 0.2, "after": 0.7}.items())
    }


def test_each_mode_is_counted_once_and_all_failures_are_there(loaded: dict[str, LoadedEvaluation]) -> None:
    (table,) = failure_tables(loaded, {})
    for bar in table.bars:
        counted = [episode for episode in loaded[bar.label].episodes if episode.counts]
        failed = [episode for episode in counted if not episode.success]
        assert (bar.episodes, bar.failures, bar.unknown) == (59, len(failed), 0)
        for cell in bar.cells:
            assert cell.count == sum(episode.mode is cell.mode for episode in failed)
            assert cell.share == cell.count / 59
    data = failure_data([table])["test"]["before"]
    assert sum(data["modes"].values()) == data["failures"]


def test_failures_of_an_older_version_are_said_to_be_unclassified(
    loaded: dict[str, LoadedEvaluation],
) -> None:
    one = loaded["after"]
    old = [episode.model_copy(update={"mode": None}) for episode in one.episodes]
    (table,) = failure_tables({"old": LoadedEvaluation(one.directory, one.evaluation, old)}, {})
    (bar,) = table.bars
    assert bar.unknown == bar.failures > 0


def test_every_mode_of_every_evaluation_has_an_example(loaded: dict[str, LoadedEvaluation]) -> None:
    episodes = {label: one.episodes for label, one in loaded.items()}
    chosen = choose_examples(episodes, 2)
    further = choose_failures(episodes, chosen, per_mode=2)
    viewer = build_viewer(loaded, [*chosen, *further])
    assert viewer.num_left_out == 0
    (table,) = failure_tables(loaded, viewer.anchors)
    assert all(len(cell.anchors) >= min(2, cell.count) for row in table.rows for cell in row.cells)
    tasks = [choice.episodes[-1][1].task_id for choice in [*chosen, *further]]
    assert len(tasks) == len(set(tasks))


def test_the_viewer_stays_within_its_size(loaded: dict[str, LoadedEvaluation]) -> None:
    choices = choose_examples({label: one.episodes for label, one in loaded.items()}, 6)
    whole = build_viewer(loaded, choices)
    sizes = [example.size_bytes for example in whole.examples]
    limited = build_viewer(loaded, choices, max_bytes=sum(sizes[:2]) + 1)
    assert (len(limited.examples), limited.num_left_out) == (2, 4)
    assert len(limited.anchors) == 4


def test_an_episode_that_nobody_judged_is_no_failure(loaded: dict[str, LoadedEvaluation]) -> None:
    failed = next(episode for episode in loaded["after"].episodes if episode.mode is FailureMode.STUCK)
    unjudged = failed.model_copy(update={"outcome": Outcome.UNJUDGED, "task_id": "x", "mode": None})
    result = split_result([failed, unjudged])
    assert (result.overall.episodes, result.num_unjudged) == (1, 1)
