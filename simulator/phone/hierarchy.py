"""Screen tree → uiautomator XML, as `uiautomator dump` writes it, with bounds in pixels.

The tree is made to be drawn and touched. What Android has otherwise is changed on the way: which window and
package an element belongs to, `android:id/…`, one element for a slider, a switch's state at the switch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from xml.sax.saxutils import quoteattr

from distrl.simulator.phone.nodes import WIDTH, Box, Node, intersect

_PACKAGE = "org.simphone"
_SYSTEM = "com.android.systemui"
_SYSTEM_WINDOWS = ("shade", "status_bar", "nav_bar")
_CHECKABLE = ("widget.Switch", "widget.CheckBox", "widget.RadioButton")
_SLIDER = "widget.SeekBar"
_NAMES = {
    "widget.ImageView": "icon",
    "widget.Switch": "switch_widget",
    "widget.CheckBox": "checkbox",
    "widget.RadioButton": "checkbox",
}
"""What the parts of a row of the settings are called in Android, beside its title and summary."""
_PAGES = ("browser_", "shop_", "store_app_", "web_")
"""Scrolling areas that are one page and no list."""
_BOOL = ("false", "true")
_SPECIAL = re.compile(r"[&<>\"\n\r\t]")


def xml(tree: Node, width: int, height: int, app: str) -> str:
    """The hierarchy of a screen; nodes that do not show, and mere decoration, are left out.

    First the window that takes input: the app's, or the shade where that is open; then the system's bars. The
    keyboard is a window of its own, which is not dumped.
    """
    lines = ["<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>", '<hierarchy rotation="0">']
    windows = [(node, _SYSTEM) for node in tree.children if node.rid in _SYSTEM_WINDOWS]
    if all(node.rid != "shade" for node, _ in windows):
        own = [node for node in tree.children if node.rid not in (*_SYSTEM_WINDOWS, "keyboard")]
        content = replace(tree, rid="android:id/content", children=tuple(own))
        windows.insert(0, (replace(tree, rid="", children=(content,)), f"{_PACKAGE}.{app}"))
    for place, (node, package) in enumerate(windows):
        _write(lines, node, (0.0, 0.0, WIDTH, height * WIDTH / width), width / WIDTH, package, place)
    lines.append("</hierarchy>")
    return "\n".join(lines)


def class_name(node: Node) -> str:
    """The Android class of a node."""
    if node.cls == "widget.ScrollView" and not node.rid.startswith(_PAGES):
        return "androidx.recyclerview.widget.RecyclerView"
    return "android." + node.cls


def _write(lines: list[str], node: Node, clip: Box, scale: float, package: str, index: int) -> None:
    box = intersect(node.box, clip)
    if box[2] <= box[0] or box[3] <= box[1] or not _means_something(node):
        return
    left, top, right, bottom = [round(edge * scale) for edge in box]
    # Elements are read at every step: only what can hold special characters is quoted as if it did.
    rid = '""'
    if node.rid:
        rid = _quoted(node.rid if node.rid.startswith("android:id/") else f"{package}:id/{node.rid}")
    text, desc = _quoted(node.text or node.value), _quoted(node.desc)
    is_on, checkable = bool(node.checked), node.checked is not None and node.cls in _CHECKABLE
    selected = is_on and not checkable and not _has_mark(node)
    clickable, focusable = node.clickable, node.clickable or node.cls == _SLIDER
    lines.append(
        f'<node index="{index}" text={text} resource-id={rid} class="{class_name(node)}" package="{package}"'
        f' content-desc={desc} checkable="{_BOOL[checkable]}" checked="{_BOOL[checkable and is_on]}"'
        f' clickable="{_BOOL[clickable]}" enabled="true" focusable="{_BOOL[focusable]}"'
        f' focused="{_BOOL[node.focused]}" scrollable="{_BOOL[bool(node.scroll)]}"'
        f' long-clickable="{_BOOL[bool(node.hold)]}" password="false" selected="{_BOOL[selected]}"'
        f' bounds="[{left},{top}][{right},{bottom}]">'
    )
    inside = box if node.clip else clip
    for place, child in enumerate(_children(node, package)):
        _write(lines, child, inside, scale, package, place)
    lines.append("</node>")


def _has_mark(node: Node) -> bool:
    return any(child.cls in _CHECKABLE for child in node.children)


def _children(node: Node, package: str) -> Sequence[Node]:
    """A node's children as Android has them."""
    if node.cls in _CHECKABLE:  # the parts that draw a switch are not switches
        return [child for child in node.children if child.cls != node.cls]
    found: list[Node] = []
    for child in node.children:
        if child.cls == _SLIDER and found and found[-1].cls == _SLIDER:
            found[-1] = replace(found[-1], w=child.x + child.w - found[-1].x)
        elif child.cls == _SLIDER:  # the first of the places that a touch can set it to
            rid = "slider" if package == _SYSTEM else "seekbar"
            found.append(replace(child, rid=rid, desc=child.desc.rpartition(" ")[0], tap=()))
        elif node.checked is not None and child.cls in _CHECKABLE and child.checked is None:
            found.append(replace(child, checked=node.checked))
        else:
            found.append(child)
    if node.desc and node.cls == "view.ViewGroup" and package == f"{_PACKAGE}.settings":
        return _named(found)
    return found


def _named(parts: Sequence[Node]) -> list[Node]:
    """The parts of a row of the settings with the ids of Android's own rows."""
    texts = iter(("title", "summary"))
    names = [next(texts, "") if part.text else _NAMES.get(part.cls, "") for part in parts]
    return [
        replace(part, rid=f"android:id/{name}") if name and not part.rid else part
        for part, name in zip(parts, names, strict=True)
    ]


def _means_something(node: Node) -> bool:
    return bool(
        node.rid
        or node.text
        or node.desc
        or node.clickable
        or node.scroll
        or node.children
        or node.checked is not None
    )


def _quoted(value: str) -> str:
    """`quoteattr`, which looks for each special character in turn, only where there is one."""
    return quoteattr(value) if _SPECIAL.search(value) else f'"{value}"'
