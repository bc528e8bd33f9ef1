"""Finding stored trajectories, and the names of their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from episode_factory import make_episode, make_task, make_undrawn

from distrl.cli.run_kind import GuiRun
from distrl.configs.load import load_config
from distrl.configs.schema import WorkerConfig
from distrl.core.errors import StoreError
from distrl.core.messages import Lease
from distrl.core.packing import check_trajectory
from distrl.core.store import TrajectoryStore
from distrl.core.types import ActionRecord, Fault, Outcome, Purpose, Trajectory, Verdict
from distrl.evaluator.failure_modes import FailureMode
from distrl.evaluator.report.viewer import stored_view
from distrl.evaluator.stores import ENDINGS, Filters, StoredEpisodes, drawn, ending, find_token_names
from distrl.evaluator.suites import load_suite
from distrl.workers.agents.elements import ElementsAgent
from distrl.workers.envs.phone import PhoneEnv
from distrl.workers.episode import EpisodeRunner


@pytest.fixture
def stored(tmp_path: Path) -> Iterator[StoredEpisodes]:
    made = TrajectoryStore(tmp_path / "store.sqlite3")
    for i in range(6):
        trajectory, images = make_episode(
            make_task(i, ("a", "b")[i % 2]), i < 3, fault=Fault.DEVICE if i == 5 else Fault.NONE
        )
        made.add(trajectory.model_copy(update={"id": f"{i}abc"}), images)
    made.close()
    found = StoredEpisodes(tmp_path)
    yield found
    found.close()


def test_a_store_is_opened_by_its_file_too_and_an_empty_file_is_none(
    stored: StoredEpisodes, tmp_path: Path
) -> None:
    opened = StoredEpisodes(tmp_path / "store.sqlite3")
    assert opened.ids() == stored.ids()
    opened.close()
    place = tmp_path / "elsewhere"
    with pytest.raises(StoreError, match="no trajectory store"):
        StoredEpisodes(place)
    place.mkdir()
    (place / "store.sqlite3").touch()
    with pytest.raises(StoreError, match=r"store\.sqlite3 is empty\."):
        StoredEpisodes(place)
    assert [(path.name, path.stat().st_size) for path in place.iterdir()] == [("store.sqlite3", 0)]


def found(stored: StoredEpisodes, limit: int | None = None, **filters: Any) -> list[str]:
    return [one.trajectory.id for one in stored.find(Filters(**filters), limit)]


def test_filters_and_limit_give_the_newest_first(stored: StoredEpisodes) -> None:
    assert found(stored, 2) == ["5abc", "4abc"]
    assert found(stored, template="a") == ["4abc", "2abc", "0abc"]
    assert found(stored, outcome="device-fault") == ["5abc"]
    assert found(stored, template="b", outcome="success") == ["1abc"]
    assert found(stored, success=True) == ["2abc", "1abc", "0abc"]
    assert found(stored, success=False) == ["4abc", "3abc"]  # 5abc is neither
    assert found(stored, mode=FailureMode.STEP_LIMIT) == ["4abc", "3abc"]
    assert found(stored, mode=FailureMode.WRONG_GOAL) == []
    assert all(ending(one.trajectory) in ENDINGS for one in stored.find())


def test_what_a_running_learner_trims_meanwhile_is_left_out(stored: StoredEpisodes) -> None:
    listed = stored.find()
    assert next(listed).trajectory.id == "5abc"
    stored.stores[0].trim(0, keep={"2abc"})
    assert [one.trajectory.id for one in listed] == ["2abc"]


def test_what_an_evaluation_wrote_of_an_episode_counts(stored: StoredEpisodes, tmp_path: Path) -> None:
    line = next(stored.find(Filters(success=True))).result
    said = line.model_copy(update={"success": False, "mode": FailureMode.STUCK})
    (tmp_path / "episodes.jsonl").write_text(said.model_dump_json() + "\n")
    assert found(stored, mode=FailureMode.STUCK) == [said.trajectory_id]
    assert said.trajectory_id not in found(stored, success=True)
    assert stored.one(said.trajectory_id).result == said


def test_a_judge_s_verdict_counts_where_there_is_no_ground_truth(tmp_path: Path) -> None:
    trajectory, images = make_episode(success=False)
    verdict = Verdict(success=True, score=1.0, reason="Yes.", judge="vlm")
    said = {"verdict": verdict, "success": 1.0, "outcome": Outcome.SUCCESS}
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    store.add(trajectory.model_copy(update=said), images)
    store.close()
    stored = StoredEpisodes(tmp_path)
    assert found(stored, success=True) == [trajectory.id]
    (one,) = stored.find()
    assert one.result.mode is None
    view = stored_view(one, 10)
    assert (view.verdict, view.reason) == ("solved", "Yes.")
    stored.close()


def test_a_prefix_finds_one_trajectory(stored: StoredEpisodes) -> None:
    assert stored.one("3").trajectory.id == stored.one("3abc").trajectory.id == "3abc"
    for wrong in ("9", ""):
        with pytest.raises(StoreError, match="has no trajectory"):
            stored.one(wrong)
    trajectory, images = make_episode()
    stored.stores[0].add(trajectory.model_copy(update={"id": "3abd"}), images)
    with pytest.raises(StoreError, match="2 trajectories begin"):
        stored.one("3ab")


def test_the_episodes_of_repetitions_are_read_as_one(tmp_path: Path) -> None:
    made: dict[str, tuple[Trajectory, dict[str, bytes]]] = {}
    for seed in (0, 2, 10):
        (tmp_path / f"seed-{seed}").mkdir()
        store = TrajectoryStore(tmp_path / f"seed-{seed}" / "store.sqlite3")
        trajectory, images = make_episode(make_task(seed))
        store.add(trajectory, images)
        store.close()
        made[trajectory.id] = (trajectory, images)
    stored = StoredEpisodes(tmp_path)
    assert stored.ids() == list(made) == found(stored)[::-1]
    for name, (trajectory, images) in made.items():
        assert stored.get(name) == stored.one(name[:12]).trajectory == trajectory
        assert stored.images(trajectory.image_digests) == stored.one(name).images() == images
    for wrong in (lambda: stored.get("nowhere"), lambda: stored.images(["nothing"])):
        with pytest.raises(StoreError):
            wrong()
    stored.close()


@pytest.mark.needs("torch")
def test_an_episode_without_pictures_is_drawn_as_it_would_have_been_until_its_record_differs() -> None:
    lease = Lease(id="a", task=load_suite("quickstart", "test")[0], purpose=Purpose.DEMO, noise=0.3)

    def play(image_format: str) -> tuple[Trajectory, list[bytes]]:
        config = WorkerConfig.model_validate({"screenshot_format": image_format})
        episode = EpisodeRunner(PhoneEnv(), ElementsAgent(), None, config).run(lease)
        assert episode is not None
        return episode[0], [episode[1][digest] for digest in episode[0].image_digests]

    (blank, _), (shown, pictures) = play("none"), play("jpeg")
    assert list(drawn(blank).values()) == pictures
    assert drawn(shown) == {}, "its pictures are stored"
    first, second, *rest = blank.steps
    changed = second.observation.model_copy(update={"elements": ()})
    steps = (first, second.model_copy(update={"observation": changed}), *rest)
    other = blank.model_copy(update={"steps": steps})
    assert list(drawn(other).values()) == pictures[:1]
    tap = first.model_copy(update={"action": ActionRecord(kind="tap")})
    nowhere = blank.model_copy(update={"steps": (tap, *blank.steps[1:])})
    assert check_trajectory(nowhere) == ""
    assert list(drawn(nowhere).values()) == pictures[:1], "a tap without a point, as any worker may send it"


def test_pictures_that_are_not_stored_are_drawn(stored: StoredEpisodes) -> None:
    undrawn, stand_ins = make_undrawn()
    drawn_before = next(stored.find()).trajectory
    stored.stores[0].add(undrawn, stand_ins)
    assert stored.shown(undrawn) == stored.one(undrawn.id).images() == drawn(undrawn)
    pictures = GuiRun(load_config("quickstart")).pictures({"final": stored.stores[0].path})
    assert list(pictures)[-1] == "pictures/test-4", "the last episode is shown to trackers"
    assert stored.shown(drawn_before) == stored.images(drawn_before.image_digests)


def test_token_names_of_a_hub_tokenizer(tmp_path: Path) -> None:
    assert find_token_names([tmp_path]) is None
    (tmp_path / "tokenizer.json").write_text("{")
    assert find_token_names([tmp_path]) is None
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: not installed")
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, "tap": 1, "Ġup": 2}, "?"))
    made.add_special_tokens(["<eos>"])
    made.save(str(tmp_path / "tokenizer.json"))
    names = find_token_names([tmp_path])
    assert names is not None
    assert [names(token) for token in (1, 2, 3, 7)] == ["tap", "Ġup", "<eos>", "7"]


@pytest.mark.needs("torch")
def test_token_names_of_the_embedded_policy(tmp_path: Path) -> None:
    from distrl.core.policies.tokenizer import ActionTokenizer

    tokenizer = ActionTokenizer(["alarm"], (4, 8))
    (tmp_path / "step_1").mkdir()
    tokenizer.save(tmp_path / "step_1")
    names = find_token_names([tmp_path / "nowhere", tmp_path])
    assert names is not None
    assert names(tokenizer.tokens.index("alarm")) == "alarm"
