"""One simulated Android system: the phone, and what adb sees of it besides its screen.

    SimDevice (screen, touch, apps)          device
    files, properties, settings, packages    what lasts over a reboot
    activities, input, ime, power            its system services
    log, processes, network                  what does not last

It is used from the event loop of its host only, and waits for nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import msgpack
from PIL import Image

from distrl.core.errors import EnvError
from distrl.simulator.adb import image, png
from distrl.simulator.adb.activities import Activities
from distrl.simulator.adb.files import SHELL, Files
from distrl.simulator.adb.input import Input, InputMethods
from distrl.simulator.adb.packages import Installer, Packages
from distrl.simulator.adb.runtime import LogBuffer, Network, Processes
from distrl.simulator.adb.settings import Settings
from distrl.simulator.device import SimDevice
from distrl.simulator.phone import interruptions
from distrl.simulator.phone.render import RenderCache
from distrl.simulator.phone.state import State

FORMAT = 1
"""Version of the bytes that `AndroidSystem.dump` makes."""
DAY_S = 1748908800
"""The phone's day, Tuesday, June 3, 2025, in seconds since 1970."""
RESTART_S = 0.1
"""How long after its answer something restarts, when a client has asked for it."""


class AndroidSystem:
    """A simulated phone with everything that adb can reach.

    Args:
        width, height: Screen size in pixels.
        api_level: The Android API level it reports.
        cache: Where rendered pictures are kept; pictures are only read here.

    Attributes:
        screen_on: Whether the display is lit; a dark display shows black.
        blank: Whether the display shows black though it is on (a fault).
    """

    def __init__(
        self,
        serial: str = "emulator-5554",
        width: int = 1080,
        height: int = 2400,
        api_level: int = 34,
        state: State | None = None,
        cache: RenderCache | None = None,
    ) -> None:
        self.serial = serial
        self.api_level = api_level
        self.device = SimDevice(width, height, state, cache)
        self.screen_on = True
        self.blank = False
        self.packages = Packages(lambda: self.state["installed"])
        self.settings = Settings(lambda: self.state["apps"]["settings"], self._change_settings)
        self.files = Files(lambda: int(self.clock()))
        names = [each.name for each in self.packages.all()]
        generated = image.generated_files(lambda: self.boot_id, lambda: self.uptime)
        image.build_files(self.files, generated, names)
        self.properties = image.properties(serial, api_level, self.density)
        self.log = LogBuffer(self.clock)
        self.network = Network()
        self.processes = Processes()
        self.activities = Activities(self)
        self.input = Input(self)
        self.ime = InputMethods(self)
        self.installer = Installer(self)
        self._restart_listeners: list[Callable[[], None]] = []
        self._boots = 0
        self._start()
        self._png: tuple[object, bytes] | None = None

    @property
    def state(self) -> State:
        """The phone's state."""
        return self.device.phone.state

    @property
    def density(self) -> int:
        """Dots per inch: the screen is 360 dp wide."""
        return round(self.device.size[0] * 160 / 360)

    def clock(self) -> float:
        """The phone's time in seconds since 1970; it passes by inputs, not by itself."""
        return float(DAY_S + self.state["time"] * 60 + self.state["elapsed_s"])

    def _start(self) -> None:
        self.booted_at = time.monotonic()
        # Tools tell one boot from another by this id.
        rng = random.Random(f"boot/{self.serial}/{self._boots}/{self.state['elapsed_s']}")
        self.boot_id = f"{rng.getrandbits(128):032x}"
        self._boots += 1
        self.log.write("I", "boot_progress_enable_screen", "1", buffer="events")
        self.log.note("SystemServer", "Boot completed")
        self.activities.observe()

    @property
    def uptime(self) -> float:
        """Seconds since it was booted, by the host's clock."""
        return time.monotonic() - self.booted_at

    def power(self, on: bool) -> None:
        """Turns the display on or off."""
        if on != self.screen_on:
            self.screen_on = on
            self.log.note("PowerManagerService", "Waking up" if on else "Going to sleep")

    def change(self, edit: Callable[[State], None]) -> None:
        """Runs `edit` on the phone's state and shows the result."""
        edit(self.state)
        self.device.load(self.state)

    def _change_settings(self, edit: Callable[[dict[str, Any]], None]) -> None:
        self.change(lambda state: edit(state["apps"]["settings"]))

    def screenshot(self) -> Image.Image:
        """What the display shows, an RGB picture that is only to be read: black when off or blank."""
        if self.blank or not self.screen_on:
            return Image.new("RGB", self.device.size)
        return self.device.shown()

    def screenshot_png(self) -> bytes:
        """The same as PNG bytes; the same screen seen twice is encoded once."""
        key = None if self.blank or not self.screen_on else self.device.screen().key
        if self._png is None or self._png[0] != key:
            self._png = (key, png.encode(self.screenshot()))
        return self._png[1]

    def dump(self) -> bytes:
        """Everything but what a reboot would lose anyway, as one snapshot."""
        files = [
            (path, node.mode, node.mtime, node.uid, node.gid, node.target or bytes(node.data))
            for top in image.KEPT
            for path, node in self.files.tree(top)
        ]
        snapshot = {
            "format": FORMAT,
            "phone": self.device.phone.dump(),
            "screen_on": self.screen_on,
            "uid": self.files.uid,
            "files": files,
            "properties": self.properties,
            "settings": self.settings.dump(),
            "packages": self.packages.dump(),
            "log": self.log.dump(),
        }
        packed: bytes = msgpack.packb(snapshot, unicode_errors="surrogateescape")
        return packed

    def load(self, data: bytes) -> None:
        """Replaces everything by what `dump` gave. Raises EnvError for another format."""
        try:
            snapshot = msgpack.unpackb(data, unicode_errors="surrogateescape")
        except ValueError as error:
            raise EnvError(f"a snapshot cannot be read: {error}.", "Save it again.", "device") from error
        if not isinstance(snapshot, dict) or snapshot.get("format") != FORMAT:
            raise EnvError(f"the snapshot is not of format {FORMAT}.", "Save it again.", "device")
        self.device.phone.load(snapshot["phone"])
        self.screen_on, self.files.uid = snapshot["screen_on"], snapshot["uid"]
        own = dict.fromkeys(("ro.serialno", "ro.boot.serialno"), self.serial)
        self.properties = {**snapshot["properties"], **own}
        self.settings.load(snapshot["settings"])
        self.packages.load(snapshot["packages"])
        self.log.load(snapshot["log"])
        self.files.replace(image.KEPT, snapshot["files"])
        self._end_all()
        self.activities.observe(log=False)

    def on_restart(self, listener: Callable[[], None]) -> None:
        """Calls `listener` at a reboot and when a snapshot is loaded, which end all connections."""
        self._restart_listeners.append(listener)

    def _end_all(self) -> None:
        """Ends whatever runs on the phone or is connected to it."""
        self.input.reset()
        self.processes.reset()
        self.activities.reset()
        for listener in self._restart_listeners:
            listener()
        self.network.clear()

    def reboot(self) -> None:
        """Restarts it: files, settings and packages remain; the rest is as new, and adbd is not root."""
        persistent = {name: value for name, value in self.properties.items() if name.startswith("persist.")}
        self.properties = image.properties(self.serial, self.api_level, self.density) | persistent
        self.change(interruptions.restart)
        self.screen_on = True
        self.files.uid = SHELL
        self._end_all()
        self.log.clear()
        self.settings.put("global", "boot_count", str(self._boots + 1))
        self._start()
