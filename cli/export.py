"""`distrl export`: what a run has learnt, as directories that other tools load."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from distrl.core.errors import CheckpointError, ConfigError, RunDirectoryError


def export(
    place: Annotated[
        Path, typer.Argument(metavar="RUN|CHECKPOINT", help="A run (its final or newest checkpoint), or one.")
    ],
    adapter: Annotated[
        Path | None,
        typer.Option("--adapter", metavar="DIR", help="Write the LoRA adapter, as PEFT and vLLM load it."),
    ] = None,
    merged: Annotated[
        Path | None,
        typer.Option(
            "--merged",
            metavar="DIR",
            help="Write the whole model, as transformers' from_pretrained loads it.",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="CONFIG", help="Default: the config.yaml of the checkpoint's run."),
    ] = None,
) -> None:
    """Write a checkpoint's policy as a directory for other tools.

    --adapter needs no base model and no torch; --merged loads the base model of policy.model and adds the
    adapter to its weights. DIR must be empty or not be there.
    """
    from distrl.evaluator.serving import find_checkpoint

    if adapter is None and merged is None:
        raise ConfigError("What to export is not clear.", "Give --adapter DIR, --merged DIR, or both.")
    checkpoint = find_checkpoint(place.expanduser())
    for directory in (adapter, merged):
        if directory is not None:
            _require_empty(directory.expanduser())
    if adapter is not None:
        typer.echo(_write_adapter(checkpoint / "policy", adapter.expanduser()))
    if merged is not None:
        typer.echo(_write_merged(checkpoint / "policy", _config_of(checkpoint, config), merged.expanduser()))


def _require_empty(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RunDirectoryError(f"{directory} exists already and is not empty.", "Name another directory.")


def _config_of(checkpoint: Path, config: str | None) -> str:
    """The configuration that the checkpoint was made with."""
    if config is not None:
        return config
    found = checkpoint.resolve().parent.parent / "config.yaml"
    if not found.is_file():
        raise ConfigError(f"{checkpoint} lies in no run: there is no {found}.", "Name its --config.")
    return str(found)


def _write_adapter(policy: Path, directory: Path) -> Path:
    names = ("adapter_config.json", "adapter_model.safetensors")
    if not all((policy / name).is_file() for name in names):
        raise CheckpointError(f"{policy} holds no LoRA adapter: all weights were trained.", "Use --merged.")
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copyfile(policy / name, directory / name)
    return directory


def _write_merged(policy_dir: Path, config: str, directory: Path) -> Path:
    from distrl.configs.load import load_config
    from distrl.core.policies import build_policy, checkpoint_words

    loaded = load_config(config)
    if loaded.is_control:
        raise ConfigError(
            "A policy of continuous control is no model of transformers.", "Use its checkpoint as it is."
        )
    policy = build_policy(loaded.policy, checkpoint_words(policy_dir) or [], loaded.seed)
    policy.load(policy_dir)
    policy.export(directory)
    return directory
