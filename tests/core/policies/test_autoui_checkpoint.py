"""Checkpoints of AutoUI and T5: every tensor finds its place, and what does not fit is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")

import torch
from autoui_models import FEATURES, D, save_autoui, save_blip2, save_t5
from safetensors.torch import save_file
from torch import Tensor

from distrl.core.errors import PolicyError
from distrl.core.policies.autoui_checkpoint import read_tensors
from distrl.core.policies.autoui_images import FrozenEyes
from distrl.core.policies.autoui_model import COPIES, UNUSED, FusedT5, load_model, named_tensors


def load(directory: Path, num_features: int = FEATURES) -> FusedT5:
    return load_model(str(directory), num_features, torch.float32, 0)


def write(directory: Path, state: dict[str, Tensor]) -> None:
    torch.save(state, directory / "pytorch_model.bin")


def test_every_tensor_of_a_checkpoint_is_where_it_belongs(tmp_path: Path) -> None:
    state = save_autoui(tmp_path)
    network = load(tmp_path)
    found = named_tensors(network)
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(found[name], tensor), name
    t5 = network.t5
    assert t5.encoder.embed_tokens is t5.shared
    assert t5.decoder.embed_tokens is t5.shared
    assert t5.lm_head.weight is not t5.shared.weight
    assert not torch.equal(t5.lm_head.weight, t5.shared.weight)


def test_the_ways_in_which_such_checkpoints_are_written(tmp_path: Path) -> None:
    """Without second names, with a tensor that no T5 reads, after data-parallel training, in parts."""
    state = save_autoui(tmp_path)
    expected = {name: x.clone() for name, x in named_tensors(load(tmp_path)).items()}
    write(tmp_path, {name: x for name, x in state.items() if name not in COPIES} | {UNUSED: torch.zeros(2)})
    assert_same(load(tmp_path), expected)
    write(tmp_path, {name: x for name, x in state.items() if name not in ("shared.weight", COPIES[1])})
    assert_same(load(tmp_path), expected)
    write(tmp_path, {f"module.{name}": x for name, x in state.items()})
    assert_same(load(tmp_path), expected)
    (tmp_path / "pytorch_model.bin").unlink()
    parts = {
        f"part-{n}.safetensors": names for n, names in enumerate((sorted(state)[::2], sorted(state)[1::2]))
    }
    for file, names in parts.items():
        save_file({name: state[name].clone() for name in names}, tmp_path / file)
    index = {"weight_map": {name: file for file, names in parts.items() for name in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_same(load(tmp_path), expected)


def assert_same(network: FusedT5, expected: dict[str, Tensor]) -> None:
    found = named_tensors(network)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_a_tied_output_layer_stays_tied(tmp_path: Path) -> None:
    save_t5(tmp_path, is_tied=True)
    t5 = load(tmp_path).t5
    assert t5.lm_head.weight is t5.shared.weight
    assert t5.config.scale_decoder_outputs


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"gate_dense__bias": None}, r"lacks gate_dense\.bias"),
        ({"decoder__final_layer_norm__weight": None}, r"lacks decoder\.final_layer_norm\.weight"),
        ({"image_dense__more": torch.zeros(1)}, r"has the unknown image_dense\.more"),
        ({"gate_dense__bias": torch.zeros(D + 1)}, r"has gate_dense\.bias \(17,\) instead of \(16,\)"),
        ({"shared__weight": torch.zeros(3, D)}, "embeds tokens differently"),
        ({"mha_layer__in_proj_weight": None, "mha_layer__in_proj_bias": None}, "lacks .*bias, .*weight"),
    ],
)
def test_a_wrong_checkpoint_is_refused(
    tmp_path: Path, changes: dict[str, Tensor | None], problem: str
) -> None:
    save_autoui(tmp_path, **changes)
    with pytest.raises(PolicyError, match=problem) as caught:
        load(tmp_path)
    assert "policy.model" in caught.value.message
    assert caught.value.remedy


def test_features_of_another_size_are_refused_with_the_model_to_name(tmp_path: Path) -> None:
    save_autoui(tmp_path)
    with pytest.raises(PolicyError, match=r"reads 24 features.*gives 128.*Salesforce/blip2-opt-2\.7b"):
        load(tmp_path, 128)


def test_what_is_no_t5_is_refused(tmp_path: Path) -> None:
    save_blip2(tmp_path / "blip2")
    with pytest.raises(PolicyError, match=r"is a blip-2, and policy\.kind autoui takes a T5"):
        load(tmp_path / "blip2")
    with pytest.raises(PolicyError, match="cannot be loaded"):
        load(tmp_path / "nowhere")
    save_autoui(tmp_path / "cut")
    file = tmp_path / "cut" / "pytorch_model.bin"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(PolicyError, match="cannot be read"):
        load(tmp_path / "cut")
    file.unlink()
    with pytest.raises(PolicyError, match=r"neither model\.safetensors nor pytorch_model\.bin"):
        load(tmp_path / "cut")


class Harm:
    """Writes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (self.file,))


def test_a_checkpoint_cannot_run_code(tmp_path: Path) -> None:
    save_autoui(tmp_path)
    torch.save({"shared.weight": Harm(tmp_path / "harmed")}, tmp_path / "pytorch_model.bin")
    with pytest.raises(PolicyError, match="cannot be read"):
        load(tmp_path)
    assert not (tmp_path / "harmed").exists()


def test_of_blip2_only_the_vision_tower_is_read(tmp_path: Path) -> None:
    save_blip2(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    where = json.loads(index.read_text())["weight_map"]
    wanted = {file for name, file in where.items() if name.startswith("vision_model.")}
    assert wanted != set(where.values())
    for file in set(where.values()) - wanted:
        (tmp_path / file).unlink()
    assert FrozenEyes(str(tmp_path), "cpu").num_features == FEATURES
    lost = sorted(name for name in where if name.startswith("vision_model."))[0]
    index.write_text(json.dumps({"weight_map": {n: f for n, f in where.items() if n != lost}}))
    tensors = read_tensors("k", str(tmp_path), "vision_model.")
    assert all(not name.startswith("vision_model.") for name in tensors)


def test_what_is_no_blip2_is_refused(tmp_path: Path) -> None:
    save_blip2(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    save_t5(tmp_path / "t5")
    for file in tmp_path.glob("*processor*.json"):
        (tmp_path / "t5" / file.name).write_text(file.read_text())
    with pytest.raises(PolicyError, match="is a t5, not a BLIP-2"):
        FrozenEyes(str(tmp_path / "t5"), "cpu")
    config["vision_config"]["num_hidden_layers"] = 3
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(PolicyError, match=r"policy\.image_features .* lacks encoder\.layers\.2"):
        FrozenEyes(str(tmp_path), "cpu")
