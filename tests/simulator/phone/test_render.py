"""Pictures: the same bytes for the same tree, kept in a bounded cache that threads share."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from distrl.simulator.phone import fonts, render, theme
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


def test_text_is_wrapped_and_cut_with_an_ellipsis() -> None:
    rows = fonts.wrap("one two three four five six seven", False, 20, 120, 2)
    assert len(rows) == 2
    assert rows[1].endswith("…")
    assert all(fonts.text_width(row, False, 20) <= 120 for row in rows)


def test_colours_are_moved_just_as_far_as_the_contrast_of_wcag_demands() -> None:
    assert theme.contrast("#ffffff", "#000000") == pytest.approx(21.0)
    assert theme.contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    for ground in ("#ffffff", "#777777", "#e69147", "#2b3450"):
        for color in ("#f9ab00", "#5c6bc0", ground):
            found = theme.legible(color, ground, theme.LEAST)
            assert theme.contrast(found, ground) >= theme.LEAST
            assert (found == color) == (theme.contrast(color, ground) >= theme.LEAST)
