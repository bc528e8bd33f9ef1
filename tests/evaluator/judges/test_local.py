"""The trained judge, end to end on a tiny store: it learns what one screen says, and shows its errors."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch
import yaml
from episode_factory import make_episode, make_step, make_task, make_undrawn, screen
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.judge import LocalJudgeConfig
from distrl.configs.policy import TinyConfig
from distrl.core.errors import ConfigError, JudgeError, StoreError
from distrl.core.store import TrajectoryStore
from distrl.core.types import ActionRecord, Element, Fault, Flag, Outcome, Purpose, Trajectory, Verdict
from distrl.evaluator.agreement import Judged
from distrl.evaluator.judges.local.data import (
    choose_episodes,
    is_askable,
    read_examples,
    split,
    stored_examples,
)
from distrl.evaluator.judges.local.judge import LocalJudge, probability
from distrl.evaluator.judges.local.model import read_judge
from distrl.evaluator.judges.local.prompt import MAX_ACTIONS, MAX_LINES, Vocabulary, read_words
from distrl.evaluator.judges.local.training import Plan, calibrate, fit_judge
from distrl.evaluator.rejudge import read_verdicts
from distrl.evaluator.stores import drawn

SMALL = TinyConfig(image_size=(36, 80), d_model=24, num_layers=1, num_heads=2, d_ff=48, max_prompt_tokens=256)
PLAN = Plan(episodes=100, epochs=20, batch_size=8, learning_rate=5e-3, averaged=0.5, policy=SMALL)


def row(name: str, top: float, *flags: Flag) -> tuple[Element, ...]:
    """A row of a list as phones have it: the row, its title, and a switch that has no text."""
    return (
        Element(text=name, bounds=(0.0, top, 1.0, top + 0.1), class_name="ViewGroup", flags=("clickable",)),
        Element(text=name, bounds=(0.1, top, 0.5, top + 0.1), class_name="TextView"),
        Element(text="", bounds=(0.8, top, 0.9, top + 0.1), class_name="Switch", flags=flags),
    )


def episode(
    number: int, success: bool, purpose: Purpose = Purpose.TRAIN
) -> tuple[Trajectory, dict[str, bytes]]:
    """The switch that the goal names is on or off, and another one the other way round."""
    task = make_task(number, goal=f"Turn on switch-{number}").model_copy(update={"seed": 0})
    trajectory, images = make_episode(task, success=True)
    assert trajectory.final is not None
    flags: tuple[Flag, Flag] = ("checked", "unchecked") if success else ("unchecked", "checked")
    elements = (*row(f"switch-{number}", 0.1, flags[0]), *row("Other", 0.3, flags[1]))
    final = trajectory.final.model_copy(update={"elements": elements})
    outcome = Outcome.SUCCESS if success else Outcome.FAILURE
    changes = {"final": final, "success": float(success), "outcome": outcome, "purpose": purpose}
    return trajectory.model_copy(update=changes), images


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 60 tasks, half of them solved."""
    place = tmp_path_factory.mktemp("run")
    store = TrajectoryStore(place / "store.sqlite3")
    for number in range(60):
        store.add(*episode(number, number % 2 == 0))
    store.close()
    return place


@pytest.fixture(scope="module")
def trained(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("judge") / "judge"
    report, _, _ = fit_judge([place], directory, PLAN, lambda line: None)
    assert report.overall.total == 12
    assert report.overall.rate >= 0.9
    return directory


def test_it_judges_what_it_has_not_seen(trained: Path) -> None:
    judge = LocalJudge(LocalJudgeConfig(path=str(trained)))
    for success in (True, False):
        verdict = judge.judge(*episode(101, success))
        assert verdict.success is success
        assert verdict.is_decided
        assert verdict.judge == "local"
        assert 0.0 <= verdict.score <= 1.0


def test_who_is_not_sure_enough_is_undecided(trained: Path) -> None:
    judge = LocalJudge(LocalJudgeConfig(path=str(trained), min_confidence=0.9))
    assert not judge.verdict(0.0).is_decided
    assert judge.verdict(1e3).is_decided
    assert judge.verdict(1e3).success
    assert not judge.verdict(-1e3).success
    judge._card = judge._card.model_copy(update={"threshold": 0.05, "temperature": 1.0})
    assert judge.verdict(-2.0).success, "beyond its threshold"
    assert not judge.verdict(-2.0).is_decided, "12% are not 90%"
    judge._config = LocalJudgeConfig(path=str(trained))
    assert judge.verdict(-2.0).is_decided, "who asks for no confidence gets a verdict"


def test_a_broken_picture_and_missing_elements_are_undecided(trained: Path) -> None:
    trajectory, images = episode(0, True)
    judge = LocalJudge(LocalJudgeConfig(path=str(trained)))
    assert not judge.judge(trajectory, dict.fromkeys(images, b"no picture")).is_decided
    without = judge.judge(make_episode()[0], images)
    assert not without.is_decided
    assert "worker.elements" in without.reason


def test_judges_that_cannot_be_read(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"judge\.path"):
        LocalJudge(LocalJudgeConfig())
    with pytest.raises(JudgeError, match="train-judge"):
        LocalJudge(LocalJudgeConfig(path=str(tmp_path)))
    (tmp_path / "judge.json").write_bytes((trained / "judge.json").read_bytes())
    (tmp_path / "judge.safetensors").write_bytes(b"torn")
    with pytest.raises(JudgeError, match="cannot be read"):
        LocalJudge(LocalJudgeConfig(path=str(tmp_path)))


def test_the_same_seed_gives_the_same_judge(place: Path, tmp_path: Path) -> None:
    for name in "ab":
        fit_judge([place], tmp_path / name, replace(PLAN, episodes=20, epochs=1), lambda line: None)
    assert (tmp_path / "a/judge.safetensors").read_bytes() == (tmp_path / "b/judge.safetensors").read_bytes()


def test_what_is_wrong_with_the_sources(tmp_path: Path) -> None:
    for name, numbers, solved in (("alike", 40, (True,)), ("few", 2, (True, False))):
        (tmp_path / name).mkdir()
        store = TrajectoryStore(tmp_path / name / "store.sqlite3")
        for number in range(numbers):
            store.add(
                *(episode(number, solved[number % len(solved)]) if solved else make_episode(success=True))
            )
        store.close()
    out = tmp_path / "out"
    with pytest.raises(StoreError, match="no trajectory store"):
        fit_judge([tmp_path / "nowhere"], out, PLAN, lambda line: None)
    with pytest.raises(JudgeError, match="40 usable episodes, and not both solved and failed"):
        fit_judge([tmp_path / "alike"], out, PLAN, lambda line: None)
    with pytest.raises(JudgeError, match="are too few to hold out"):
        fit_judge([tmp_path / "few"], out, PLAN, lambda line: None)
    (tmp_path / "bare").mkdir()
    store = TrajectoryStore(tmp_path / "bare" / "store.sqlite3")
    store.add(*make_episode(success=True))
    store.close()
    with pytest.raises(JudgeError, match=r"Set worker\.elements to all"):
        fit_judge([tmp_path / "bare"], out, PLAN, lambda line: None)
    both = names(tmp_path / "bare") + names(tmp_path / "alike")
    assert len(read_examples(both, random.Random(0))) == 40, "a screen without elements is left out"
    assert not out.exists()


def names(place: Path) -> list[tuple[Path, str]]:
    store = TrajectoryStore(place / "store.sqlite3")
    try:
        return [(place, name) for name in store.ids()]
    finally:
        store.close()


def test_no_task_is_in_two_parts_and_an_episode_neither(place: Path) -> None:
    found = read_examples(names(place), random.Random(0))
    for seed in range(5):
        parts = split(found, 0.25, "task", seed)
        tasks = [{one.kin for one in part} for part in parts]
        assert all(tasks)
        assert sum(map(len, tasks)) == len(set().union(*tasks))
        assert sum(map(len, parts)) == len(found)
    same = [replace(one, task=found[0].task.model_copy(update={"seed": n})) for n, one in enumerate(found)]
    by_episode = split(same, 0.25, "episode", 0)
    assert [len(part) for part in by_episode] == [38, 7, 15]
    assert len({one.trajectory_id for part in by_episode for one in part}) == 60
    with pytest.raises(JudgeError, match="1 tasks are too few"):  # they differ in their seed alone
        split(same, 0.25, "task", 0)


def test_all_repetitions_of_an_evaluation_are_fitted_to(tmp_path: Path) -> None:
    for seed in (0, 1):
        (tmp_path / f"seed-{seed}").mkdir()
        store = TrajectoryStore(tmp_path / f"seed-{seed}" / "store.sqlite3")
        for number in range(2):
            store.add(*episode(number, number == seed))
        store.close()
    examples = read_examples(choose_episodes([tmp_path], 10, random.Random(0)), random.Random(0))
    assert sorted((one.task.params["switch"], one.truth) for one in examples) == [
        (0, False),
        (0, True),
        (1, False),
        (1, True),
    ]


def test_what_a_judge_can_be_asked_about() -> None:
    done, _ = make_episode(success=True)
    cut, _ = make_episode(success=False)
    assert is_askable(done)
    assert not is_askable(cut)  # the step limit failed it, whatever it shows
    assert not is_askable(done.model_copy(update={"fault": Fault.DEVICE}))
    assert not is_askable(done.model_copy(update={"outcome": Outcome.UNJUDGED}))
    assert not is_askable(done.model_copy(update={"purpose": Purpose.IMAGINED}))


def demonstration(texts: list[str]) -> tuple[Trajectory, dict[str, bytes]]:
    trajectory, images = make_episode(num_steps=len(texts))
    steps = []
    for step, text in zip(trajectory.steps, texts, strict=True):
        completion = step.chats[0].completion.model_copy(update={"text": text})
        chat = step.chats[0].model_copy(update={"completion": completion})
        seen = step.observation.model_copy(update={"elements": ()})
        steps.append(step.model_copy(update={"chats": (chat,), "observation": seen}))
    changes = {"steps": tuple(steps), "purpose": Purpose.DEMO, "final": steps[-1].observation}
    return trajectory.model_copy(update=changes), images


@pytest.mark.parametrize(("said", "truth"), [("tap", False), ("done", True)])
def test_a_demonstration_shows_what_is_not_done_yet(tmp_path: Path, said: str, truth: bool) -> None:
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    trajectory, images = demonstration(["tap", said, "done"])
    store.add(trajectory, images)
    store.close()
    whole, part = read_examples([(tmp_path, trajectory.id)], random.Random(0))
    assert (whole.num_steps, whole.truth) == (3, True)
    assert (part.num_steps, part.truth) == (1, truth)


def test_the_words_of_an_episode() -> None:
    """A name in the goal is its place elsewhere, and a row's switch belongs to its title."""
    before = row("Wi-Fi", 0.1, "unchecked") + row("Wi-Fi calling", 0.3, "checked")
    after = row("Wi-Fi", 0.1, "checked") + row("Wi-Fi calling", 0.3, "checked")
    trajectory, _ = make_episode(make_task(goal="Turn on Wi-Fi."), num_steps=3)
    tap, typed = ActionRecord(kind="tap", point=(0.85, 0.15)), ActionRecord(kind="type", text="Wi-Fi at 7:15")
    steps = [make_step(action, screen(0)) for action in (tap, typed, ActionRecord(kind="complete"))]
    steps = [
        step.model_copy(update={"observation": step.observation.model_copy(update={"elements": before})})
        for step in steps
    ]
    final = trajectory.final.model_copy(update={"elements": after, "app": "com.settings"})
    words = read_words(trajectory.model_copy(update={"steps": tuple(steps), "final": final}))
    assert " ".join(words) == (
        "goal qa turn qb on qc wi-fi app com settings action tap qc unchecked action type qc at 7:15 "
        "screen line qc checked line qc calling checked earlier line qc unchecked"
    )
    vocabulary = Vocabulary({"goal", "action", "tap", "checked", "line"})
    assert vocabulary.text(
        ["goal", "qa", "turn", "qb", "lamp", "action", "tap", "7:15", "am", "line", "qb", "checked"]
    ) == ("goal qa qb action tap xx line qb checked")


def test_words_are_bounded_whatever_the_episode() -> None:
    trajectory, _ = make_episode(make_task(goal=" ".join(f"word{i}" for i in range(99))), num_steps=30)
    elements = tuple(
        one for place in range(200) for one in row(f"word3 {place} " * 99, place / 250, "checked")
    )
    final = trajectory.final.model_copy(update={"elements": elements})
    words = read_words(trajectory.model_copy(update={"final": final}))
    assert words.count("action") == MAX_ACTIONS
    assert words.count("line") <= MAX_LINES
    assert len(words) < 1000


def test_calibration() -> None:
    """Logits that are twice too sure are divided by about two, and a shifted threshold is found."""
    rng = random.Random(0)
    logits = [rng.uniform(-4, 4) for _ in range(4000)]
    truths = [rng.random() < probability(logit, 2.0) for logit in logits]
    temperature, threshold = calibrate(logits, truths)
    assert 1.6 < temperature < 2.5
    assert 0.35 < threshold < 0.65
    _, shifted = calibrate(logits, [logit > 1.5 for logit in logits])
    assert shifted > 0.6


def test_the_command_fits_measures_and_shows_errors(place: Path, tmp_path: Path) -> None:
    output, config = tmp_path / "judge", tmp_path / "small.yaml"
    config.write_text(yaml.safe_dump({"policy": SMALL.model_dump(mode="json")}))
    line = ["train-judge", str(place), "--output", str(output), "--epochs", "1", "--policy", str(config)]
    line += ["--hold-out", "episode"]
    result = CliRunner().invoke(app, line, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "local against ground truth" in result.output
    assert "truth: success" in result.output
    assert len(read_verdicts(output / "held-out.jsonl")) == 12
    model, card = read_judge(output)
    assert (card.hold_out, model.policy.state_size) == ("episode", SMALL.d_model)
    page = (output / "agreement.html").read_text()
    assert "Confusion matrix" in page
    again = CliRunner().invoke(app, line)
    assert again.exit_code == 3
    assert "holds a judge already" in again.output


def test_it_is_fitted_to_pictures_that_were_not_stored(tmp_path: Path) -> None:
    undrawn, stand_ins = make_undrawn()
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    store.add(undrawn, stand_ins)
    store.close()
    examples = read_examples([(tmp_path, undrawn.id)], random.Random(0))
    assert {example.screen for example in examples} <= set(drawn(undrawn).values())
    wrong = Verdict(success=False, score=0.0, reason="", judge="local", step=len(undrawn.steps))
    judged = Judged.of(undrawn.id, undrawn.task, True, wrong)
    ((_, (_, images)),) = stored_examples([judged], examples)
    assert images == drawn(undrawn)


@pytest.mark.parametrize(
    ("config", "kind"), [("quickstart", "reader"), ("metaworld", "arm"), ("appo-hopper", "gaussian")]
)
def test_a_policy_that_encodes_no_screenshots_cannot_be_its_encoder(
    place: Path, tmp_path: Path, config: str, kind: str
) -> None:
    line = ["train-judge", str(place), "--output", str(tmp_path / "judge"), "--policy", config]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == ConfigError.exit_code
    assert f"policy.kind {kind} of {config} cannot encode" in result.output
