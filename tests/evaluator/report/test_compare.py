"""Which episodes are shown: what was learned first, failures too, all templates in turn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from episode_factory import make_episode, make_task, write_evaluation

from distrl.core.types import Fault
from distrl.evaluator.report.compare import choose_examples, failure_tables
from distrl.evaluator.report.viewer import build_viewer
from distrl.evaluator.results import LoadedEvaluation, episode_result, load_evaluation
from distrl.evaluator.statistics import EpisodeResult


def result(number: int, success: bool, template: str = "a", fault: Fault = Fault.NONE) -> EpisodeResult:
    trajectory, _ = make_episode(make_task(number, template), success, fault=fault)
    return episode_result(trajectory)


def test_before_and_after_on_the_same_task() -> None:
    before = [result(i, i == 9) for i in range(10)]
    after = [result(i, i not in (7, 9)) for i in range(10)]
    choices = choose_examples({"before": before, "after": after}, 6)
    kinds = Counter(choice.kind for choice in choices)
    assert kinds == {"learned": 4, "still failing": 1, "lost": 1}
    for choice in choices:
        assert [label for label, _ in choice.episodes] == ["before", "after"]
        assert len({episode.task_id for _, episode in choice.episodes}) == 1


def test_a_task_that_changed_in_between_is_not_shown_as_one() -> None:
    before, after = (
        result(0, success).model_copy(update={"digest": str(success)}) for success in (False, True)
    )
    (choice,) = choose_examples({"before": [before], "after": [after]}, 6)
    assert (choice.kind, choice.episodes) == ("solved", (("after", after),))


def test_templates_take_turns_and_faulted_episodes_are_not_examples() -> None:
    episodes = [result(i, True, template) for template in "abc" for i in range(5)]
    choices = choose_examples({"after": [result(9, False, fault=Fault.ENV), *episodes]}, 3)
    assert [choice.episodes[0][1].task_id for choice in choices] == [make_task(0, t).id for t in "abc"]
    assert choose_examples({}, 6) == choose_examples({"only": []}, 6) == []
    assert choose_examples({"only": [result(0, True)]}, 0) == []
    half = choose_examples({"only": [result(i, i % 2 == 0) for i in range(9)]}, 6)
    assert Counter(choice.kind for choice in half) == {"solved": 4, "failed": 2}


@pytest.fixture
def loaded(tmp_path: Path) -> dict[str, LoadedEvaluation]:
    return {
        name: load_evaluation(write_evaluation(tmp_path / name, 60, solved, seed))
        for seed, (name, solved) in enumerate({"before": 0.2, "after": 0.7}.items())
    }


def test_each_mode_is_counted_once_and_all_failures_are_there(loaded: dict[str, LoadedEvaluation]) -> None:
    tables = failure_tables(loaded, {})
    for bar in tables["test"]:
        counted = [episode for episode in loaded[bar.label].episodes if episode.counts]
        failed = [episode for episode in counted if not episode.success]
        assert (bar.episodes, bar.failures) == (59, len(failed))
        for cell in bar.cells:
            assert cell.count == sum(episode.mode is cell.mode for episode in failed)
            assert cell.share == cell.count / 59


def test_the_viewer_stays_within_its_size(loaded: dict[str, LoadedEvaluation]) -> None:
    choices = choose_examples({label: one.episodes for label, one in loaded.items()}, 6)
    whole = build_viewer(loaded, choices)
    sizes = [sum(view.size_bytes for _, view in example.arms) for example in whole.examples]
    limited = build_viewer(loaded, choices, max_bytes=sum(sizes[:2]) + 1)
    assert (len(limited.examples), limited.num_left_out) == (2, 4)
    assert len(limited.anchors) == 4
