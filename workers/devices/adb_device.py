"""Any device that adb reaches, as a `Device`: emulator, phone, or simulated phone.

It is observed with `screencap`, `uiautomator` and `dumpsys`, and operated with `input`. Observations are
repeated after a transient fault. An input is sent once: if its effect is unknown, `ActionOutcomeUnknown` is
raised. There is nothing to close: every call has a connection of its own. An emulator also has snapshots,
through its console.
"""

from __future__ import annotations

import contextlib
import logging
import re
import shlex

from PIL import Image

from distrl.workers.devices import apps, typing_text
from distrl.workers.devices.adb import AdbClient, Deadline, brief, repeated
from distrl.workers.devices.apps import ASK_S, FLAGS, in_front, is_secure
from distrl.workers.devices.console import LOAD_S, SAVE_S, Console
from distrl.workers.devices.device import Key, Screen
from distrl.workers.devices.errors import BlankFrame, DeviceError, NonZeroExit, OutputInvalid, ServiceRejected
from distrl.workers.devices.screen import Frame, Frames
from distrl.workers.devices.typing_text import INPUT_S

_log = logging.getLogger(__name__)

LAUNCH_S = 10.0
SCREENSHOT_S = 10.0
HIERARCHY_S = 20.0
IDLE_S = 12.0
"""What uiautomator takes to give up a screen that never stands still: 10 s, and its own start."""
LONG_PRESS_MS = 800
"""How long a long press lasts: Android takes 500 ms for one, and slow devices need some more."""
DOUBLE_TAP_GAP_S = 0.12
_LAUNCH = "am start -a android.intent.action.MAIN -c android.intent.category.LAUNCHER -f 0x10200000"
"""With a launcher's flags: a task that is there comes to the front as it was left."""
_REFUSED = re.compile(r"^(Error|Exception|java\.lang\.)", re.MULTILINE)
_KEYCODES = {Key.BACK: 4, Key.HOME: 3, Key.ENTER: 66}
_SIZE = re.compile(r"(Physical|Override) size:\s*(\d+)x(\d+)")
_DISPLAYS = "dumpsys SurfaceFlinger --display-id"
_DISPLAY = re.compile(r"^Display (\d+) ", re.MULTILINE)
_WINDOW_FILE = "/data/local/tmp/distrl-window.xml"
_HIERARCHY = f"rm -f {_WINDOW_FILE}; uiautomator dump {_WINDOW_FILE} >&2 && cat {_WINDOW_FILE}"


class AdbDevice:
    """One device behind an adb server."""

    def __init__(self, client: AdbClient) -> None:
        self.client = client
        self._frames = Frames(client.serial)
        self._size: tuple[int, int] | None = None
        self._simulated: bool | None = None
        self._warned_of_secure = False

    @property
    def serial(self) -> str:
        """Its serial."""
        return self.client.serial

    @property
    def is_simulated(self) -> bool:
        """Whether it is the simulated phone of this package."""
        if self._simulated is None:
            asked = self.client.check("getprop ro.distrl.simphone", ASK_S, reads=True)
            self._simulated = asked.text.strip() == "1"
        return self._simulated

    @property
    def is_physical(self) -> bool:
        """Whether it is neither a simulated phone nor an emulator that says so, as Android's own do."""
        if self.is_simulated:
            return False
        # The first one until Android 11, the second one since.
        asked = self.client.check("getprop ro.kernel.qemu; getprop ro.boot.qemu", ASK_S, reads=True)
        return "1" not in asked.text.split()

    @property
    def settles_at_once(self) -> bool:
        """Whether nothing on it moves by itself; see `distrl.workers.devices.screen`."""
        return self.is_simulated

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels as the screen is turned: the last screenshot's, if there is one."""
        if self._size is None:
            self._size = self._asked_size()
        return self._size

    def _asked_size(self) -> tuple[int, int]:
        logical = self.client.display.logical
        asked = "wm size" if logical is None else f"wm size -d {logical}"
        said = self.client.check(asked, ASK_S, reads=True).text
        sizes = {name: (int(width), int(height)) for name, width, height in _SIZE.findall(said)}
        found = sizes.get("Override") or sizes.get("Physical")
        if found is None:
            raise OutputInvalid(
                "`wm size` names no size.", "Is its screen on?", serial=self.serial, evidence=said[:300]
            )
        return found

    def screenshot(self) -> Image.Image:
        """The screen as an RGB picture; the caller owns it."""
        return self._frame().picture()

    def screen(self) -> Screen:
        """The present screen; its key is a digest of the screenshot's bytes."""
        return self._frame().screen()

    def _frame(self) -> Frame:
        deadline = Deadline(SCREENSHOT_S, "a screenshot", self.serial)

        def once() -> Frame:
            data = self.client.exec_out(self.client.display.screencap, deadline.remaining())
            return self._frames.judge(data, lambda: self._is_secure(deadline.remaining()))

        try:
            frame = repeated(once, deadline, self.client.sleep)
        except BlankFrame as error:
            raise self._explained(error) from error
        self._size = frame.size
        return frame

    def _explained(self, error: BlankFrame) -> BlankFrame:
        """The error of a blank screenshot. Of a foldable phone the first display may be the folded one."""
        found: list[str] = []
        if self.client.display.physical is None:
            with contextlib.suppress(DeviceError):  # it is blank, whatever else goes wrong
                found = _DISPLAY.findall(self.client.shell(_DISPLAYS, ASK_S, reads=True).text)
        if len(found) < 2:
            return error
        return BlankFrame(
            f"its screenshot is of one colour; it has {len(found)} displays, and the one that Android chose "
            "may be folded away or off.",
            "Wake it, or set `display` of its entry in devices.pool to the ID of the display in use: "
            f"{' or '.join(found)}.",
            serial=self.serial,
        )

    def _is_secure(self, timeout_s: float) -> bool:
        """Whether no screenshot shows the window in front: the agent went there, and nothing is broken."""
        found = is_secure(self.client.shell(FLAGS, timeout_s).text)
        if found and not self._warned_of_secure:
            self._warned_of_secure = True
            _log.warning("%s: it shows a secure window, of which every screenshot is black", self.serial)
        return found

    def tap(self, x: int, y: int) -> None:
        """A short touch at pixel (x, y)."""
        self._input(f"tap {int(x)} {int(y)}")

    def double_tap(self, x: int, y: int) -> None:
        """Two short touches at pixel (x, y), in one command: for Android they must be 40 to 300 ms apart.

        Before Android 12 each `input` starts a Java program, which alone takes longer. So one is started
        `DOUBLE_TAP_GAP_S` after the other, without awaiting it: as far apart as they start, they touch.
        """
        tap = f"{self.client.display.input} tap {int(x)} {int(y)}"
        self.client.act(f"{tap} & sleep {DOUBLE_TAP_GAP_S}; {tap} && wait $!", INPUT_S + DOUBLE_TAP_GAP_S)

    def long_press(self, x: int, y: int) -> None:
        """A long touch at pixel (x, y): a swipe that stays where it is."""
        self.swipe(x, y, x, y, LONG_PRESS_MS)

    def swipe(self, x1: int, y1: int, x2: int, y2: int, duration_ms: int = 300) -> None:
        """A finger that moves from (x1, y1) to (x2, y2)."""
        gesture = f"swipe {int(x1)} {int(y1)} {int(x2)} {int(y2)} {int(duration_ms)}"
        self._input(gesture, duration_ms / 1000)

    def type_text(self, text: str) -> None:
        """Text into the focused field; a line break is the enter key. Raises Untypable as `type_text`."""
        typing_text.type_text(self.client, text)

    def key(self, key: Key) -> None:
        """Presses a key."""
        self._input(f"keyevent {_KEYCODES[Key(key)]}")

    def open_app(self, name: str) -> bool:
        """Brings the app of this name to the front, as a launcher does it.

        False if there is none, or Android does not start it: the agent chose it, and the device is well.
        """
        found = apps.components(self.client.shell(apps.LAUNCHABLE, LAUNCH_S, reads=True).text)
        package = apps.find(name, found)
        if package is None:
            return False
        logical = self.client.display.logical
        launch = _LAUNCH if logical is None else f"{_LAUNCH} --display {logical}"
        try:
            started = self.client.act(f"{launch} -n {shlex.quote(found[package])}", LAUNCH_S)
        except NonZeroExit:
            return False
        return not _REFUSED.search(started.said)

    def _input(self, gesture: str, lasts_s: float = 0.0) -> None:
        self.client.act(f"{self.client.display.input} {gesture}", INPUT_S + lasts_s)

    def hierarchy(self) -> str:
        """The screen's elements as uiautomator XML.

        Raises OutputInvalid if uiautomator makes none, e.g. because the screen never stands still.
        """
        deadline = Deadline(HIERARCHY_S, "the hierarchy", self.serial)
        return repeated(lambda: self._hierarchy(deadline.remaining()), deadline, self.client.sleep, IDLE_S)

    def _hierarchy(self, timeout_s: float) -> str:
        result = self.client.shell(_HIERARCHY, timeout_s)
        xml = result.text.strip()
        if not (xml.startswith("<?xml") and xml.endswith("</hierarchy>")):
            raise OutputInvalid(
                f"uiautomator gave no complete hierarchy: {brief(result.err.decode('utf-8', 'replace'))}.",
                "Try again when the screen stands still.",
                serial=self.serial,
                evidence=result.said[-500:],
            )
        return xml

    def foreground(self) -> str:
        """The package in front, "" if nothing is; an app of the simulated phone goes by its short name."""
        front = in_front(self.client, ASK_S)
        return front[0].package.removeprefix(apps.SIMPHONE) if front else ""

    def save_state(self, name: str) -> None:
        """Always raises: only emulators have snapshots."""
        raise ServiceRejected(
            f"it has no snapshots, so there is no state {name!r}.",
            "Use an emulator, or a reset recipe.",
            serial=self.serial,
        )

    load_state = save_state

    def close(self) -> None:
        """Nothing to release."""


class EmulatorDevice(AdbDevice):
    """One emulator."""

    def __init__(self, client: AdbClient, console: Console) -> None:
        super().__init__(client)
        self.console = console

    def save_state(self, name: str) -> None:
        """Saves everything as snapshot `name`, in place of an older one."""
        self.console.snapshot("save", name, SAVE_S)

    def load_state(self, name: str) -> None:
        """Brings snapshot `name` back, and waits until the device answers again."""
        deadline = Deadline(LOAD_S, f"the load of snapshot {name!r}", self.serial)
        self.console.snapshot("load", name, deadline.remaining())
        self._size = None  # the screen may have been turned
        self.client.wait_ready(deadline.remaining(), self.console.require_running)
