"""How vision-language models see pictures: their size, their tokens, and where points lie. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrl.core.errors import PolicyError
from distrl.core.hub_files import find_model, read_json
from distrl.core.published import AgentOptions, coordinates_of, published

if TYPE_CHECKING:
    from distrl.core.policies.base import Policy

MAX_ASPECT = 200
MAX_PIXELS = 16 * 2**20
"""Of one picture. A phone's screenshot has up to 5 M; a small file can decode to any number."""
MAX_TOTAL_PIXELS = 32 * MAX_PIXELS
"""Of all pictures that must be decoded for one request or episode."""


def smart_resize(width: int, height: int, factor: int, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """The (width, height) at which Qwen-VL and its relatives read a picture of `width` x `height` pixels.

    Both are multiples of `factor`, their product lies between the two bounds where such a size exists, and
    the shape is kept as nearly as that allows (`smart_resize` of Qwen2-VL's image processor).

    Args:
        factor: Pixels of a side that become one token: 28 for Qwen2.5-VL, 32 for Qwen3-VL.
        min_pixels, max_pixels: Bounds of width times height.

    Raises:
        ValueError: One side is more than 200 times the other.
    """
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise ValueError(f"a picture of {width}x{height} pixels is longer than {MAX_ASPECT} times its width")
    wide, high = round(width / factor) * factor, round(height / factor) * factor
    if wide * high > max_pixels:
        scale = math.sqrt(width * height / max_pixels)
        wide = max(factor, math.floor(width / scale / factor) * factor)
        high = max(factor, math.floor(height / scale / factor) * factor)
    elif wide * high < min_pixels:
        scale = math.sqrt(min_pixels / (width * height))
        wide = math.ceil(width * scale / factor) * factor
        high = math.ceil(height * scale / factor) * factor
    return wide, high


@dataclass(frozen=True)
class Resize:
    """The size that a Qwen-VL image processor gives to a picture, without the processor.

    It is `smart_resize` with the values of the model's `preprocessor_config.json`.

    Attributes:
        patch_size, merge_size: Pixels of a patch's side, and patches of a token's side.
        min_pixels, max_pixels: Bounds of width · height (`size.shortest_edge` and `size.longest_edge` there).
    """

    patch_size: int = 14
    merge_size: int = 2
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 1280

    def __post_init__(self) -> None:
        for name in ("patch_size", "merge_size", "min_pixels", "max_pixels"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number above 0, not {value!r}")
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"min_pixels {self.min_pixels} is more than max_pixels {self.max_pixels}")

    def keys(self) -> str:
        """The values as they stand in a configuration."""
        return ", ".join(f"{name}: {value}" for name, value in asdict(self).items())

    def size(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) that a picture of `width` × `height` pixels is resized to."""
        factor = self.patch_size * self.merge_size
        return smart_resize(width, height, factor, self.min_pixels, self.max_pixels)


@dataclass(frozen=True)
class ImageShape:
    """How a picture becomes tokens.

    Attributes:
        patch, merge: Pixels of a side of a patch, and patches of a side that become one token.
        min_pixels, max_pixels: The processor's bounds of width times height.
    """

    patch: int
    merge: int
    max_pixels: int
    is_fixed: bool
    min_pixels: int = 1

    def num_tokens(self, max_pixels: int | None = None) -> int:
        """Tokens of the largest picture."""
        pixels = self.max_pixels if self.is_fixed or max_pixels is None else max_pixels
        return max(1, pixels // (self.patch * self.merge) ** 2)


def image_shape(config: Mapping[str, Any], directory: Path) -> ImageShape:
    """How the model in `directory` reads pictures, by its config.json and its processor's file."""
    vision = config.get("vision_config", {})
    file = directory / "preprocessor_config.json"
    processor = read_json(file) if file.is_file() else {}
    patch = int(processor.get("patch_size") or vision.get("patch_size") or 14)
    merge = processor.get("merge_size") or vision.get("spatial_merge_size")
    if merge is None:
        side = int(vision.get("image_size") or 336)
        return ImageShape(patch, 1, side * side, is_fixed=True)
    size = processor.get("size") or {}
    bound = processor.get("max_pixels") or size.get("longest_edge") or 12_845_056  # Qwen2-VL's own default
    least = processor.get("min_pixels") or size.get("shortest_edge") or 3136
    times = frames(str(config.get("model_type")))
    return ImageShape(
        patch, int(merge), int(bound) // times, is_fixed=False, min_pixels=max(1, int(least) // times)
    )


WRITES: Mapping[str, str] = {
    "qwen2_vl": "relative",
    "qwen2_5_vl": "absolute",
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), "relative"),
    **dict.fromkeys(("glm4v", "glm4v_moe", "glm46v"), "relative"),
}
"""What models write as they were published, by the `model_type` of their config.json."""


def frames(kind: str) -> int:
    """How often a processor or model of that kind counts a picture in its bounds: GLM-V twice, as video."""
    return 2 if kind.lower().startswith("glm") else 1


_MEANS = {
    "relative": "thousandths of the picture's width and height",
    "absolute": "pixels of the resized picture",
}


def doubt(model: str, model_type: str, coordinates: str, resize: Resize) -> str | None:
    """A warning if this model, or models of its type, write points otherwise than the agent reads them.

    It is only a warning: a model may have been trained to write them so.
    """
    known, sizes = published(model), f"resize: {{{resize.keys()}}}"
    writes = known.coordinates if known else WRITES.get(model_type, coordinates)
    if coordinates == "scale" and writes == "absolute":
        reads = "the agent androidworld requests points on a scale of its own"
        options = known.options if known else {"coordinates": "absolute"}
        own = ", ".join(f"{key}: {value}" for key, value in options.items())
        agent = known.agent if known else "mobile-use"
        remedy = f"agent.kind to {agent} and agent.options to {{{own}, {sizes}}}"
    elif coordinates in _MEANS and writes != coordinates:  # the agent refuses others
        reads = f"agent.options.coordinates '{coordinates}' means {_MEANS[coordinates]}"
        more = f" and agent.options.resize to {{{resize.keys()}}}" if writes == "absolute" else ""
        remedy = f"agent.options.coordinates to {writes}{more}"
    else:
        return None
    models = f"models like {model}" if known else f"models of the type {model_type}"
    return (
        f"{reads}, but {models} write {_MEANS[writes]}: taps would land elsewhere. "
        f"Set {remedy}, unless this model was trained to write as the agent reads."
    )


def doubt_of_files(agent: AgentOptions, policy: Any) -> str | None:
    """`doubt`, of a `distrl.configs.policy.HubConfig` and its model's files; None without these."""
    coordinates = coordinates_of(agent)
    if coordinates is None:
        return None
    try:
        directory = find_model(policy.model)
        config = read_json(directory / "config.json")
        image = image_shape(config, directory)
    except PolicyError:
        return None  # loading the model gives the better error
    most = policy.max_pixels or image.max_pixels
    resize = Resize(image.patch, image.merge, min(policy.min_pixels or image.min_pixels, most), most)
    return doubt(policy.model, str(config.get("model_type")), coordinates, resize)


def check_agent_points(agent: AgentOptions, policy: Policy) -> None:
    """Refuses an agent of this package whose points are pixels of pictures that the model does not see so.

    An agent runs in workers, which need not have the model's files, so its options say how pictures are
    resized, and the process that has the model's processor checks them. Points of a kind that such models do
    not write cause a warning.
    """
    coordinates = coordinates_of(agent)
    if coordinates is None:
        return
    try:
        resize = Resize(**(agent.options.get("resize") or {}))
    except (TypeError, ValueError):
        return  # the agent itself refuses it, with the rule
    policy.check_points(coordinates, resize)
