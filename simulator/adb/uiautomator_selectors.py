"""uiautomator's selectors on a screen's hierarchy: which elements fit, and what is told about one.

A selector is the JSON object that clients of uiautomator2 send: fields such as text, resourceIdMatches or
clickable, `instance` for the n-th fitting one, and chains of children and siblings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

_TEXTS = {
    "text": "text",
    "description": "content-desc",
    "className": "class",
    "packageName": "package",
    "resourceId": "resource-id",
}
_FLAGS = {
    "checkable": "checkable",
    "checked": "checked",
    "clickable": "clickable",
    "longClickable": "long-clickable",
    "scrollable": "scrollable",
    "enabled": "enabled",
    "focusable": "focusable",
    "focused": "focused",
    "selected": "selected",
}
_WAYS: dict[str, Callable[[str, str], bool]] = {
    "": lambda has, wants: has == wants,
    "Contains": lambda has, wants: wants in has,
    "StartsWith": lambda has, wants: has.startswith(wants),
    "Matches": lambda has, wants: re.fullmatch(wants, has, re.DOTALL) is not None,
}
_BOUNDS = re.compile(r"\[(-?\d+),(-?\d+)\]\[(-?\d+),(-?\d+)\]")
_NOT_FIELDS = {"mask", "childOrSibling", "childOrSiblingSelector", "instance"}

Selector = Mapping[str, Any]


class Screen:
    """One screen's elements.

    Args:
        xml: The hierarchy as `uiautomator dump` writes it.
    """

    def __init__(self, xml: str) -> None:
        self._root = ElementTree.fromstring(xml.encode("utf-8"))
        self._parents = {child: parent for parent in self._root.iter() for child in parent}

    def all(self, selector: Selector) -> list[Element]:
        """The elements that fit, in the order of the screen.

        Raises:
            ValueError: At a field that there is not, or a pattern that is none.
        """
        found = _matching(self._nodes(self._root), selector)
        steps = zip(
            selector.get("childOrSibling", ()), selector.get("childOrSiblingSelector", ()), strict=False
        )
        for relation, inner in steps:
            near: list[Element] = []
            for node in found:
                base = node if relation == "child" else self._parents[node]
                near.extend(other for other in self._nodes(base) if other is not node and other not in near)
            found = _matching(iter(near), inner)
        return found

    def one(self, selector: Selector) -> Element | None:
        """The first element that fits, or None."""
        found = self.all(selector)
        return found[0] if found else None

    def _nodes(self, base: Element) -> Iterator[Element]:
        return (node for node in base.iter("node") if node is not base)


def _matching(nodes: Iterator[Element], selector: Selector) -> list[Element]:
    wanted = {name: value for name, value in selector.items() if name not in _NOT_FIELDS}
    try:
        found = [node for node in nodes if all(_fits(node, name, value) for name, value in wanted.items())]
    except re.error as error:
        raise ValueError(f"no pattern: {error}") from error
    instance = selector.get("instance")
    if instance is None:
        return found
    return found[int(instance) : int(instance) + 1]


def _fits(node: Element, name: str, value: Any) -> bool:
    if name in _FLAGS:
        return node.get(_FLAGS[name]) == ("true" if value else "false")
    if name == "index":
        return node.get("index") == str(value)
    for way in ("Contains", "StartsWith", "Matches", ""):
        field = name.removesuffix(way) if way else name
        if field in _TEXTS and field + way == name:
            return _WAYS[way](node.get(_TEXTS[field], ""), str(value))
    raise ValueError(f"no selector field {name!r}")


def bounds(node: Element) -> tuple[int, int, int, int]:
    """Left, top, right and bottom in pixels."""
    found = _BOUNDS.fullmatch(node.get("bounds", ""))
    assert found is not None, "the hierarchy writes bounds"
    left, top, right, bottom = (int(edge) for edge in found.groups())
    return left, top, right, bottom


def center(node: Element) -> tuple[int, int]:
    """The middle of an element in pixels."""
    left, top, right, bottom = bounds(node)
    return (left + right) // 2, (top + bottom) // 2


def info(node: Element) -> dict[str, Any]:
    """What `objInfo` tells about an element."""
    box: dict[str, int] = dict(zip(("left", "top", "right", "bottom"), bounds(node), strict=True))
    flags = {name: node.get(attribute) == "true" for name, attribute in _FLAGS.items()}
    return {
        "bounds": box,
        "visibleBounds": box,
        "childCount": len(node),
        "className": node.get("class"),
        "contentDescription": node.get("content-desc"),
        "packageName": node.get("package"),
        "resourceName": node.get("resource-id") or None,
        "text": node.get("text"),
        **flags,
    }


def infos(nodes: Sequence[Element]) -> list[dict[str, Any]]:
    """What is told about each."""
    return [info(node) for node in nodes]
