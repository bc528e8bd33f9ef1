"""Pictures as a hub model reads them, in two halves.

    bytes ─ read ─► uint8 pixels at the model's own size ─ inputs ─► normalised pixels or patches
                    (kept in caches, a picture each)                 (of one batch, on its device)

What the first half gives says how many placeholders a picture takes in a prompt. There are two families:
models that read every picture at its own size in whole patches (Qwen2-VL to Qwen3-VL, GLM-V: those whose
processors speak of `image_grid_thw`), and models with one fixed size (LLaVA, by CLIP's or SigLIP's).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from distrl.core.errors import ConfigError, PolicyError
from distrl.core.model_points import Resize, frames, smart_resize
from distrl.core.policies.images import opened, to_tensor

GRID = "image_grid_thw"
IN_ONE_CALL = "torch_flash"


class ImageReader:
    """The image processor of a model, taken apart.

    Args:
        min_pixels, max_pixels: Bounds of width times height instead of the processor's own, for models that
            read pictures at their own size.

    Raises:
        PolicyError: The processor does something else than resizing, normalising and cutting into patches.
    """

    def __init__(self, processor: Any, min_pixels: int | None = None, max_pixels: int | None = None) -> None:
        self._processor = processor
        self.has_grid = GRID in processor.model_input_names
        if unknown := set(processor.model_input_names) - {"pixel_values", GRID}:
            raise PolicyError(
                f"The model's image processor {type(processor).__name__} also gives {sorted(unknown)}, which "
                "is not supported.",
                "Choose a Qwen-VL model, or one whose pictures have one fixed size.",
            )
        if self.has_grid:
            self._patch, self._merge = int(processor.patch_size), int(processor.merge_size)
            self._times = int(processor.temporal_patch_size)
            self.frames, size = frames(type(processor).__name__), processor.size
            self.min_pixels = int(min_pixels or size["shortest_edge"] // self.frames)
            self.max_pixels = int(max_pixels or size["longest_edge"] // self.frames)
            if self.min_pixels > self.max_pixels:
                raise PolicyError(
                    f"policy.min_pixels {self.min_pixels} is more than policy.max_pixels {self.max_pixels}.",
                    "Set both.",
                )
        elif min_pixels or max_pixels:
            raise PolicyError(
                "policy.min_pixels and max_pixels are for models that read pictures at their own size; this "
                "one has a fixed size.",
                "Leave them out.",
            )
        rescale = float(processor.rescale_factor) if processor.do_rescale else 1.0
        mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else (0.0, 1.0)
        self._scale = rescale / torch.tensor(std, dtype=torch.float64).view(-1, 1, 1)
        self._shift = (torch.tensor(mean, dtype=torch.float64) / torch.tensor(std)).view(-1, 1, 1)
        self._fixed_tokens = 0
        self._verify()

    @property
    def factor(self) -> int:
        """Pixels of a side that become one token. Only of models that read pictures at their own size."""
        return self._patch * self._merge

    @property
    def resize(self) -> Resize:
        """How pictures are resized. Only of models that read pictures at their own size."""
        return Resize(self._patch, self._merge, self.min_pixels, self.max_pixels)

    @property
    def size(self) -> dict[str, int]:
        """These bounds as the processor's option. Only of models that read pictures at their own size."""
        return {
            "shortest_edge": self.min_pixels * self.frames,
            "longest_edge": self.max_pixels * self.frames,
        }

    def check_points(self, resize: Resize) -> None:
        """Refuses pixels of pictures that are resized otherwise; see `Policy.check_points`."""
        if not self.has_grid:
            raise ConfigError(
                "agent.options.coordinates 'absolute' means pixels of a picture that keeps its shape, and "
                "this model's processor gives all pictures one fixed size.",
                "Set agent.options.coordinates to relative.",
            )
        own = self.resize
        if resize != own:
            raise ConfigError(
                "agent.options.coordinates 'absolute' means pixels of the picture that the model sees, which "
                f"its processor makes by {own.keys()}, and the agent by {resize.keys()}.",
                f"Set agent.options.resize to {{{own.keys()}}}.",
            )

    def read(self, data: bytes) -> Tensor:
        """Decodes a picture and resizes it as the model's processor does.

        Returns:
            [3, H, W] uint8; the same bytes always give the same tensor.

        Raises:
            PolicyError: `data` is not an image, or has an impossible size or shape.
        """
        with opened(data) as image:
            return self._resized(image.convert("RGB"))

    def _resized(self, image: Image.Image) -> Tensor:
        if not self.has_grid:
            raw = self._processor(images=[image], do_rescale=False, do_normalize=False)["pixel_values"][0]
            return torch.from_numpy(np.asarray(raw).round().clip(0, 255).astype(np.uint8))
        try:
            size = smart_resize(image.width, image.height, self.factor, self.min_pixels, self.max_pixels)
        except ValueError as error:
            raise PolicyError(f"The model cannot read {error}.", "Send pictures of another shape.") from error
        return to_tensor(image.resize(size, self._processor.resample))

    def blank(self) -> Tensor:
        """A small picture, as `read` gives it."""
        return self._resized(Image.new("RGB", (64, 64)))

    def save_pretrained(self, directory: str) -> None:
        """Writes the processor's configuration, with the sizes of training, as transformers reads it."""
        if self.has_grid:
            self._processor.size = self.size
        self._processor.save_pretrained(directory)

    def num_tokens(self, image: Tensor) -> int:
        """How many placeholders a picture, as `read` gave it, takes in a prompt."""
        if not self.has_grid:
            return self._fixed_tokens
        return (image.shape[-2] // self.factor) * (image.shape[-1] // self.factor)

    def inputs(self, images: Sequence[Tensor]) -> dict[str, Tensor]:
        """What the model takes for these pictures, float32, on the device where they are; {} for none."""
        if not images:
            return {}
        scale, shift = self._scale.float().to(images[0].device), self._shift.float().to(images[0].device)
        normalised = [image.float() * scale - shift for image in images]
        if not self.has_grid:
            return {"pixel_values": torch.stack(normalised)}
        patches = torch.cat([self._patches(image) for image in normalised])
        return {"pixel_values": patches, GRID: self.grids(images).to(patches.device)}

    def grids(self, images: Sequence[Tensor]) -> Tensor:
        """[pictures, 3] int64, patches of time, height and width."""
        shapes = [(1, image.shape[1] // self._patch, image.shape[2] // self._patch) for image in images]
        return torch.tensor(shapes)

    def _patches(self, image: Tensor) -> Tensor:
        """[3, H, W] → [patches, 3 · times · patch²]: the patches that become one token lie side by side."""
        channels, height, width = image.shape
        patch, merge = self._patch, self._merge
        cells = image.view(
            channels, height // self.factor, merge, patch, width // self.factor, merge, patch
        ).permute(1, 4, 2, 5, 0, 3, 6)
        repeated = cells.unsqueeze(5).expand(*cells.shape[:5], self._times, patch, patch)
        return repeated.reshape(-1, channels * self._times * patch * patch)

    def measure(self, model: Any) -> None:
        """Asks a model with pictures of one fixed size how many tokens it makes of one."""
        if self.has_grid:
            return
        dtype = model.dtype
        inputs = self.inputs([self.blank().to(model.device)])
        with torch.no_grad():
            features = model.get_image_features(**{name: x.to(dtype) for name, x in inputs.items()})
        features = getattr(features, "pooler_output", features)
        if isinstance(features, (list, tuple)):
            features = torch.cat([one.flatten(0, -2) for one in features])
        self._fixed_tokens = int(features.flatten(0, -2).shape[0])

    def _verify(self) -> None:
        """Both halves together must be what the processor does: it may have steps that are not known here."""
        rng = np.random.default_rng(0)
        for shape in ((60, 90, 3), (500, 300, 3)):
            picture = Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8))
            options = {"size": self.size} if self.has_grid else {}
            expected = self._processor(images=[picture], return_tensors="pt", **options)
            for name, found in self.inputs([self._resized(picture)]).items():
                same = name in expected and found.shape == expected[name].shape
                if not same or not torch.allclose(found.double(), expected[name].double(), atol=1e-4):
                    raise PolicyError(
                        f"The model's image processor {type(self._processor).__name__} does more than "
                        "resizing, normalising and cutting into patches, which is not supported.",
                        "Choose a Qwen-VL model, or one whose pictures have one fixed size.",
                    )


def attend_in_one_call(model: Any) -> None:
    """Lets a layer of the vision tower attend in all windows of all pictures by one call of a flash kernel.

    transformers' "sdpa" makes a call per layer and window, 1,544 for a screenshot in Qwen2.5-VL, and takes
    four times as long. The kernel needs 16 bits and an Ampere GPU or newer. Nothing changes with torch before
    2.10, which has none.
    """
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return
    from transformers import AttentionInterface

    def attend(
        module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: None = None, **options: Any
    ) -> tuple[Tensor, None]:
        bounds, longest = options["cu_seq_lens_q"].int(), int(options["max_length_q"])
        q, k, v = (x[0].transpose(0, 1).contiguous() for x in (query, key, value))  # [1, H, T, D] → [T, H, D]
        found: Any = varlen_attn(q, k, v, bounds, bounds, longest, longest)
        return found[None], None

    # transformers gives these options to all implementations with "flash" in their names.
    AttentionInterface.register(IN_ONE_CALL, attend)
    model.set_attn_implementation({"vision_config": IN_ONE_CALL})


def expand(ids: Sequence[int], placeholder: int, counts: Sequence[int]) -> list[int]:
    """One placeholder per picture → as many as each needs; PolicyError if their numbers differ."""
    num_places = ids.count(placeholder)
    if num_places != len(counts):
        raise PolicyError(
            f"The chat template leaves room for {num_places} pictures, but the chat shows {len(counts)}.",
            "Give the policy all of them, and choose a model whose template shows pictures.",
        )
    return exchange(ids, placeholder, [1] * len(counts), counts)


def exchange(ids: Sequence[int], placeholder: int, before: Sequence[int], after: Sequence[int]) -> list[int]:
    """A prompt whose pictures have `after` placeholders each instead of `before`; errors as of `check`."""
    found, end = list[int](), 0
    for start, old, new in zip(check(ids, placeholder, before), before, after, strict=True):
        found += [*ids[end:start], *[placeholder] * new]
        end = start + old
    return [*found, *ids[end:]]


def check(ids: Sequence[int], placeholder: int, counts: Sequence[int]) -> list[int]:
    """Where the placeholders of each picture begin; PolicyError if they are not exactly `counts`."""
    places = [place for place, token in enumerate(ids) if token == placeholder]
    firsts = [sum(counts[:number]) for number in range(len(counts))]
    starts = [places[first] if first < len(places) else len(ids) for first in firsts]
    if places != [start + n for start, count in zip(starts, counts, strict=True) for n in range(count)]:
        raise PolicyError(
            f"The prompt has {ids.count(placeholder)} picture placeholders where its pictures need "
            f"{sum(counts)}.",
            "The prompt was made with other pictures or other bounds of pixels: use one policy configuration "
            "everywhere.",
        )
    return starts
