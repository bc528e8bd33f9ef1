"""Finding stored trajectories, and the names of their tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from episode_factory import make_episode, make_task

from distrl.core.errors import StoreError
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault
from distrl.evaluator.stores import ENDINGS, ending, find_trajectory, matching, open_store
from distrl.evaluator.token_names import find_token_names


@pytest.fixture
def store(tmp_path: Path) -> TrajectoryStore:
    made = TrajectoryStore(tmp_path / "store.sqlite3")
    for i in range(6):
        trajectory, images = make_episode(
            make_task(i, ("a", "b")[i % 2]), i < 3, fault=Fault.DEVICE if i == 5 else Fault.NONE
        )
        made.add(trajectory.model_copy(update={"id": f"{i}abc"}), images)
    return made


def test_a_store_is_opened_by_file_or_directory(store: TrajectoryStore, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "store.sqlite3"):
        opened = open_store(place)
        assert opened.count() == 6
        opened.close()
    with pytest.raises(StoreError, match="no trajectory store"):
        open_store(tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def test_filters_and_limit_give_the_newest_first(store: TrajectoryStore) -> None:
    assert [t.id for t in matching(store, limit=2)] == ["5abc", "4abc"]
    assert [t.id for t in matching(store, template="a")] == ["4abc", "2abc", "0abc"]
    assert [t.id for t in matching(store, outcome="device-fault")] == ["5abc"]
    assert [t.id for t in matching(store, template="b", outcome="success")] == ["1abc"]
    assert all(ending(t) in ENDINGS for t in matching(store))


def test_a_prefix_finds_one_trajectory(store: TrajectoryStore) -> None:
    assert find_trajectory(store, "3").id == "3abc"
    assert find_trajectory(store, "3abc").id == "3abc"
    for wrong in ("9", ""):
        with pytest.raises(StoreError, match="has no trajectory"):
            find_trajectory(store, wrong)
    store.add(make_episode()[0].model_copy(update={"id": "3abd"}), make_episode()[1])
    with pytest.raises(StoreError, match="2 trajectories begin"):
        find_trajectory(store, "3ab")


def test_token_names_of_a_hub_tokenizer(tmp_path: Path) -> None:
    content = {"model": {"vocab": {"tap": 1, "Ġup": 2}}, "added_tokens": [{"id": 9, "content": "<eos>"}]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    names = find_token_names([tmp_path])
    assert names is not None
    assert [names(token) for token in (1, 2, 9, 7)] == ["tap", "Ġup", "<eos>", "7"]


@pytest.mark.needs("torch")
def test_token_names_of_the_embedded_policy(tmp_path: Path) -> None:
    from distrl.core.policies.tokenizer import ActionTokenizer
    from distrl.core.policies.vocabulary import build_vocabulary

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
