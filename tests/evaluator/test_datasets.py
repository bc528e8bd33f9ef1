"""Episodes as a Hugging Face dataset: what the library reads, and that nothing is lost on the way."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from episode_factory import make_episode, make_task, make_undrawn
from PIL import Image
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.core.errors import StoreError
from distrl.core.store import TrajectoryStore
from distrl.core.types import Chat, ChatMessage, Completion, ImagePart, TextPart, Trajectory

datasets = pytest.importorskip("datasets", reason="needs the package datasets (extra data)")

from distrl.evaluator.datasets import write_dataset
from distrl.evaluator.stores import StoredEpisodes
from distrl.workers.episode import BLANK


@pytest.fixture
def store(tmp_path: Path) -> StoredEpisodes:
    kept = TrajectoryStore(tmp_path / "store.sqlite3")
    for number, split in enumerate(("train", "train", "unseen-layout")):
        kept.add(*make_episode(make_task(number, split=split), success=number != 1))
    return StoredEpisodes(tmp_path)


def test_pictures_that_are_not_stored_are_drawn(store: StoredEpisodes, tmp_path: Path) -> None:
    undrawn, stand_ins = make_undrawn()
    store.stores[0].add(undrawn, stand_ins)
    write_dataset(store, [undrawn.id], tmp_path / "out", "mine")
    (row,) = datasets.load_dataset(
        str(tmp_path / "out"), "episodes", split="test", cache_dir=str(tmp_path / "cache")
    )
    assert all(picture.size != BLANK for picture in row["screenshots"])


def test_the_library_loads_both_subsets(store: StoredEpisodes, tmp_path: Path) -> None:
    counts = write_dataset(store, store.ids(), tmp_path / "out", "mine")
    assert counts == {"train": 2, "unseen_layout": 1}
    cache = str(tmp_path / "cache")
    steps = datasets.load_dataset(str(tmp_path / "out"), "steps", cache_dir=cache)
    whole = datasets.load_dataset(str(tmp_path / "out"), "episodes", cache_dir=cache)
    assert {split: len(rows) for split, rows in whole.items()} == counts
    first = store.get(store.ids()[0])
    rows = [row for row in steps["train"] if row["episode_id"] == first.id]
    assert [row["step"] for row in rows] == list(range(len(first.steps)))
    said = first.steps[0].chats[-1].completion
    assert rows[0]["messages"][-1] == {"role": "assistant", "content": [{"type": "text", "text": said.text}]}
    assert rows[0]["logprobs"] == pytest.approx(list(said.logprobs))
    shown = sum(
        content["type"] == "image" for message in rows[0]["messages"] for content in message["content"]
    )
    assert len(rows[0]["images"]) == shown
    assert sum(row["reward"] for row in rows) == pytest.approx(first.total_reward)
    plain = whole.cast_column("screenshots", datasets.List(datasets.Image(decode=False)))
    for row in (row for split in plain.values() for row in split):
        trajectory = store.get(row["episode_id"])
        pictures = [picture["bytes"] for picture in row["screenshots"]]
        assert Trajectory.model_validate_json(row["record"]) == trajectory
        assert dict(zip(row["digests"], pictures, strict=True)) == store.images(trajectory.image_digests)


def test_what_a_running_learner_trims_meanwhile_is_exported(
    store: StoredEpisodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trim_and_write(*given: Any) -> dict[str, int]:
        assert len(store.stores[0].trim(0)) == 3
        return write_dataset(*given)

    monkeypatch.setattr("distrl.evaluator.datasets.write_dataset", trim_and_write)
    words = ["export", str(tmp_path / "store.sqlite3"), "--dataset", str(tmp_path / "out")]
    done = CliRunner().invoke(app, words)
    assert (done.exit_code, done.stdout) == (0, f"{tmp_path / 'out'}: 3 episodes: 2 train, 1 unseen_layout\n")


def test_an_error_leaves_nothing_that_is_in_the_way(store: StoredEpisodes, tmp_path: Path) -> None:
    def broken(trajectory: Trajectory) -> dict[str, bytes]:
        raise StoreError("The disk broke.")

    store.shown = broken  # type: ignore[method-assign]
    with pytest.raises(Exception, match="generating the dataset"):
        write_dataset(store, store.ids(), tmp_path / "out", "mine")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_chat_that_continues_is_told_from_its_beginning(tmp_path: Path) -> None:
    trajectory, images = make_episode(num_steps=2)
    digests = [step.observation.image for step in trajectory.steps]
    chats = [
        Chat(
            messages=(
                ChatMessage(role="user", parts=(ImagePart(digest=digest), TextPart(text=f"step {n}"))),
            ),
            completion=Completion(text=f"answer {n}"),
            continues=n > 0,
        )
        for n, digest in enumerate(digests)
    ]
    steps = [
        step.model_copy(update={"chats": (chat,)}) for step, chat in zip(trajectory.steps, chats, strict=True)
    ]
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    told: Trajectory = trajectory.model_copy(update={"steps": tuple(steps)})
    store.add(told, images)
    write_dataset(StoredEpisodes(tmp_path), store.ids(), tmp_path / "out", "mine")
    files = sorted(str(path) for path in (tmp_path / "out" / "steps").iterdir())
    rows = list(datasets.Dataset.from_parquet(files, cache_dir=str(tmp_path / "cache")))
    texts = [[c["text"] for m in row["messages"] for c in m["content"] if c["text"]] for row in rows]
    assert texts == [["step 0", "answer 0"], ["step 0", "answer 0", "step 1", "answer 1"]]
    sizes = [[picture.size for picture in row["images"]] for row in rows]
    of = [Image.open(io.BytesIO(images[digest])).size for digest in digests]
    assert sizes == [of[:1], of]
