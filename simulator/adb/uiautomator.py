"""What uiautomator2 starts on a device, on the simulated phone: JSON-RPC over HTTP at a port of it.

`app_process / com.wetest.uia2.Main -p PORT` listens until its stream is closed. A selector is the JSON object
that clients send: fields such as text, resourceIdMatches or clickable, `instance` for the n-th fitting
element, and chains of children and siblings.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from distrl.simulator.adb.call import Call, Failure
from distrl.simulator.adb.input import keycode
from distrl.simulator.adb.runtime import Pipe

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

PORT = 9008
_MAIN = "com.wetest.uia2.Main"
_MAX_REQUEST = 1 << 20
_MAX_WAIT_S = 120.0
"""Longest `waitForExists`, whatever the client asks for."""
_LOOK_S = 0.05
_STEP_MS = 5
"""A swipe's steps take this long each."""
_KEYS = {
    "delete": "DEL",
    "recent": "APP_SWITCH",
    "center": "DPAD_CENTER",
    "up": "DPAD_UP",
    "down": "DPAD_DOWN",
    "left": "DPAD_LEFT",
    "right": "DPAD_RIGHT",
}
_MOTIONS = ("DOWN", "UP", "MOVE", "CANCEL")
_METHOD_NOT_FOUND, _INVALID_PARAMS, _SERVER_ERROR = -32601, -32602, -32001


_INVALID = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What comes of a request or of parameters that make no sense."""


class NotFound(Exception):
    """No element fits a selector."""


async def app_process(call: Call) -> int:
    """The command `app_process [OPTION]... DIRECTORY CLASS ...`; this phone has one class."""
    if _MAIN not in call.args:
        raise Failure(f"Error: could not find class '{call.args[-1] if call.args else ''}'", prefixed=False)
    port = PORT
    if "-p" in call.args[:-1]:
        port = call.integer(call.args[call.args.index("-p") + 1])
    server = UiautomatorServer(call.system)
    call.system.network.listen(port, server.answer)
    try:
        await call.line("[server] INFO: [UiAutomator2Server] Starting Server")
        while await call.stdin.read(4096):
            pass
        await asyncio.Event().wait()  # a client that closes its stream cancels this
    finally:
        call.system.network.close(port)
    return 0


class UiautomatorServer:
    """Answers HTTP requests. A method `rpc_NAME` is the JSON-RPC method NAME."""

    def __init__(self, system: AndroidSystem) -> None:
        self._system = system
        self._clipboard: str | None = None
        self._methods: dict[str, Callable[..., Awaitable[Any]]] = {
            name[len("rpc_") :]: getattr(self, name) for name in dir(self) if name.startswith("rpc_")
        }

    async def answer(self, pipe: Pipe) -> None:
        """Answers the requests of one connection."""
        buffer = bytearray()
        while True:
            while b"\r\n\r\n" not in buffer:
                if not (data := await pipe.read(65536)) or len(buffer) > _MAX_REQUEST:
                    return
                buffer += data
            head, _, rest = bytes(buffer).partition(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            size = _content_length(lines)
            if size > _MAX_REQUEST:
                return
            while len(rest) < size:
                if not (data := await pipe.read(65536)):
                    return
                rest += data
            buffer = bytearray(rest[size:])
            status, body = await self._respond(lines[0], rest[:size])
            kind = "application/json" if body[:1] == b"{" else "text/plain"
            await pipe.write(
                f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )

    async def _respond(self, request: str, body: bytes) -> tuple[str, bytes]:
        method, _, rest = request.partition(" ")
        path = rest.split(" ")[0]
        if path == "/ping":
            return "200 OK", b"pong"
        if method == "POST" and path == "/jsonrpc/0":
            return "200 OK", json.dumps(await self._call(body)).encode()
        return "404 Not Found", b"not found"

    async def _call(self, body: bytes) -> dict[str, Any]:
        try:
            request = json.loads(body)
            name, params = request["method"], request.get("params") or []
            given, found = request.get("id"), self._methods.get(name)
        except _INVALID as error:
            return _error(None, _INVALID_PARAMS, f"no request: {error}")
        if found is None:
            return _error(given, _METHOD_NOT_FOUND, f"method {name} is not on the simulated phone")
        try:
            result = await (found(**params) if isinstance(params, dict) else found(*params))
        except NotFound as error:
            return _error(
                given, _SERVER_ERROR, f"androidx.test.uiautomator.UiObjectNotFoundException: {error}"
            )
        except _INVALID as error:
            return _error(given, _INVALID_PARAMS, f"{name}: {error}")
        return {"jsonrpc": "2.0", "id": given, "result": result}

    # Looking.

    def _screen(self) -> Screen:
        return Screen(self._system.device.hierarchy())

    def _one(self, selector: Selector) -> Element:
        found = self._screen().one(selector)
        if found is None:
            raise NotFound(json.dumps(selector))
        return found

    async def rpc_deviceInfo(self) -> dict[str, Any]:
        width, height = self._system.device.size
        return {
            "currentPackageName": self._screen().all({})[0].get("package"),
            "displayWidth": width,
            "displayHeight": height,
            "displaySizeDpX": 360,
            "displaySizeDpY": round(height * 360 / width),
            "displayRotation": 0,
            "productName": self._system.properties.get("ro.product.name", ""),
            "sdkInt": self._system.api_level,
            "screenOn": self._system.screen_on,
            "naturalOrientation": True,
        }

    async def rpc_dumpWindowHierarchy(
        self, compressed: bool = False, depth: int = 50, root: bool = True
    ) -> str:
        return self._system.device.hierarchy()

    async def rpc_takeScreenshot(self, scale: float = 1, quality: int = 80) -> None:
        """None sends the client to `screencap`."""

    async def rpc_exist(self, selector: Selector) -> bool:
        return self._screen().one(selector) is not None

    async def rpc_count(self, selector: Selector) -> int:
        return len(self._screen().all(selector))

    async def rpc_objInfo(self, selector: Selector) -> dict[str, Any]:
        return info(self._one(selector))

    async def rpc_objInfoOfAllInstances(self, selector: Selector) -> list[dict[str, Any]]:
        return [info(node) for node in self._screen().all(selector)]

    async def rpc_getText(self, selector: Selector) -> str:
        return self._one(selector).get("text", "")

    async def rpc_waitForExists(self, selector: Selector, timeout_ms: int) -> bool:
        return await self._wait(selector, timeout_ms, True)

    async def rpc_waitUntilGone(self, selector: Selector, timeout_ms: int) -> bool:
        return await self._wait(selector, timeout_ms, False)

    async def _wait(self, selector: Selector, timeout_ms: int, is_there: bool) -> bool:
        deadline = time.monotonic() + min(timeout_ms / 1000, _MAX_WAIT_S)
        while (self._screen().one(selector) is not None) is not is_there:
            if time.monotonic() >= deadline:
                return False
            await asyncio.sleep(_LOOK_S)
        return True

    async def rpc_getLastToast(self) -> str | None:
        return self._system.state["toast"] or None

    async def rpc_clearLastToast(self) -> None:
        """Toasts leave by themselves."""

    # Acting.

    async def rpc_click(self, x: float, y: float, duration_ms: int = 0) -> bool:
        self._system.input.swipe(int(x), int(y), int(x), int(y), duration_ms)
        return True

    async def rpc_swipe(self, x1: float, y1: float, x2: float, y2: float, steps: int = 55) -> bool:
        self._system.input.swipe(int(x1), int(y1), int(x2), int(y2), max(1, int(steps)) * _STEP_MS)
        return True

    async def rpc_drag(self, x1: float, y1: float, x2: float, y2: float, steps: int = 100) -> bool:
        return await self.rpc_swipe(x1, y1, x2, y2, steps)

    async def rpc_swipePoints(self, points: list[int], steps: int = 100) -> bool:
        """Only the first and the last point matter here."""
        (x1, y1), (x2, y2) = points[:2], points[-2:]
        return await self.rpc_swipe(x1, y1, x2, y2, steps)

    async def rpc_injectInputEvent(self, action: int, x: float, y: float, meta: int = 0) -> bool:
        """A finger that goes down, moves, and comes up."""
        self._system.input.motion(_MOTIONS[action], int(x), int(y))
        return True

    async def rpc_pressKey(self, name: str) -> bool:
        code = keycode(_KEYS.get(name, name))
        if not code:
            raise ValueError(f"{name!r} is not a key")
        self._system.input.key(code)
        return True

    async def rpc_pressKeyCode(self, code: int, meta: int = 0) -> bool:
        self._system.input.key(int(code))
        return True

    async def rpc_wakeUp(self) -> None:
        self._system.power(True)

    async def rpc_sleep(self) -> None:
        self._system.power(False)

    async def rpc_setText(self, selector: Selector, text: str) -> bool:
        node = self._one(selector)
        await self.rpc_click(*center(node))
        return self._replace_text(text or "")

    async def rpc_clearTextField(self, selector: Selector) -> None:
        await self.rpc_setText(selector, "")

    async def rpc_clearInputText(self) -> None:
        self._replace_text("")

    def _replace_text(self, text: str) -> bool:
        if not self._system.state["focus"]:
            return False
        self._system.input.clear_field()
        self._system.input.commit(text)
        return True

    async def rpc_getClipboard(self) -> str | None:
        return self._clipboard

    async def rpc_setClipboard(self, label: str | None, text: str) -> None:
        self._clipboard = text

    async def rpc_pasteClipboard(self) -> None:
        if self._clipboard:
            self._system.input.commit(self._clipboard)


def _content_length(lines: list[str]) -> int:
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-length" and value.strip().isdecimal():
            return int(value)
    return 0


def _error(given: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": given, "error": {"code": code, "message": message, "data": message}}


# Selectors.

_TEXTS = {
    "text": "text",
    "description": "content-desc",
    "className": "class",
    "packageName": "package",
    "resourceId": "resource-id",
}
_FLAGS = {"longClickable": "long-clickable"} | {
    name: name
    for name in (
        *("checkable", "checked", "clickable", "scrollable", "enabled"),
        *("focusable", "focused", "selected"),
    )
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
    """One screen's elements, from the hierarchy as `uiautomator dump` writes it."""

    def __init__(self, xml: str) -> None:
        self._root = ElementTree.fromstring(xml.encode("utf-8"))
        self._parents = {child: parent for parent in self._root.iter() for child in parent}

    def all(self, selector: Selector) -> list[Element]:
        """The elements that fit, in the order of the screen. Raises ValueError at an invalid selector."""
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
        raise ValueError(f"not a valid pattern: {error}") from error
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
    raise ValueError(f"{name!r} is not a field of a selector")


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
    """What `objInfo` says about an element."""
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
