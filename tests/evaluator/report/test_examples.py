"""Which episodes are shown: what was learned first, failures too, all templates in turn."""

from __future__ import annotations

from collections import Counter

from episode_factory import make_episode, make_task

from distrl.core.types import Fault
from distrl.evaluator.judges.ground_truth import GroundTruthJudge
from distrl.evaluator.report.compare import choose_examples
from distrl.evaluator.results import episode_result
from distrl.evaluator.statistics import EpisodeResult


def result(number: int, success: bool, template: str = "a", fault: Fault = Fault.NONE) -> EpisodeResult:
    trajectory, _ = make_episode(make_task(number, template), success, fault=fault)
    return episode_result(trajectory, GroundTruthJudge().judge(trajectory, {}), 0)


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


def test_templates_take_turns() -> None:
    episodes = [result(i, True, template) for template in "abc" for i in range(5)]
    choices = choose_examples({"after": episodes}, 3)
    assert {choice.episodes[0][1].template for choice in choices} == {"a", "b", "c"}


def test_one_evaluation_shows_successes_and_failures() -> None:
    episodes = [result(i, i % 2 == 0) for i in range(12)]
    kinds = Counter(choice.kind for choice in choose_examples({"only": episodes}, 6))
    assert kinds == {"solved": 4, "failed": 2}


def test_faulted_episodes_are_not_examples() -> None:
    episodes = [result(0, False, fault=Fault.ENV), result(1, True)]
    choices = choose_examples({"only": episodes}, 6)
    assert [choice.episodes[0][1].task_id for choice in choices] == [make_task(1, "a").id]


def test_nothing_to_show() -> None:
    assert choose_examples({}, 6) == []
    assert choose_examples({"only": []}, 6) == []
    assert choose_examples({"only": [result(0, True)]}, 0) == []
