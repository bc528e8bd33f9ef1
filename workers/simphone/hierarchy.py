"""Screen tree → uiautomator XML, as `uiautomator dump` writes it, with bounds in pixels."""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from distrl.workers.simphone.nodes import WIDTH, Box, Node, intersect

_PACKAGE = "org.simphone"


def xml(tree: Node, width: int, height: int, app: str) -> str:
    """The hierarchy of a screen; nodes that do not show, and mere decoration, are left out."""
    lines = ["<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>", '<hierarchy rotation="0">']
    _write(lines, tree, (0.0, 0.0, WIDTH, height * WIDTH / width), width / WIDTH, f"{_PACKAGE}.{app}", 0)
    lines.append("</hierarchy>")
    return "\n".join(lines)


def _means_something(node: Node) -> bool:
    return bool(node.rid or node.text or node.desc or node.clickable or node.scroll or node.children)


def _write(lines: list[str], node: Node, clip: Box, scale: float, package: str, index: int) -> None:
    box = intersect(node.box, clip)
    if box[2] <= box[0] or box[3] <= box[1] or not _means_something(node):
        return
    left, top, right, bottom = (round(edge * scale) for edge in box)
    checkable = node.checked is not None
    attributes = {
        "index": str(index),
        "text": node.text or node.value,
        "resource-id": f"{package}:id/{node.rid}" if node.rid else "",
        "class": "android." + node.cls,
        "package": package,
        "content-desc": node.desc,
        "checkable": _bool(checkable),
        "checked": _bool(bool(node.checked)),
        "clickable": _bool(node.clickable),
        "enabled": "true",
        "focusable": _bool(node.clickable),
        "focused": _bool(node.focused),
        "scrollable": _bool(bool(node.scroll)),
        "long-clickable": _bool(bool(node.hold)),
        "password": "false",
        "selected": _bool(bool(node.checked)),
        "bounds": f"[{left},{top}][{right},{bottom}]",
    }
    written = " ".join(f"{name}={quoteattr(value)}" for name, value in attributes.items())
    lines.append(f"<node {written}>")
    for place, child in enumerate(node.children):
        _write(lines, child, box if node.clip else clip, scale, package, place)
    lines.append("</node>")


def _bool(value: bool) -> str:
    return "true" if value else "false"
