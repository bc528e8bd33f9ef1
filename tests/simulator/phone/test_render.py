"""Pictures: the same bytes for the same tree, kept in a bounded cache that threads share."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from distrl.simulator.apps import notes
from distrl.simulator.phone import fonts, render, shapes
from distrl.simulator.phone.nodes import Node
from distrl.simulator.phone.phone import Phone, new_state
from distrl.simulator.phone.theme import LAYOUTS


def trees() -> list[Node]:
    phones = [Phone(new_state(layout)) for layout in range(len(LAYOUTS))]
    for phone in phones:
        phone._dispatch(("system", "open", "settings"))
    return [Phone(new_state(layout)).tree() for layout in range(len(LAYOUTS))] + [
        phone.tree() for phone in phones
    ]


def digest(tree: Node) -> str:
    return hashlib.sha256(render.draw(tree, 540, 1200).tobytes()).hexdigest()


def test_the_same_tree_gives_the_same_bytes_in_any_thread() -> None:
    expected = [digest(tree) for tree in trees()]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert list(pool.map(digest, trees())) == expected
    assert len(set(expected)) == len(expected)


def test_the_cache_draws_once_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    original = render.draw

    def counting(tree: Node, width: int, height: int) -> object:
        drawn.append(tree.rid)
        return original(tree, width, height)

    monkeypatch.setattr(render, "draw", counting)
    cache = render.RenderCache(capacity=2)
    first, second, third = (Node(0, 0, 360, 800, rid=rid, fill="#ffffff") for rid in "abc")
    for tree in (first, first, second, first, third, first, second):
        cache.picture(tree, 72, 160)
    assert drawn == ["a", "b", "c", "b"]


def test_the_cache_keeps_fewer_pictures_where_they_are_larger() -> None:
    cache = render.RenderCache(capacity=8)
    trees = [Node(0, 0, 360, 800, rid=str(number), fill="#ffffff") for number in range(3)]
    first = [cache.shown(tree, 1080, 2400) for tree in trees]
    assert cache.shown(trees[2], 1080, 2400) is first[2]
    assert cache.shown(trees[1], 1080, 2400) is first[1]
    assert cache.shown(trees[0], 1080, 2400) is not first[0], "beyond eight pictures of 540x1200"


@pytest.mark.parametrize("size", [(1, 1), (33, 70), (64, 32), (200, 131)])
def test_a_shape_covers_what_its_mask_does(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(size[0])
    coarse = rng.choice(np.array([0, 0, 99, 255, 255], np.uint8), (7, 5))
    mask = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
    for color in ("#123456", "#12345680"):
        whole, pieces = render.Painter(*size), render.Painter(*size)
        whole.stamp(mask, 0, 0, color, (0, 0, *size))
        pieces.shape(shapes._cut(mask), 0, 0, color, (0, 0, *size))
        assert pieces.image.tobytes() == whole.image.tobytes()


def test_text_is_wrapped_and_cut_with_an_ellipsis() -> None:
    rows = fonts.wrap("one two three four five six seven", False, 20, 120, 2)
    assert len(rows) == 2
    assert rows[1].endswith("…")
    assert all(fonts.text_width(row, False, 20) <= 120 for row in rows)


def test_a_checklist_on_its_card_is_a_line_per_item_in_letters_that_the_font_has() -> None:
    text = notes.body({"items": [["Sunscreen", True], ["Towels", False]]})
    assert fonts.wrap(text, False, 15, 200.0, 4) == ("[x] Sunscreen", "[ ] Towels")
    missing, _ = fonts.text_mask("\uffff", False, 15)
    assert all(fonts.text_mask(letter, False, 15)[0] != missing for letter in text if letter != "\n")
