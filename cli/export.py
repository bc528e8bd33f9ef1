"""`distrl export`: a run's policy or its episodes, as directories that other tools load."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from distrl.cli.options import check_folder
from distrl.core.errors import CheckpointError, ConfigError, RunDirectoryError


def export(
    place: Annotated[
        Path,
        typer.Argument(
            metavar="RUN|CHECKPOINT|STORE",
            help="A run (its final or newest checkpoint), or a checkpoint; for --dataset also an evaluation, "
            "a collection or a store.sqlite3.",
        ),
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
    dataset: Annotated[
        Path | None,
        typer.Option(
            "--dataset", metavar="DIR", help="Write the episodes as a Hugging Face dataset with images."
        ),
    ] = None,
    purpose: Annotated[
        str | None,
        typer.Option(
            "--purpose", metavar="train|eval|demo|imagined", help="With --dataset: only this purpose."
        ),
    ] = None,
    outcome: Annotated[
        str | None,
        typer.Option("--outcome", metavar="WORD", help="With --dataset: only this outcome."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="CONFIG", help="Default: the config.yaml of the checkpoint's run."),
    ] = None,
) -> None:
    """Write a checkpoint's policy, or stored episodes, as a directory for other tools.

    --dataset writes Parquet files with a row per step and per episode, for datasets.load_dataset; faulted
    episodes are left out. --adapter needs neither the base model nor torch; --merged loads the base model
    policy.model and merges the adapter into its weights. DIR must be empty or absent.
    """
    if adapter is None and merged is None and dataset is None:
        raise ConfigError("There is nothing to export.", "Add --adapter, --merged or --dataset with a DIR.")
    if dataset is None and (purpose is not None or outcome is not None):
        raise ConfigError("--purpose and --outcome have no effect without --dataset.", "Remove them.")
    if merged is None and config is not None:
        raise ConfigError("--config has no effect without --merged.", "Remove it.")
    for directory in (named.expanduser() for named in (adapter, merged, dataset) if named is not None):
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise RunDirectoryError(
                f"{directory} exists already and is not empty.", "Name another directory."
            )
        check_folder(directory)
    if dataset is not None:
        typer.echo(_write_dataset(place.expanduser(), dataset.expanduser(), purpose, outcome))
    if adapter is None and merged is None:
        return
    from distrl.evaluator.measure import find_checkpoint

    checkpoint = find_checkpoint(place.expanduser())
    if adapter is not None:
        typer.echo(_write_adapter(checkpoint / "policy", adapter.expanduser()))
    if merged is not None:
        file = checkpoint.resolve().parent.parent / "config.yaml"
        if config is None and not file.is_file():
            raise ConfigError(f"{checkpoint} is not in a run: {file} is missing.", "Set --config.")
        typer.echo(_write_merged(checkpoint / "policy", config or str(file), merged.expanduser()))


def _write_adapter(policy: Path, directory: Path) -> Path:
    names = ("adapter_config.json", "adapter_model.safetensors")
    if not all((policy / name).is_file() for name in names):
        raise CheckpointError(
            f"{policy} has no LoRA adapter: all weights were trained.",
            "--merged writes them, if this is a model of transformers.",
        )
    if (policy / "fusion.safetensors").is_file():
        raise CheckpointError(
            f"{policy} contains more than an adapter: its fusion layers were trained in full.",
            "Use --merged.",
        )
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        shutil.copyfile(policy / name, directory / name)
    return directory


def _write_merged(policy_dir: Path, config: str, directory: Path) -> Path:
    from distrl.cli.run_kind import require_gui
    from distrl.configs.load import load_config
    from distrl.core.policies import build_policy, checkpoint_words

    loaded = load_config(config)
    require_gui(loaded, "export")
    # An adapter is merged into the weights as they are published, not as they were in 4 bits.
    whole = loaded.chat_policy.model_copy(
        update={"quantization": "none"} if loaded.policy.kind == "hub" else {}
    )
    policy = build_policy(whole, checkpoint_words(policy_dir) or [], loaded.seed)
    policy.load(policy_dir)
    policy.export(directory)
    return directory


def _write_dataset(place: Path, directory: Path, purpose: str | None, outcome: str | None) -> str:
    """Writes the episodes at `place`, of all repetitions. Returns a summary."""
    from distrl.cli.run_kind import require_episodes
    from distrl.core.types import Purpose
    from distrl.evaluator.datasets import write_dataset
    from distrl.evaluator.stores import ENDINGS, StoredEpisodes, ending

    purposes = [one.value for one in Purpose]
    for option, value, known in (("--purpose", purpose, purposes), ("--outcome", outcome, ENDINGS)):
        if value is not None and value not in known:
            raise ConfigError(f"{option} {value!r} is unknown.", f"Use one of {', '.join(known)}.")
    require_episodes(place, "export --dataset")
    store = StoredEpisodes(place)
    try:
        store.hold()
        ids = [
            one.id
            for one in map(store.get, store.ids(Purpose(purpose) if purpose else None))
            if (ending(one) == outcome if outcome else not ending(one).endswith("-fault")) and one.steps
        ]
        if not ids:
            raise ConfigError(f"{place} contains no such episode.", "List them with `distrl inspect`.")
        counts = write_dataset(store, ids, directory, place.resolve().name)
    finally:
        store.close()
    parts = ", ".join(f"{count} {split}" for split, count in counts.items())
    return f"{directory}: {len(ids)} episodes: {parts}"
