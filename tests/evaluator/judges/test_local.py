"""The trained judge, end to end on a tiny store: it learns what one screen says, and shows its errors."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import torch
from episode_factory import make_episode, make_task
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.judge import LocalJudgeConfig
from distrl.core.errors import ConfigError, JudgeError, PolicyError, StoreError
from distrl.core.store import TrajectoryStore
from distrl.core.types import ActionRecord, Fault, Outcome, Purpose, Trajectory
from distrl.evaluator.judges.local import training as fitting
from distrl.evaluator.judges.local.data import (
    Example,
    choose_episodes,
    find_parts,
    is_askable,
    read_features,
    split,
)
from distrl.evaluator.judges.local.features import MAX_ACTIONS, MAX_WORDS, Reader, buckets
from distrl.evaluator.judges.local.judge import LocalJudge, probability
from distrl.evaluator.judges.local.model import JudgeModel, ModelSize, collate, read_judge
from distrl.evaluator.judges.local.ocr import OcrModel, TextReader
from distrl.evaluator.judges.local.training import Plan, calibrate, fit_judge
from distrl.evaluator.rejudge import read_verdicts


def unexpected(name: str, error: PolicyError) -> None:
    raise AssertionError(f"{name}: {error}")


SMALL = ModelSize(width=36, height=80, d_model=24, num_layers=1, num_heads=2)
PLAN = Plan(
    episodes=100, epochs=25, batch_size=8, learning_rate=5e-3, averaged=0.5, size=SMALL, reader_updates=2
)


def reader() -> Reader:
    """One that cannot read yet."""
    return Reader((36, 80), TextReader(OcrModel()))


def read(*episodes: tuple[Path, str]) -> list[Example]:
    return list(read_features(find_parts(episodes, random.Random(0)), reader(), unexpected))


def episode(
    number: int, success: bool, purpose: Purpose = Purpose.TRAIN
) -> tuple[Trajectory, dict[str, bytes]]:
    """A switch is on where the agent typed "on"; else it typed "off". It says that it is done in any case."""
    task = make_task(number, goal=f"Turn on switch {number % 7}").model_copy(update={"seed": 0})
    trajectory, images = make_episode(task, success=True)
    typed = ActionRecord(kind="type", text="on" if success else "off")
    steps = (trajectory.steps[0].model_copy(update={"action": typed}), *trajectory.steps[1:])
    outcome = Outcome.SUCCESS if success else Outcome.FAILURE
    changes = {"steps": steps, "success": float(success), "outcome": outcome, "purpose": purpose}
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


def test_a_broken_picture_is_undecided(trained: Path) -> None:
    trajectory, images = episode(0, True)
    verdict = LocalJudge(LocalJudgeConfig(path=str(trained))).judge(
        trajectory, dict.fromkeys(images, b"no picture")
    )
    assert not verdict.is_decided


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


def test_what_is_wrong_with_the_sources_is_told_before_the_reader_is_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_reader(*args: object) -> None:
        raise AssertionError("the reader is fitted")

    monkeypatch.setattr(fitting, "fit_reader", no_reader)
    monkeypatch.setattr(fitting, "read_judge", no_reader)
    for name, numbers, solved in (("alike", 40, (True,)), ("few", 2, (True, False))):
        (tmp_path / name).mkdir()
        store = TrajectoryStore(tmp_path / name / "store.sqlite3")
        for number in range(numbers):
            store.add(*episode(number, solved[number % len(solved)]))
        store.close()
    out = tmp_path / "out"
    with pytest.raises(StoreError, match="no trajectory store"):
        fit_judge([tmp_path / "nowhere"], out, PLAN, lambda line: None)
    with pytest.raises(JudgeError, match="40 usable episodes, and not both solved and failed"):
        fit_judge([tmp_path / "alike"], out, PLAN, lambda line: None)
    with pytest.raises(JudgeError, match="are too few to hold out"):
        fit_judge([tmp_path / "few"], out, PLAN, lambda line: None)
    assert not out.exists()


def names(place: Path) -> list[tuple[Path, str]]:
    store = TrajectoryStore(place / "store.sqlite3")
    try:
        return [(place, name) for name in store.ids()]
    finally:
        store.close()


def test_no_task_is_in_two_parts_and_an_episode_neither(place: Path) -> None:
    found = find_parts(names(place), random.Random(0))
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
    examples = read(*choose_episodes([tmp_path], 10, random.Random(0)))
    assert sorted((one.task.params["switch"], one.truth) for one in examples) == [
        (0, False),
        (0, True),
        (1, False),
        (1, True),
    ]


def test_broken_screenshots_are_counted_and_told(place: Path, tmp_path: Path) -> None:
    broken, images = episode(3, True)
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    last = broken.image_digests[-1]
    nothing = broken.model_copy(update={"final": broken.final.model_copy(update={"image": "0" * 32})})
    store.add(nothing, {**images, "0" * 32: b"no picture", last: images[last]})
    store.close()
    told: list[str] = []
    fit_judge([place, tmp_path], tmp_path / "judge", replace(PLAN, epochs=1), told.append)
    (line,) = [one for one in told if "broken screenshot" in one]
    assert line.startswith(f"left out 1 episodes with a broken screenshot, such as {broken.id}")
    assert json.loads((tmp_path / "judge" / "judge.json").read_text())["num_broken"] == 1


def test_what_a_judge_can_be_asked_about() -> None:
    done, _ = make_episode(success=True)
    cut, _ = make_episode(success=False)
    assert is_askable(done)
    assert not is_askable(cut)  # the step limit failed it, whatever it shows
    assert not is_askable(done.model_copy(update={"fault": Fault.DEVICE}))
    assert not is_askable(done.model_copy(update={"outcome": Outcome.UNJUDGED}))


def demonstration(texts: list[str]) -> tuple[Trajectory, dict[str, bytes]]:
    trajectory, images = make_episode(num_steps=len(texts))
    steps = []
    for step, text in zip(trajectory.steps, texts, strict=True):
        completion = step.chats[0].completion.model_copy(update={"text": text})
        chat = step.chats[0].model_copy(update={"completion": completion})
        steps.append(step.model_copy(update={"chats": (chat,)}))
    return trajectory.model_copy(update={"steps": tuple(steps), "purpose": Purpose.DEMO}), images


@pytest.mark.parametrize(("said", "truth"), [("tap", False), ("done", True)])
def test_a_demonstration_shows_what_is_not_done_yet(tmp_path: Path, said: str, truth: bool) -> None:
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    trajectory, images = demonstration(["tap", said, "done"])
    store.add(trajectory, images)
    store.close()
    whole, part = read((tmp_path, trajectory.id))
    assert (whole.num_steps, whole.truth) == (3, True)
    assert (part.num_steps, part.truth) == (1, truth)


def test_features_have_one_shape_whatever_the_episode() -> None:
    long = make_task(goal=" ".join(f"word{i}" for i in range(99)))
    shapes = set()
    for number, task in ((1, make_task()), (12, long)):
        features = reader().read(*make_episode(task, num_steps=number))
        shapes.add(tuple(tuple(getattr(features, name).shape) for name in vars(features)))
    assert len(shapes) == 1
    assert features.words.shape[0] == MAX_WORDS
    assert features.kinds.shape[0] == MAX_ACTIONS
    assert features.kinds.min() > 0


def test_one_episode_does_not_change_what_is_said_of_another() -> None:
    torch.manual_seed(0)
    model = JudgeModel(SMALL).eval()
    episodes = [reader().read(*episode(number, True)) for number in (1, 2)]
    with torch.inference_mode():
        together = model(collate(episodes))
        alone = torch.cat([model(collate([one])) for one in episodes])
    assert torch.allclose(together, alone, atol=1e-5)


def test_no_word_is_unknown() -> None:
    assert buckets("Wi") == buckets("wi") != buckets("wo")
    assert set(buckets("bluetooth")) & set(buckets("bluetooths"))
    assert 0 not in buckets("anything")


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


def test_the_command_fits_measures_and_shows_errors(place: Path, trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "judge"
    line = ["train-judge", str(place), "--output", str(output), "--epochs", "1", "--reader", str(trained)]
    line += ["--hold-out", "episode"]
    result = CliRunner().invoke(app, line, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "local against ground truth" in result.output
    assert "truth: success" in result.output
    assert len(read_verdicts(output / "held-out.jsonl")) == 12
    _, letters, card = read_judge(output)
    assert card.hold_out == "episode"
    for one, other in zip(letters.parameters(), read_judge(trained)[1].parameters(), strict=True):
        assert torch.equal(one, other), "the reader is the other judge's"
    page = (output / "agreement.html").read_text()
    assert "Confusion matrix" in page
    again = CliRunner().invoke(app, line)
    assert again.exit_code == 3
    assert "holds a judge already" in again.output
