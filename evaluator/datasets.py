"""Episodes as a dataset in Hugging Face's layout. The only file that imports `datasets`.

    DIR/README.md                              the card, with the files of each subset
    DIR/steps/SPLIT-00000-of-00001.parquet     a row for each answer of the policy or expert, for training
    DIR/episodes/SPLIT-00000-of-00001.parquet  a row for each episode: the whole record

`steps` has the columns of trainers of chat models: `images`, and `messages` that end with the answer.
`episodes` has the record as JSON and every screenshot byte for byte.

Source of the layout: Hugging Face Hub docs, "Manual configuration" of datasets, and TRL's "Dataset formats".
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets

from distrl.core.files import write_atomically
from distrl.core.types import Chat, ChatMessage, TextPart, Trajectory, shown_images
from distrl.evaluator.stores import StoredEpisodes

Row = dict[str, Any]
SHARD_BYTES = 400_000_000
"""The approximate maximum size of a Parquet file."""
_CARD = "README.md"

_TEXT, _NUMBER, _WHOLE = datasets.Value("string"), datasets.Value("float64"), datasets.Value("int32")
_TASK = {
    "episode_id": _TEXT,
    "task_id": _TEXT,
    "suite": _TEXT,
    "template": _TEXT,
    "goal": _TEXT,
    "purpose": _TEXT,
    "outcome": _TEXT,
    "success": _NUMBER,
}
_STEPS = datasets.Features(
    {
        **_TASK,
        "step": _WHOLE,
        "num_steps": _WHOLE,
        "images": datasets.List(datasets.Image()),
        "messages": datasets.List({"role": _TEXT, "content": datasets.List({"type": _TEXT, "text": _TEXT})}),
        "is_action": datasets.Value("bool"),
        "action": _TEXT,
        "token_ids": datasets.List(_WHOLE),
        "logprobs": datasets.List(_NUMBER),
        "weight_versions": datasets.List(_WHOLE),
        "reward": _NUMBER,
        "app": _TEXT,
    }
)
_EPISODES = datasets.Features(
    {
        **_TASK,
        "num_steps": _WHOLE,
        "reward": _NUMBER,
        "record": _TEXT,
        "digests": datasets.List(_TEXT),
        "screenshots": datasets.List(datasets.Image()),
    }
)


def write_dataset(store: StoredEpisodes, ids: list[str], directory: Path, name: str) -> dict[str, int]:
    """Writes trajectories, in this order, into an empty directory. Returns episodes by split.

    After an error the directory is empty again.
    """
    splits: dict[str, list[str]] = {}
    for one in ids:
        splits.setdefault(_split(store.get(one)), []).append(one)
    counts = {split: len(members) for split, members in splits.items()}
    datasets.disable_progress_bars()
    with contextlib.ExitStack() as undo, tempfile.TemporaryDirectory(prefix="distrl-dataset-") as cache:
        for subset in ("steps", "episodes"):
            undo.callback(shutil.rmtree, directory / subset, ignore_errors=True)
        for split, members in splits.items():
            for subset, features, rows in (
                ("steps", _STEPS, step_rows),
                ("episodes", _EPISODES, episode_rows),
            ):
                _write(store, members, rows, features, directory / subset, split, cache)
        write_atomically(directory / _CARD, _card(name, counts))
        undo.pop_all()
    return counts


def step_rows(trajectory: Trajectory, images: dict[str, bytes]) -> Iterator[Row]:
    """A row for each chat of an episode: its prompt from the start of the sequence, and its answer."""
    asked: list[ChatMessage] = []
    for number, step in enumerate(trajectory.steps):
        for place, chat in enumerate(step.chats):
            asked = [*(asked if chat.continues else []), *chat.messages]
            answer = chat.completion
            yield {
                **_task_columns(trajectory),
                "step": number,
                "num_steps": len(trajectory.steps),
                "images": [_image(images[digest]) for digest in shown_images(asked)],
                "messages": [_message(message) for message in (*asked, _said(chat))],
                "is_action": place == len(step.chats) - 1,
                "action": step.action.model_dump_json(),
                "token_ids": list(answer.token_ids),
                "logprobs": list(answer.logprobs),
                "weight_versions": list(answer.weight_versions),
                "reward": step.reward.total,
                "app": step.observation.app,
            }
            asked.append(_said(chat))


def episode_rows(trajectory: Trajectory, images: dict[str, bytes]) -> Iterator[Row]:
    """The row of an episode."""
    digests = list(trajectory.image_digests)
    yield {
        **_task_columns(trajectory),
        "num_steps": len(trajectory.steps),
        "reward": trajectory.total_reward,
        "record": trajectory.model_dump_json(),
        "digests": digests,
        "screenshots": [_image(images[digest]) for digest in digests],
    }


def _write(
    store: StoredEpisodes,
    ids: list[str],
    rows: Callable[[Trajectory, dict[str, bytes]], Iterator[Row]],
    features: datasets.Features,
    directory: Path,
    split: str,
    cache: str,
) -> None:
    def generate() -> Iterator[Row]:
        for one in ids:
            trajectory = store.get(one)
            yield from rows(trajectory, store.shown(trajectory))

    directory.mkdir(parents=True, exist_ok=True)
    # Set explicitly, because the generator's closure cannot be hashed.
    fingerprint = f"{directory.name}-{split}"
    table = datasets.Dataset.from_generator(
        generate, features=features, cache_dir=cache, fingerprint=fingerprint
    )
    count = max(1, -(-table.data.nbytes // SHARD_BYTES))
    for index in range(count):
        file = directory / f"{split}-{index:05d}-of-{count:05d}.parquet"
        table.shard(count, index, contiguous=True).to_parquet(str(file))


def _task_columns(trajectory: Trajectory) -> Row:
    task = trajectory.task
    return {
        "episode_id": trajectory.id,
        "task_id": task.id,
        "suite": task.suite,
        "template": task.template,
        "goal": task.goal,
        "purpose": trajectory.purpose.value,
        "outcome": trajectory.outcome.value,
        "success": trajectory.success,
    }


def _message(message: ChatMessage) -> Row:
    content = [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image", "text": None}
        for part in message.parts
    ]
    return {"role": message.role, "content": content}


def _said(chat: Chat) -> ChatMessage:
    return ChatMessage(role="assistant", parts=(TextPart(text=chat.completion.text),))


def _image(data: bytes) -> Row:
    return {"bytes": data, "path": None}


def _split(trajectory: Trajectory) -> str:
    """The split's name, with characters that the Hub accepts."""
    return re.sub(r"\W+", "_", trajectory.task.split) or "train"


def _card(name: str, counts: dict[str, int]) -> str:
    subsets = "".join(
        f"- config_name: {subset}\n{'  default: true' + chr(10) if subset == 'steps' else ''}  data_files:\n"
        + "".join(f"  - split: {split}\n    path: {subset}/{split}-*.parquet\n" for split in counts)
        for subset in ("steps", "episodes")
    )
    rows = "".join(f"| {split} | {count} |\n" for split, count in counts.items())
    return f"""---
pretty_name: {name}
task_categories:
- image-text-to-text
tags:
- gui-agents
configs:
{subsets}---
# {name}

Episodes of a GUI agent, written by `distrl export --dataset`.

| split | episodes |
|---|---|
{rows}
`steps` has a row for each answer: `images` and `messages`, the last of which is the answer, as trainers of
chat models read them; with it the action, the tokens with their log-probabilities, and the reward.
`episodes` has a row for each episode: the whole record as JSON, and every screenshot.

```python
from datasets import load_dataset

steps = load_dataset("THIS DIRECTORY", "steps")
```
"""
