"""A judge against ground truth: the numbers against slow ones, and the order of the errors."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from distrl.core.types import Task, Verdict
from distrl.evaluator.agreement import Judged, agreement, compare, disagreements, lines
from distrl.evaluator.report.viewer import write_agreement_page
from distrl.evaluator.statistics import wilson


def judged(
    truth: bool | None, score: float, decided: bool = True, template: str = "a", number: int = 0
) -> Judged:
    verdict = Verdict(success=score >= 0.5, score=score, reason="It says.", is_decided=decided, judge="j")
    name = f"{template}-{number}"
    return Judged(
        trajectory_id=name,
        task_id=name,
        template=template,
        split="test",
        goal="Go",
        truth=truth,
        verdict=verdict,
    )


def test_reasons_without_a_verdict_are_counted() -> None:
    ones = [judged(True, 0.0, decided=False, number=number) for number in range(3)]
    other = ones[0].verdict.model_copy(update={"reason": "The endpoint\nanswers 500."})
    ones[0] = ones[0].model_copy(update={"verdict": other})
    report = compare([*ones, judged(True, 1.0)], "j", "s")
    assert report.unjudged == {"It says.": 2, "The endpoint answers 500.": 1}
    assert "  2 unjudged: It says." in lines(report)


def slow_kappa(pairs: list[tuple[bool, bool]]) -> float:
    """Agreement beyond chance, by counting what would agree if the second were dealt at random."""
    n = len(pairs)
    by_chance = sum(first == second for first, _ in pairs for _, second in pairs) / n**2
    observed = sum(first == second for first, second in pairs) / n
    return (observed - by_chance) / (1 - by_chance)


def test_kappa_is_agreement_beyond_chance() -> None:
    for seed in range(4):
        rng = random.Random(seed)
        share, noise = rng.uniform(0.2, 0.8), rng.uniform(0.0, 0.5)
        truths = [rng.random() < share for _ in range(200)]
        pairs = [(truth != (rng.random() < noise), truth) for truth in truths]
        found = agreement([judged(truth, float(said), number=i) for i, (said, truth) in enumerate(pairs)])
        assert found.kappa == pytest.approx(slow_kappa(pairs))
        assert found.rate == pytest.approx(sum(said == truth for said, truth in pairs) / 200)
        matrix = [pairs.count(pair) for pair in ((True, True), (True, False), (False, True), (False, False))]
        assert matrix == [found.both, found.judge_only, found.truth_only, found.neither]


def test_intervals_are_of_as_many_trials_as_the_episodes_are_worth() -> None:
    """A judge's errors stick to tasks: asked thrice about each, it has told as much as once."""
    rng = random.Random(3)
    said = [(rng.random() < 0.5, rng.random() < 0.2) for _ in range(80)]
    once = [judged(truth, float(truth is not wrong), number=i) for i, (truth, wrong) in enumerate(said)]
    one, three = agreement(once), agreement(once * 3)
    assert (three.total, three.rate) == (240, one.rate)
    assert three.kappa == pytest.approx(one.kappa)
    assert three.interval.low == pytest.approx(one.interval.low, abs=1e-3)
    assert three.interval.high == pytest.approx(one.interval.high, abs=1e-3)
    apart = [judged(one.truth, one.verdict.score, number=i) for i, one in enumerate(once * 3)]
    assert agreement(apart).interval.low > one.interval.low + 0.02


@pytest.mark.parametrize(
    ("truths", "scores"),
    [((True, True), (1.0, 0.0)), ((True, False), (1.0, 1.0)), ((True, True), (1.0, 1.0))],
)
def test_kappa_is_not_defined_where_one_of_the_two_always_says_the_same(
    truths: tuple[bool, bool], scores: tuple[float, float], tmp_path: Path
) -> None:
    said = [judged(truth, score, template=t) for truth, score, t in zip(truths, scores, "ab", strict=True)]
    report = compare(said, "j", "here")
    assert report.overall.kappa is None
    assert lines(report)[0].endswith("n = 2, κ not defined")
    pytest.importorskip("jinja2", reason="needs jinja2: not installed")
    write_agreement_page(tmp_path / "page.html", report, said, iter(()))
    assert '<td class="n">–</td>' in (tmp_path / "page.html").read_text()


def test_what_is_not_decided_or_not_known_is_counted_apart() -> None:
    report = compare(
        [judged(True, 1.0), judged(True, 0.0, decided=False), judged(None, 1.0), judged(False, 0.9)],
        "j",
        "here",
    )
    assert (report.overall.total, report.overall.undecided, report.unknown) == (2, 1, 1)
    assert report.overall.rate == 0.5
    assert (report.overall.precision, report.overall.recall) == (0.5, 1.0)


def test_the_judges_own_rate_needs_no_truth_and_counts_what_fails_in_any_case() -> None:
    said = [judged(None, 1.0, number=1), judged(True, 0.0, number=2), judged(None, 0.0, number=3)]
    said += [judged(None, 1.0, template="b"), judged(None, 0.9, decided=False, template="b", number=5)]
    failed = [Task(id="c-0", suite="s", template="c", split="test", goal="Go")]
    report = compare(said, "j", "here", failed)
    assert report.solved is not None
    assert (report.solved.successes, report.solved.episodes, report.solved.rate) == (2, 5, 0.4)
    assert report.solved.interval == wilson(2, 5)
    found = {name: (one.successes, one.episodes) for name, one in report.solved_templates.items()}
    assert found == {"a": (1, 3), "b": (1, 1), "c": (0, 1)}
    told = lines(report)
    assert told[0] == "by j: 40.0% solved (11.8 to 76.9), 2 of 5"
    assert [line.split()[0] for line in told[1:4]] == ["a", "b", "c"]
    assert told[4].startswith("  1 of these fail in any case")
    assert compare(said, "j", "here").solved is None, "of parts of episodes there is none"
    nothing = lines(compare([], "j", "here", []))
    assert "nothing decided" in nothing[0]
    assert "nothing to compare" in nothing[1]


def test_the_surest_errors_come_first() -> None:
    found = disagreements(
        [judged(True, 0.4, number=1), judged(False, 0.99, number=2), judged(True, 0.9, number=3),
         judged(False, 0.6, number=4), judged(False, 0.99, decided=False, number=5)]
    )  # fmt: skip
    assert [one.task_id for one in found] == ["a-2", "a-1", "a-4"]
