"""Points in model space: the resized size is the one that the model's own processor gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distrl.core.model_points import Resize
from distrl.core.types import Observation
from distrl.workers.agents.chat_agent import Grid
from distrl.workers.agents.mobile_use import ModelSpace

SCREENS = [
    (1080, 2400),
    (1080, 1920),
    (720, 1280),
    (1440, 3120),
    (2560, 1600),
    (540, 1200),
    (37, 41),
    (5, 900),
]
PROCESSORS = [
    Resize(),
    Resize(max_pixels=12_845_056),
    Resize(patch_size=16, min_pixels=65_536, max_pixels=16_777_216),
    Resize(max_pixels=200 * 28 * 28),
]


@pytest.mark.needs("torch", "transformers")
@pytest.mark.parametrize("resize", PROCESSORS)
def test_the_size_is_the_processors(resize: Resize) -> None:
    """What transformers makes of a picture: its grid counts patches, each `patch_size` pixels wide."""
    from PIL import Image
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    processor = Qwen2VLImageProcessorPil(
        size={"shortest_edge": resize.min_pixels, "longest_edge": resize.max_pixels},
        patch_size=resize.patch_size,
        merge_size=resize.merge_size,
    )
    for width, height in SCREENS:
        if resize.max_pixels > 10**6 and width * height > 10**6:
            continue  # large pictures, the same arithmetic: in the property below
        features = processor(images=[Image.new("RGB", (width, height))], return_tensors="np")
        _, rows, columns = features["image_grid_thw"][0]
        patch = resize.patch_size
        assert resize.size(width, height) == (columns * patch, rows * patch), (width, height)


@pytest.mark.needs("torch", "transformers")
@settings(deadline=None)
@given(st.integers(1, 4000), st.integers(1, 4000), st.sampled_from(PROCESSORS))
def test_the_size_is_that_of_smart_resize(width: int, height: int, resize: Resize) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    if max(width, height) > 200 * min(width, height):
        return
    factor = resize.patch_size * resize.merge_size
    expected = smart_resize(height, width, factor, resize.min_pixels, resize.max_pixels)
    assert resize.size(width, height) == expected[::-1]


def test_a_phones_screen_by_hand() -> None:
    """By hand: 1080x2400 fits 1280 tokens of 28x28 only when shrunk by 1.607, to 24 by 53 tokens."""
    assert Resize().size(1080, 2400) == (24 * 28, 53 * 28)


def test_relative_points_need_no_screen_and_absolute_ones_do() -> None:
    screen = Observation(image="a", width=1080, height=2400)
    assert ModelSpace("relative").grid(screen) == Grid(1000, 1000)
    assert ModelSpace("absolute").grid(screen) == Grid(672, 1484)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch_size": 0}, "patch_size"),
        ({"max_pixels": 1.5}, "max_pixels"),
        ({"min_pixels": 9, "max_pixels": 8}, "min_pixels 9 is more than max_pixels 8"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Resize(**options)
