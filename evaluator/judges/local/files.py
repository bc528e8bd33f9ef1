"""A trained judge on disk: DIR/judge.json (what it is and how well it agrees) and DIR/judge.safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError
from torch import Tensor

from distrl.core.errors import CheckpointError, JudgeError
from distrl.core.files import write_atomically, write_bytes_atomically, writing
from distrl.core.policies import weights_io
from distrl.core.types import Number, Record
from distrl.evaluator.judges.local.data import HoldOut
from distrl.evaluator.judges.local.model import JudgeModel, ModelSize
from distrl.evaluator.judges.local.ocr import OcrModel, OcrSize

CARD_FILE = "judge.json"
WEIGHTS_FILE = "judge.safetensors"


class JudgeCard(Record):
    """What a trained judge is.

    Attributes:
        size: Its network's.
        reading: The text reader's.
        temperature: Its logits are divided by this to be probabilities (Guo et al. 2017).
        threshold: From this probability on an episode counts as a success.
        seed: Of its weights and of the split.
        sources: The stores that it was fitted to.
        num_fitted, num_calibration, num_held_out: Episodes of each part of the split.
        hold_out: What these do not share with the others.
        num_broken: Episodes that were left out, as a screenshot of theirs is no picture.
        agreement: Share of the held-out episodes on which it agrees with ground truth.
    """

    version: Literal[2] = 2
    size: ModelSize
    reading: OcrSize
    temperature: Number
    threshold: Number
    seed: int
    sources: tuple[str, ...]
    num_fitted: int
    num_calibration: int
    num_held_out: int
    hold_out: HoldOut
    num_broken: int = 0
    agreement: Number


def write_judge(directory: Path, model: JudgeModel, reader: OcrModel, card: JudgeCard) -> None:
    """Writes a trained judge and its reader; the card comes last.

    Raises:
        RunDirectoryError: The disk is full, or the directory not writable.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    weights = weights_io.to_bytes(_state(model, reader))
    write_bytes_atomically(directory / WEIGHTS_FILE, weights, is_durable=True)
    write_atomically(directory / CARD_FILE, card.model_dump_json(indent=2))


def read_judge(directory: Path) -> tuple[JudgeModel, OcrModel, JudgeCard]:
    """A trained judge, ready to judge, and its reader.

    Raises:
        JudgeError: There is none, or it is damaged.
    """
    if not (directory / CARD_FILE).is_file():
        raise JudgeError(
            f"{directory} holds no trained judge ({CARD_FILE} is missing).",
            "Train one with distrl train-judge, and name its directory in judge.local.path.",
        )
    try:
        card = JudgeCard.model_validate_json((directory / CARD_FILE).read_text(encoding="utf-8"))
        model, reader = JudgeModel(card.size), OcrModel(card.reading)
        weights_io.load_into(_state(model, reader), directory / WEIGHTS_FILE)
    except (ValidationError, CheckpointError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise JudgeError(f"The judge in {directory} cannot be read: {reason}.", "Train it again.") from error
    return model.eval(), reader.eval(), card


def _state(model: JudgeModel, reader: OcrModel) -> dict[str, Tensor]:
    parts = {"judge": model, "reader": reader}
    return {
        f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()
    }
