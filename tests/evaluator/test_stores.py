"""Finding stored trajectories, and the names of their tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from episode_factory import make_episode, make_task

from distrl.core.errors import StoreError
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault
from distrl.evaluator.failure_modes import FailureMode
from distrl.evaluator.stores import (
    ENDINGS,
    Filters,
    StoredEpisodes,
    ending,
    find_episodes,
    find_in,
    find_token_names,
    open_store,
    open_stores,
)


@pytest.fixture
def store(tmp_path: Path) -> TrajectoryStore:
    made = TrajectoryStore(tmp_path / "store.sqlite3")
    for i in range(6):
        trajectory, images = make_episode(
            make_task(i, ("a", "b")[i % 2]), i < 3, fault=Fault.DEVICE if i == 5 else Fault.NONE
        )
        made.add(trajectory.model_copy(update={"id": f"{i}abc"}), images)
    return made


def test_an_empty_file_is_no_store_and_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "store.sqlite3"
    file.touch()
    for place in (file, tmp_path):
        with pytest.raises(StoreError, match=r"store\.sqlite3 is empty\."):
            open_stores(place)
    assert [(path.name, path.stat().st_size) for path in tmp_path.iterdir()] == [("store.sqlite3", 0)]


def test_a_store_is_opened_by_file_or_directory(store: TrajectoryStore, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "store.sqlite3"):
        opened = open_store(place)
        assert opened.count() == 6
        opened.close()
    with pytest.raises(StoreError, match="no trajectory store"):
        open_store(tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def found(store: TrajectoryStore, limit: int | None = None, **filters: Any) -> list[str]:
    return [one.trajectory.id for one in find_episodes([store], Filters(**filters), limit)]


def test_filters_and_limit_give_the_newest_first(store: TrajectoryStore) -> None:
    assert found(store, 2) == ["5abc", "4abc"]
    assert found(store, template="a") == ["4abc", "2abc", "0abc"]
    assert found(store, outcome="device-fault") == ["5abc"]
    assert found(store, template="b", outcome="success") == ["1abc"]
    assert found(store, success=True) == ["2abc", "1abc", "0abc"]
    assert found(store, success=False) == ["4abc", "3abc"]  # 5abc is neither
    assert found(store, min_steps=4) == []
    assert found(store, mode=FailureMode.STEP_LIMIT) == ["4abc", "3abc"]
    assert found(store, mode=FailureMode.WRONG_GOAL) == []
    assert all(ending(one.trajectory) in ENDINGS for one in find_episodes([store]))


def test_what_an_evaluation_wrote_of_an_episode_counts(store: TrajectoryStore, tmp_path: Path) -> None:
    line = next(find_episodes([store], Filters(success=True))).result
    said = line.model_copy(update={"success": False, "mode": FailureMode.STUCK})
    (tmp_path / "episodes.jsonl").write_text(said.model_dump_json() + "\n")
    assert found(store, mode=FailureMode.STUCK) == [said.trajectory_id]
    assert said.trajectory_id not in found(store, success=True)


def test_the_stores_of_repetitions_are_one(tmp_path: Path) -> None:
    ids = {}
    for seed in (0, 2, 10):
        (tmp_path / f"seed-{seed}").mkdir()
        made = TrajectoryStore(tmp_path / f"seed-{seed}" / "store.sqlite3")
        trajectory, images = make_episode()
        made.add(trajectory, images)
        made.close()
        ids[seed] = trajectory.id
    stores = open_stores(tmp_path)
    assert [one.trajectory.id for one in find_episodes(stores)] == [ids[10], ids[2], ids[0]]
    store, trajectory = find_in(stores, ids[2][:12])
    assert (store, trajectory.id) == (stores[1], ids[2])
    with pytest.raises(StoreError, match="has no trajectory"):
        find_in(stores, "nowhere")
    for one in stores:
        one.close()


def test_a_prefix_finds_one_trajectory(store: TrajectoryStore) -> None:
    assert find_in([store], "3")[1].id == "3abc"
    assert find_in([store], "3abc")[1].id == "3abc"
    for wrong in ("9", ""):
        with pytest.raises(StoreError, match="has no trajectory"):
            find_in([store], wrong)
    store.add(make_episode()[0].model_copy(update={"id": "3abd"}), make_episode()[1])
    with pytest.raises(StoreError, match="2 trajectories begin"):
        find_in([store], "3ab")


def test_token_names_of_a_hub_tokenizer(tmp_path: Path) -> None:
    content = {"model": {"vocab": {"tap": 1, "Ġup": 2}}, "added_tokens": [{"id": 9, "content": "<eos>"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    names = find_token_names([tmp_path])
    assert names is not None
    assert [names(token) for token in (1, 2, 9, 7)] == ["tap", "Ġup", "<eos>", "7"]


@pytest.mark.needs("torch")
def test_token_names_of_the_embedded_policy(tmp_path: Path) -> None:
    from distrl.core.policies.tokenizer import ActionTokenizer, build_vocabulary

    tokenizer = ActionTokenizer(build_vocabulary(["alarm"], (4, 8)))
    (tmp_path / "step_1").mkdir()
    tokenizer.save(tmp_path / "step_1")
    names = find_token_names([tmp_path / "nowhere", tmp_path])
    assert names is not None
    assert names(tokenizer.vocabulary.ids["alarm"]) == "alarm"


def test_no_tokenizer_no_names(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    assert find_token_names([tmp_path]) is None
    assert find_token_names([]) is None


def test_the_episodes_of_repetitions_are_read_as_one(tmp_path: Path) -> None:
    made = {}
    for seed in (0, 1, 10):
        (tmp_path / f"seed-{seed}").mkdir()
        store = TrajectoryStore(tmp_path / f"seed-{seed}" / "store.sqlite3")
        trajectory, images = make_episode(make_task(seed))
        store.add(trajectory, images)
        store.close()
        made[trajectory.id] = (trajectory, images)
    stored = StoredEpisodes(tmp_path)
    assert stored.ids() == list(made)
    for name, (trajectory, images) in made.items():
        assert stored.get(name) == trajectory
        assert stored.images(trajectory.image_digests) == images
    for wrong in (lambda: stored.get("nowhere"), lambda: stored.images(["nothing"])):
        with pytest.raises(StoreError):
            wrong()
    stored.close()
