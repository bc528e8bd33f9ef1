"""The size at which a model sees a picture is the one that transformers' image processor gives it."""

from __future__ import annotations

import random

import pytest

from distrl.core.model_points import smart_resize


def test_shapes_that_no_model_reads() -> None:
    with pytest.raises(ValueError, match="1x201"):
        smart_resize(1, 201, 28, 784, 10000)


@pytest.mark.needs("transformers", "torch")
def test_it_is_transformers_arithmetic() -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize as theirs

    rng = random.Random(0)
    for _ in range(500):
        width, height = rng.randint(1, 4000), rng.randint(20, 4000)
        factor, low = rng.choice([28, 32]), rng.randint(100, 100_000)
        high = low + rng.randint(10_000, 10_000_000)
        if max(width, height) > 200 * min(width, height):
            continue
        expected = theirs(height, width, factor, low, high)
        assert smart_resize(width, height, factor, low, high) == (expected[1], expected[0])
