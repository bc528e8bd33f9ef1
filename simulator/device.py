"""The simulated phone as a `Device` of this process, and as a member of a pool of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from PIL import Image

from distrl.core.errors import ConfigError, EnvError
from distrl.simulator.phone import hierarchy, render
from distrl.simulator.phone.nodes import WIDTH
from distrl.simulator.phone.phone import Phone, new_state
from distrl.simulator.phone.state import State
from distrl.workers.devices import apps
from distrl.workers.devices.device import Device, Key, Screen
from distrl.workers.devices.table import RecoveryStep

MAX_SNAPSHOTS = 32
"""Most snapshots of one device; beyond it saving another name is an error."""
_SMALLEST, _LARGEST = 64, 4320


class SimDevice:
    """One simulated phone.

    Args:
        cache: Where rendered pictures are kept, by default shared by the whole process.
    """

    settles_at_once = True
    """Nothing on it moves by itself; see `distrl.workers.devices.screen`."""

    def __init__(
        self,
        width: int = 540,
        height: int = 1200,
        state: State | None = None,
        cache: render.RenderCache | None = None,
    ) -> None:
        if not (width >= _SMALLEST and height <= _LARGEST and 2.0 <= height / width <= 2.5):
            raise ConfigError(
                f"a screen must be at least {_SMALLEST} pixels wide, at most {_LARGEST} high, "
                f"and 2 to 2.5 times as high as wide; got {width}x{height}.",
                "540x1200 is the default.",
            )
        self._size = (width, height)
        self._cache = render.SHARED if cache is None else cache
        self._snapshots: dict[str, str] = {}
        self.phone = Phone(new_state() if state is None else state, height * WIDTH / width)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self._size

    def load(self, state: State) -> None:
        """Replaces the phone's state; the phone owns it from now on."""
        self.phone = Phone(state, self.phone.height)

    def screenshot(self) -> Image.Image:
        """The screen as an RGB picture; the caller owns it."""
        return self.screen().picture()

    def shown(self) -> Image.Image:
        """The same, not copied: others see it too, so it is only to be read."""
        return self._cache.shown(self.phone.tree(), *self._size)

    def screen(self) -> Screen:
        """The present screen; its key is the tree that it is drawn from."""
        tree, (width, height) = self.phone.tree(), self._size
        return Screen(lambda: self._cache.picture(tree, width, height), (tree, width, height))

    def _dp(self, x: int, y: int) -> tuple[float, float]:
        scale = WIDTH / self._size[0]
        return (x + 0.5) * scale, (y + 0.5) * scale

    def tap(self, x: int, y: int) -> None:
        """A short touch at pixel (x, y)."""
        self.phone.tap(*self._dp(x, y))

    def double_tap(self, x: int, y: int) -> None:
        """Two short touches at pixel (x, y); no app of this phone takes them for one gesture."""
        self.tap(x, y)
        self.tap(x, y)

    def long_press(self, x: int, y: int) -> None:
        """A long touch at pixel (x, y)."""
        self.phone.long_press(*self._dp(x, y))

    def swipe(self, x1: int, y1: int, x2: int, y2: int, duration_ms: int = 300) -> None:
        """A finger that moves from (x1, y1) to (x2, y2); how fast makes no difference here."""
        self.phone.swipe(*self._dp(x1, y1), *self._dp(x2, y2))

    def type_text(self, text: str) -> None:
        """Text into the focused field."""
        self.phone.type_text(text)

    def key(self, key: Key) -> None:
        """Presses a key."""
        {Key.BACK: self.phone.back, Key.HOME: self.phone.home, Key.ENTER: self.phone.enter}[Key(key)]()

    def open_app(self, name: str) -> bool:
        """Brings the app of this name to the front. Returns whether there is one; else nothing happens."""
        # Behind adb the apps' names are their packages'; a name means the same app here.
        package = apps.find(name, (apps.SIMPHONE + app for app in self.phone.state["installed"]))
        if package is not None:
            self.phone.open(package.removeprefix(apps.SIMPHONE))
        return package is not None

    def hierarchy(self) -> str:
        """The screen's elements as uiautomator XML."""
        return hierarchy.xml(self.phone.tree(), *self._size, self.phone.front)

    def foreground(self) -> str:
        """The name of the app in front, "launcher" for the home page."""
        return self.phone.front

    def save_state(self, name: str) -> None:
        """Keeps the present state under `name`."""
        if name not in self._snapshots and len(self._snapshots) >= MAX_SNAPSHOTS:
            raise EnvError(
                f"a simulated phone keeps at most {MAX_SNAPSHOTS} snapshots, {name!r} is one too many.",
                "Save under a name that exists.",
                fault="device",
            )
        self._snapshots[name] = self.phone.dump()

    def load_state(self, name: str) -> None:
        """Brings back the state saved as `name`."""
        if name not in self._snapshots:
            known = ", ".join(sorted(self._snapshots)) or "none"
            raise EnvError(f"there is no snapshot {name!r}; saved ones: {known}.", "Save it first.", "device")
        self.phone.load(self._snapshots[name])

    def close(self) -> None:
        """Forgets the snapshots."""
        self._snapshots.clear()


class SimMember:
    """A simulated phone in a pool: it cannot fail, and recovery replaces it by a new one."""

    claim = ""
    open_limit_s = 5.0
    options: Mapping[str, object] = {}

    def __init__(self, name: str, width: int = 540, height: int = 1200) -> None:
        self.id = name
        self._size = (width, height)

    def open(self) -> Device:
        """A phone fresh from the box."""
        return SimDevice(*self._size)

    def probe(self) -> None:
        """Always succeeds."""

    def ladder(self) -> Sequence[RecoveryStep]:
        """One step that does nothing: opening makes a new phone."""
        return [RecoveryStep("make a new phone", lambda: None, 0.0)]

    def evidence(self) -> Mapping[str, bytes]:
        """Nothing."""
        return {}

    def close(self) -> None:
        """Nothing is held."""
