"""What uiautomator2 starts on a device, on the simulated phone: JSON-RPC over HTTP at a port of it.

`app_process / com.wetest.uia2.Main -p PORT` listens until its stream is closed. Inputs go through the phone's
own `input` command, so that they do what they do over a shell.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any
from xml.etree.ElementTree import Element

from distrl.simulator.adb import shell as phone_shell
from distrl.simulator.adb import uiautomator_selectors as selectors
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.network import Pipe
from distrl.simulator.adb.shell.call import Call, Failure
from distrl.simulator.adb.uiautomator_selectors import Screen, Selector

PORT = 9008
_MAIN = "com.wetest.uia2.Main"
_MAX_REQUEST = 1 << 20
_MAX_WAIT_S = 120.0
"""Longest `waitForExists`, whatever the client asks for."""
_LOOK_S = 0.05
_STEP_MS = 5
"""A swipe's steps take this long each."""
_LONG_PRESS_MS = 500
_KEYS = {
    "delete": "DEL",
    "recent": "APP_SWITCH",
    "center": "DPAD_CENTER",
    "up": "DPAD_UP",
    "down": "DPAD_DOWN",
}
_KEYS |= {"left": "DPAD_LEFT", "right": "DPAD_RIGHT"}
_DOWN, _UP = 0, 1
_METHOD_NOT_FOUND, _INVALID_PARAMS, _SERVER_ERROR = -32601, -32602, -32001


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


class _Sink:
    """Streams of a command whose output nobody reads."""

    async def read(self, size: int) -> bytes:
        return b""

    async def out(self, data: bytes) -> None:
        return None

    async def err(self, data: bytes) -> None:
        return None


class UiautomatorServer:
    """Answers HTTP requests. A method `rpc_NAME` is the JSON-RPC method NAME, with the client's parameters.

    Args:
        system: The phone.
    """

    def __init__(self, system: AndroidSystem) -> None:
        self._system = system
        self._clipboard: str | None = None
        self._touch: tuple[float, tuple[int, int]] | None = None
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
            given = request.get("id")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return _error(None, _INVALID_PARAMS, f"no request: {error}")
        found = self._methods.get(name)
        if found is None:
            return _error(given, _METHOD_NOT_FOUND, f"method {name} is not on the simulated phone")
        try:
            result = await (found(**params) if isinstance(params, dict) else found(*params))
        except NotFound as error:
            return _error(
                given, _SERVER_ERROR, f"androidx.test.uiautomator.UiObjectNotFoundException: {error}"
            )
        except (TypeError, ValueError) as error:
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
        return selectors.info(self._one(selector))

    async def rpc_objInfoOfAllInstances(self, selector: Selector) -> list[dict[str, Any]]:
        return selectors.infos(self._screen().all(selector))

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

    async def _input(self, *words: str | int) -> bool:
        return await phone_shell.run(self._system, " ".join(map(str, ("input", *words))), _Sink()) == 0

    async def rpc_click(self, x: float, y: float, duration_ms: int = 0) -> bool:
        if duration_ms < _LONG_PRESS_MS:
            return await self._input("tap", int(x), int(y))
        return await self._input("swipe", int(x), int(y), int(x), int(y), int(duration_ms))

    async def rpc_swipe(self, x1: float, y1: float, x2: float, y2: float, steps: int = 55) -> bool:
        duration_ms = max(1, int(steps)) * _STEP_MS
        return await self._input("swipe", int(x1), int(y1), int(x2), int(y2), duration_ms)

    async def rpc_drag(self, x1: float, y1: float, x2: float, y2: float, steps: int = 100) -> bool:
        return await self.rpc_swipe(x1, y1, x2, y2, steps)

    async def rpc_swipePoints(self, points: list[int], steps: int = 100) -> bool:
        """Only the first and the last point matter here."""
        (x1, y1), (x2, y2) = points[:2], points[-2:]
        return await self.rpc_swipe(x1, y1, x2, y2, steps)

    async def rpc_injectInputEvent(self, action: int, x: float, y: float, meta: int = 0) -> bool:
        """A finger that goes down, moves, and comes up."""
        if action == _DOWN:
            self._touch = (time.monotonic(), (int(x), int(y)))
        elif action == _UP and self._touch is not None:
            since, start = self._touch
            self._touch = None
            held_ms = max(1, int(1000 * (time.monotonic() - since)))
            if start == (int(x), int(y)):
                return await self.rpc_click(*start, held_ms)
            return await self._input("swipe", *start, int(x), int(y), held_ms)
        return True

    async def rpc_pressKey(self, name: str) -> bool:
        word = _KEYS.get(name, name).upper()
        if not word.replace("_", "").isalnum():
            raise ValueError(f"no key {name!r}")
        return await self._input("keyevent", f"KEYCODE_{word}")

    async def rpc_pressKeyCode(self, code: int, meta: int = 0) -> bool:
        return await self._input("keyevent", int(code))

    async def rpc_wakeUp(self) -> None:
        await self._input("keyevent", "KEYCODE_WAKEUP")

    async def rpc_sleep(self) -> None:
        await self._input("keyevent", "KEYCODE_SLEEP")

    async def rpc_setText(self, selector: Selector, text: str) -> bool:
        node = self._one(selector)
        await self.rpc_click(*selectors.center(node))
        return self._replace_text(text or "")

    async def rpc_clearTextField(self, selector: Selector) -> None:
        await self.rpc_setText(selector, "")

    async def rpc_clearInputText(self) -> None:
        self._replace_text("")

    def _replace_text(self, text: str) -> bool:
        """Puts `text` into the focused field; False when none has the focus."""
        field = self._system.state["focus"]
        if not field:
            return False
        self._system.change(lambda state: state["fields"].__setitem__(field, ""))
        if text:
            self._system.device.type_text(text)
        return True

    async def rpc_getClipboard(self) -> str | None:
        return self._clipboard

    async def rpc_setClipboard(self, label: str | None, text: str) -> None:
        self._clipboard = text

    async def rpc_pasteClipboard(self) -> None:
        if self._clipboard:
            self._system.device.type_text(self._clipboard)


def _content_length(lines: list[str]) -> int:
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == "content-length" and value.strip().isdecimal():
            return int(value)
    return 0


def _error(given: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": given, "error": {"code": code, "message": message, "data": message}}
