"""Placeholders of pictures, as engines take them that put in as many as a picture has by themselves."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from distrl.workers.inference.engine import single_placeholders

PICTURE = 3


@pytest.mark.parametrize(
    ("ids", "counts", "expected"),
    [
        ([7, 3, 3, 3, 8], [3], [7, 3, 8]),
        ([7, 3, 3, 3, 3, 3, 8], [3, 2], [7, 3, 3, 8]),
        ([3, 3, 7, 3, 3], [1, 1, 2], [3, 3, 7, 3]),
        ([3, 3, 7, 7, 3], [2, 1], [3, 7, 7, 3]),
        ([7, 8], [], [7, 8]),
    ],
)
def test_each_picture_keeps_one_placeholder(ids: list[int], counts: list[int], expected: list[int]) -> None:
    assert single_placeholders(ids, PICTURE, counts) == expected
