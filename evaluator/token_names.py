"""What token ids mean, for people: read from the tokenizer that a checkpoint keeps."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distrl.core.errors import CheckpointError
from distrl.evaluator.results import SPEC_FILE, read_spec

TOKENIZER_FILE = "tokenizer.json"


def find_token_names(places: list[Path]) -> Callable[[int], str] | None:
    """A function from token id to text, by the newest tokenizer file below `places`; None if there is none.

    Both kinds of file are understood: that of the embedded policy, and that of the tokenizers library.
    """
    files = [file for place in places if place.is_dir() for file in place.rglob(TOKENIZER_FILE)]
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        names = _hub_names(file) or _embedded_names(file)
        if names is not None:
            table = names
            return lambda token: table.get(token, str(token))
    return None


def places_of(store: Path) -> list[Path]:
    """Where the tokenizer of the policy that filled a store may be: its run's checkpoints, the one measured.

    Args:
        store: The store's file.
    """
    home = store.resolve().parent  # of an evaluation in its run: RUN/evaluations/NAME, or NAME/seed-S
    places = [folder / "checkpoints" for folder in (home, *home.parents[:3])]
    if (home / SPEC_FILE).is_file():
        subject = read_spec(home).subject
        places += [Path(subject.name)] if subject.kind == "checkpoint" else []
    return places


def _hub_names(file: Path) -> dict[int, str] | None:
    """The names in a file of the tokenizers library: its model's vocabulary and the added tokens."""
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
        vocabulary = content["model"]["vocab"]
        pairs = vocabulary.items() if isinstance(vocabulary, dict) else _ranked(vocabulary)
        names = {int(token): str(text) for text, token in pairs}
        names.update({int(entry["id"]): str(entry["content"]) for entry in content.get("added_tokens", ())})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # another kind of file; the caller tries that
    return names


def _ranked(vocabulary: list[Any]) -> list[tuple[str, int]]:
    return [(entry[0], token) for token, entry in enumerate(vocabulary)]


def _embedded_names(file: Path) -> dict[int, str] | None:
    if importlib.util.find_spec("torch") is None:
        return None  # the embedded policy's vocabulary lives beside its torch code
    from distrl.core.policies.tokenizer import ActionTokenizer

    try:
        return dict(enumerate(ActionTokenizer.load(file.parent).vocabulary.tokens))
    except CheckpointError:
        return None
