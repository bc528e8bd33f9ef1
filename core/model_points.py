"""What families of vision-language models write for a point, and whether an agent reads it so. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from distrl.core.errors import PolicyError
from distrl.core.image_sizes import Resize
from distrl.core.model_shapes import find_model, image_shape, read_json

WRITES: Mapping[str, str] = {
    "qwen2_vl": "relative",
    "qwen2_5_vl": "absolute",
    "qwen3_vl": "relative",
    "qwen3_vl_moe": "relative",
}
"""What models write as they were published, by the `model_type` of their config.json."""

_MEANS = {"relative": "0 to 999 across and down", "absolute": "pixels of the resized picture"}


class AgentOptions(Protocol):
    """What is needed of a `distrl.configs.schema.AgentConfig`; core does not depend on configs."""

    kind: str
    import_path: str | None
    options: dict[str, Any]


class ModelOptions(Protocol):
    """What is needed of a `distrl.configs.policy.PolicyConfig`."""

    kind: str
    import_path: str | None
    model: str | None
    min_pixels: int | None
    max_pixels: int | None


def coordinates_of(agent: AgentOptions) -> str | None:
    """In what the agent reads points: "relative", "absolute", or "scale", of which it tells the model.

    None of an agent of which nothing is known.
    """
    if agent.import_path is None and agent.kind == "androidworld":
        return "scale" if isinstance(agent.options.get("coordinates", 1000), int) else None
    if agent.import_path is not None or agent.kind != "mobile-use":
        return None
    return str(agent.options.get("coordinates", "relative"))


def doubt(model_type: str, coordinates: str, resize: Resize) -> str | None:
    """A warning if models of this type write points otherwise than the agent reads them.

    It is no error: a model may have been trained to write them so.

    Args:
        model_type: As the model's config.json has it.
        coordinates: What the agent reads.
        resize: How the model's processor resizes pictures.
    """
    writes = WRITES.get(model_type, coordinates)
    if coordinates == "scale":
        return _doubt_of_scale(model_type, resize) if writes == "absolute" else None
    if writes == coordinates or coordinates not in _MEANS:  # the agent refuses others
        return None
    sizes = f" and agent.options.resize to {{{resize.keys()}}}" if writes == "absolute" else ""
    return (
        f"agent.options.coordinates '{coordinates}' means {_MEANS[coordinates]}, but models of the type "
        f"{model_type} write {_MEANS[writes]}: taps would land elsewhere. Set agent.options.coordinates to "
        f"{writes}{sizes}, unless this model was trained to write as the agent reads."
    )


def _doubt_of_scale(model_type: str, resize: Resize) -> str:
    return (
        f"the agent androidworld asks for points on a scale of its own, but models of the type {model_type} "
        f"write {_MEANS['absolute']} whatever they are asked: taps would land elsewhere. Set agent.kind to "
        f"mobile-use and agent.options to {{coordinates: absolute, resize: {{{resize.keys()}}}}}, unless "
        "this model was trained to write as the agent reads."
    )


def doubt_of_files(agent: AgentOptions, policy: ModelOptions) -> str | None:
    """`doubt`, of a configuration and the model's files; None while these are not on this machine."""
    coordinates = coordinates_of(agent)
    if coordinates is None or policy.kind != "hub" or policy.import_path is not None or not policy.model:
        return None
    try:
        directory = find_model(policy.model)
        config = read_json(directory / "config.json")
        image = image_shape(config, directory)
    except PolicyError:
        return None  # whoever loads the model says it better
    most = policy.max_pixels or image.max_pixels
    resize = Resize(image.patch, image.merge, min(policy.min_pixels or image.min_pixels, most), most)
    return doubt(str(config.get("model_type")), coordinates, resize)
