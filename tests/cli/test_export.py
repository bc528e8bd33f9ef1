"""`distrl export`: a checkpoint's adapter, or the whole model, for other tools."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.schema import Config
from distrl.core.checkpoints import point, write_checkpoint

runner = CliRunner()
TINY = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "image_size": [24, 40], "device": "cpu"}


def run_with(folder: Path, policy: dict[str, object], **files: bytes) -> Path:
    """A run whose final checkpoint has these files of a policy."""

    def fill(path: Path) -> None:
        (path / "policy").mkdir()
        for name, data in files.items():
            (path / "policy" / name.replace("__", ".")).write_bytes(data)

    write_checkpoint(folder / "checkpoints", "step_1", fill)
    point(folder / "checkpoints", "final", "step_1")
    (folder / "config.yaml").write_text(Config.model_validate({"policy": policy}).to_yaml())
    return folder


def export(*words: object) -> tuple[int, str]:
    result = runner.invoke(app, ["export", *map(str, words)])
    return result.exit_code, result.stderr


def test_an_adapter_is_copied_without_its_base_model(tmp_path: Path) -> None:
    hub = {"kind": "hub", "model": "nobody/no-such-model", "lora": {}}
    files = {"adapter_config__json": b"{}", "adapter_model__safetensors": b"weights", "tokenizer__json": b"t"}
    run = run_with(tmp_path / "run", hub, **files)
    for place in (run, run / "checkpoints" / "step_1"):
        out = tmp_path / f"out-{place.name}"
        assert export(place, "--adapter", out) == (0, "")
        assert sorted(path.name for path in out.iterdir()) == [
            "adapter_config.json",
            "adapter_model.safetensors",
        ]
        assert (out / "adapter_model.safetensors").read_bytes() == b"weights"


def test_an_adapter_that_is_half_of_what_was_trained_is_not_exported(tmp_path: Path) -> None:
    files = {"adapter_config__json": b"{}", "adapter_model__safetensors": b"w", "fusion__safetensors": b"f"}
    run = run_with(tmp_path / "run", TINY, **files)
    status, said = export(run, "--adapter", tmp_path / "out")
    assert (status, "Use --merged" in said) == (4, True)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_exported_is_one_line(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", TINY, weights=b"w")
    full = tmp_path / "full"
    (full / "sub").mkdir(parents=True)
    lost = write_checkpoint(tmp_path / "a" / "b", "step_1", lambda path: (path / "x").touch())
    for words, status, said in (
        ([run], 2, "--adapter, --merged or --dataset"),
        ([run, "--adapter", tmp_path / "out"], 4, "no LoRA adapter"),
        ([run, "--adapter", full], 3, "not empty"),
        ([tmp_path / "none", "--adapter", tmp_path / "out"], 4, "no checkpoint"),
        ([lost, "--merged", tmp_path / "out"], 2, "--config"),
        ([run, "--adapter", tmp_path / "out", "--outcome", "success"], 2, "no effect without --dataset"),
        ([run, "--adapter", tmp_path / "out", "--config", "quickstart"], 2, "no effect without --merged"),
    ):
        code, error = export(*words)
        assert (code, error.count("\n")) == (status, 1)
        assert said in error
    assert not (tmp_path / "out").exists()


def test_the_embedded_policy_is_no_model_of_transformers(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch: not installed")
    from distrl.configs.policy import policy_config
    from distrl.core.policies import build_policy

    policy = build_policy(policy_config(**TINY), ["red"], 0)

    def fill(path: Path) -> None:
        policy.save(path / "policy")

    write_checkpoint(tmp_path / "checkpoints", "step_1", fill)
    point(tmp_path / "checkpoints", "latest", "step_1")
    (tmp_path / "config.yaml").write_text(Config.model_validate({"policy": TINY}).to_yaml())
    code, error = export(tmp_path, "--merged", tmp_path / "out")
    assert (code, error.count("\n")) == (9, 1)
    assert "not a transformers model" in error
