"""The tiles and the small print of a report: how long, how much, how fresh, how measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distrl.configs.schema import Config, LearnerConfig
from distrl.core.verdicts import Spent
from distrl.evaluator.report.chart import short_number
from distrl.evaluator.report.metrics import ELAPSED, EPISODES, UPDATES, RunMetrics
from distrl.evaluator.report.page import duration
from distrl.evaluator.results import Evaluation, LoadedEvaluation

WEIGHT_VERSION, JUDGE = "versions", "judge"
ACTIONS, BATCH_SIZE = "workers/actions_per_s", "inference/batch_size"
STALENESS, WORST_STALENESS = "off_policy/staleness_mean", "off_policy/staleness_max"


@dataclass(frozen=True)
class Fact:
    """A tile. `key` and `number` are its entry in report.json."""

    key: str
    number: float
    label: str
    value: str
    note: str = ""


def run_facts(loaded: Mapping[str, LoadedEvaluation], metrics: RunMetrics) -> list[Fact]:
    """What is known of the run; a fact that was not measured is left out."""
    facts = [*_training_facts(metrics), *_judge_facts(metrics)]
    evaluations = [one.evaluation for one in loaded.values()]
    if evaluations:
        newest = evaluations[-1]
        count = sum(split.overall.episodes for split in newest.splits.values())
        spent = newest.duration_s
        facts.append(
            Fact("evaluation_episodes", count, "Evaluation", f"{count}", f"episodes in {duration(spent)}")
        )
        asked = Spent.total(split.spent for split in newest.splits.values())
        if asked.calls:
            note = f"{asked.describe()}, faulted tries included"
            facts.append(Fact("model_cost", asked.cost, "Prompted model", _price(asked), note))
        if newest.spec.subject.kind == "served" and newest.weight_versions[1] >= 0:
            facts.append(_version_fact(newest.weight_versions))
    return facts


def _training_facts(metrics: RunMetrics) -> list[Fact]:
    elapsed, episodes = metrics.last(ELAPSED), metrics.last(EPISODES)
    updates, staleness = metrics.last(UPDATES), metrics.series(STALENESS, UPDATES)
    facts = []
    if elapsed is not None:
        facts.append(Fact("duration_s", elapsed, "Training time", duration(elapsed)))
    if episodes is not None:
        speed = f"{60 * episodes / elapsed:.0f} per minute" if elapsed else ""
        facts.append(Fact("episodes", episodes, "Training episodes", f"{episodes:,.0f}", speed))
    actions = _training_mean(metrics, ACTIONS)
    if actions is not None:
        size = _training_mean(metrics, BATCH_SIZE)
        note = f"per second, in batches of {size:.1f}" if size else "per second"
        facts.append(Fact("actions_per_s", actions, "Actions", f"{actions:,.1f}", note))
    if updates is not None:
        facts.append(Fact("updates", updates, "Learner updates", f"{updates:,.0f}"))
    version = metrics.last(WEIGHT_VERSION)
    if version is not None:
        facts.append(Fact("weight_version", version, "Weights published", f"{version:,.0f}", "versions"))
    if staleness:
        mean = math.fsum(value for _, value in staleness) / len(staleness)
        worst = max((value for _, value in metrics.series(WORST_STALENESS, UPDATES)), default=mean)
        note = f"versions on average, {short_number(worst)} at most"
        facts.append(Fact("staleness", mean, "Staleness", f"{mean:.1f}", note))
    return facts


def _judge_facts(metrics: RunMetrics) -> list[Fact]:
    """What the judge of a run was asked, and what that took, since the learner was started last."""
    judged, unjudged = metrics.last(f"{JUDGE}/judged"), metrics.last(f"{JUDGE}/unjudged")
    if judged is None or unjudged is None or not judged + unjudged:
        return []
    note = f"episodes, and {unjudged:,.0f} unjudged"
    facts = [Fact("judged", judged, "Judged", f"{judged:,.0f}", note)]
    taken = {name: metrics.last(f"{JUDGE}/{name}") or 0.0 for name in Spent.model_fields}
    spent = Spent(cost=taken.pop("cost"), **{name: int(number) for name, number in taken.items()})
    if spent.calls:
        facts.append(Fact("judge_cost", spent.cost, "Judge", _price(spent), spent.describe()))
    return facts


def _price(spent: Spent) -> str:
    """The cost; without prices the tokens."""
    return f"{spent.cost:.4g}" if spent.cost else f"{spent.input_tokens + spent.output_tokens:,} tokens"


def _training_mean(metrics: RunMetrics, name: str) -> float | None:
    """The mean of what is measured now and then, over the time in which the policy was trained.

    A row speaks for the time since the one before that has this number. Those without an update are left out:
    the workers waited, or demonstrated.
    """
    total, duration_s, before = 0.0, 0.0, 0.0
    for row in metrics.rows:
        if name in row:
            span_s, before = row[ELAPSED] - before, row[ELAPSED]
            if row.get(UPDATES, 0.0) > 0.0:
                total += span_s * row[name]
                duration_s += span_s
    return total / duration_s if duration_s > 0.0 else None


def _version_fact(versions: tuple[int, int]) -> Fact:
    low, high = versions
    text = f"v{high}" if low == high else f"v{low}–v{high}"
    return Fact("evaluated_version", high, "Weights measured", text)


def methods(loaded: Mapping[str, LoadedEvaluation], config: Config | None = None) -> list[tuple[str, str]]:
    """How the numbers came about, as (heading, text)."""
    evaluations = [one.evaluation for one in loaded.values()]
    subjects = "; ".join(f"{label}: {_subject(one)}" for label, one in loaded.items())
    kinds = {one.spec.subject.kind for one in evaluations}
    is_trained = not kinds or bool(kinds & {"checkpoint", "served"})
    trained = [] if config is None or not is_trained else [("Training", _objective(config.learner))]
    return [
        ("Who", f"{subjects}."),
        *trained,
        ("Episodes", f"{_episodes(evaluations)} {_sampling(evaluations)}".strip()),
        (
            "Success",
            "A program checks the state behind the screen when the episode ends. In part is not solved.",
        ),
        (
            "Intervals",
            "Wilson's 95% score interval. Of the gain Tango's, with McNemar's exact test, where the same "
            "instances were tried; else Newcombe's, built from the two. Over repetitions they are of as many "
            "trials as these are worth: the fewer, the more alike those of a task are.",
        ),
        (
            "Faults",
            "An episode that the environment, the device or a server broke is tried again, and listed apart "
            "if it stays broken. It is never counted as a failure.",
        ),
        ("Repeated actions", "The share of actions that repeat the one before on an unchanged screen."),
    ]  # fmt: skip


def _episodes(evaluations: Sequence[Evaluation]) -> str:
    """How often each task is tried, and from which start."""
    if any(one.seeds for one in evaluations):
        return (
            "One episode per task and seed of the repetitions, which draw the starts anew, but not where a "
            "task's seed says what it asks for."
        )
    return "One episode per task, each task started from its own seed."


def _sampling(evaluations: Sequence[Evaluation]) -> str:
    """How actions are chosen, where a policy chooses them."""
    specs = [one.spec for one in evaluations if one.spec.subject.kind not in ("expert", "random")]
    temperatures = {spec.temperature for spec in specs}
    if evaluations and not specs:
        return ""
    if temperatures <= {0.0}:
        return "A policy takes the most probable action at every step."
    return f"Actions are sampled at temperature {', '.join(str(t) for t in sorted(temperatures))}."


def _objective(learner: LearnerConfig) -> str:
    """The objective and, for A-RIDE, where it goes beyond the paper's."""
    if learner.algorithm != "aride":
        return f"Behaviour cloning of an expert, then {learner.algorithm} on the agent's own episodes."
    aride, beyond = learner.aride, []
    if aride.policy_clip is not None:
        high = aride.policy_clip_high or aride.policy_clip
        beyond.append(f"PPO's clip ({aride.policy_clip:g} below, {high:g} above)")
    if aride.negative_weight < 1.0:
        beyond.append(f"advantages below 0 weighing {aride.negative_weight:g}")
    if aride.entropy_by_failure:
        beyond.append("entropy where the critic expects failure")
    ends = f", with what the paper does not have: {', '.join(beyond)}" if beyond else ""
    return f"Behaviour cloning of an expert, then A-RIDE on the agent's own episodes{ends}."


def _subject(one: LoadedEvaluation) -> str:
    subject = one.evaluation.spec.subject
    words = {"served": "a served policy", "expert": "the scripted expert", "random": "random actions"}
    if subject.kind == "prompted":
        return f"the prompted model {subject.name}"
    if subject.kind == "model":
        return f"{subject.name}, untrained"
    return words.get(subject.kind, f"checkpoint {subject.name}")
