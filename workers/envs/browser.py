"""Web tasks in a real browser: screenshots in, clicks and keys out.

`BrowserEnv` operates the browser; a `Site` has the tasks: where a task's page is, how its episode begins and
what the page says about it. MiniWoB++ is the site that comes with this package.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Protocol, runtime_checkable

from pydantic import TypeAdapter, ValidationError

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError
from distrl.core.importing import check_kind, choose
from distrl.core.packing import MAX_ELEMENT_TEXT, MAX_ELEMENTS
from distrl.core.types import Element, Task
from distrl.core.user_errors import first_problem
from distrl.workers.devices.device import Screen
from distrl.workers.envs.base import Frame, StepResult
from distrl.workers.envs.chromium import ENTER, ESCAPE, HOME_KEY, Chromium


@dataclass(frozen=True)
class Verdict:
    """What the page says about the episode: whether it ended it, and the score in [0, 1] so far."""

    done: bool
    score: float


class Site(Protocol):
    """A family of web tasks; `size` is width and height of the page in CSS pixels."""

    size: tuple[int, int]

    def begin(self, browser: Chromium, task: Task) -> None:
        """Brings the page to the task's start state, whatever was shown before. Raises TaskError."""

    def verdict(self, browser: Chromium) -> Verdict:
        """Asks the page about the episode."""

    def expert(self, browser: Chromium, task: Task) -> Action:
        """The next action of a scripted expert. Raises EnvError when it has none."""


@runtime_checkable
class WritesGoals(Protocol):
    """A site whose pages write the instruction themselves."""

    def goal(self, browser: Chromium) -> str:
        """The instruction of the episode that has begun."""


LONG_PRESS_MS = 600
WAIT_S = 0.5


class BrowserEnv:
    """A browser that is reset to tasks of one site.

    A tap is a mouse click, a double tap two. A long press selects the paragraph under it; anywhere else,
    and where the paragraph takes clicks, it is a click held for 0.6 s. A swipe scrolls what lies under its
    start as a finger does, or is a drag of the mouse where nothing scrolls; `type` presses keys (←↑→↓ are
    the arrow keys), `enter` the Enter key, `back` the Escape key (it closes what is open, as Android's back
    key does) and `home` the Home key; `wait` waits for 0.5 s. The browser starts at the first reset, and
    again at the reset after it failed.

    Args:
        site: "miniwob", "pkg.mod:Name" of a class with a constructor without arguments, or a `Site`.
        scale: Screenshot pixels per CSS pixel.
        settle_s: Seconds between an action and the look at its result, for pages that animate.
        browser, driver, sandbox, deadline_s: See `Chromium`.
    """

    seed_is_instance: ClassVar[bool] = True
    """A page draws from the seed what its instruction names."""

    def __init__(
        self,
        site: str | Site = "miniwob",
        scale: float = 1.0,
        settle_s: float = 0.0,
        browser: str | None = None,
        driver: str | None = None,
        sandbox: bool = False,
        deadline_s: float = 30.0,
    ) -> None:
        self._site = load_site(site) if isinstance(site, str) else site
        self._settle_s = settle_s
        self._start: Callable[[], Chromium] = lambda: Chromium(
            self._site.size, scale, browser, driver, sandbox, deadline_s
        )
        self.browser: Chromium | None = None
        self._task: Task | None = None
        self._goal = ""
        self._verdict = Verdict(done=False, score=0.0)

    def reset(self, task: Task) -> Frame:
        self._task = None
        if self.browser is None or self.browser.remote is None:
            self.browser = self._start()
        self._site.begin(self.browser, task)
        self._task = task
        self._goal = self._site.goal(self.browser) if isinstance(self._site, WritesGoals) else task.goal
        self._verdict = self._site.verdict(self.browser)
        return self._frame()

    def step(self, action: Action) -> StepResult:
        """Executes `action` and looks at the result. An ended episode stays as it is, whatever is done."""
        browser, _ = self._running()
        if not self._verdict.done:
            if _execute(browser, action) and self._settle_s:
                time.sleep(self._settle_s)
            self._verdict = self._site.verdict(browser)
        return StepResult(self._frame(), done=self._verdict.done)

    @property
    def goal(self) -> str:
        """The instruction: the page's where it writes one, else the task's."""
        self._running()
        return self._goal

    def evaluate(self) -> float:
        self._running()
        return self._verdict.score

    def expert_action(self) -> Action:
        return self._site.expert(*self._running())

    def elements(self) -> tuple[Element, ...]:
        """The visible elements of the page that have a text of their own or a state, or can be acted on."""
        browser, _ = self._running()
        found = browser.run("return distrl.elements(...arguments)", MAX_ELEMENTS, MAX_ELEMENT_TEXT)
        try:
            return TypeAdapter(tuple[Element, ...]).validate_python(found)
        except ValidationError as error:
            problem = first_problem(error, "elements")
            raise EnvError(
                f"the page gives no list of elements: {problem}.", "A page must not set `window.distrl`."
            ) from error

    def close(self) -> None:
        if self.browser is not None:
            self.browser.close()
        self.browser = self._task = None

    def _running(self) -> tuple[Chromium, Task]:
        if self.browser is None or self._task is None:
            raise EnvError("the browser shows no task.", "Call reset first.")
        return self.browser, self._task

    def _frame(self) -> Frame:
        browser, task = self._running()
        screen = Screen(cache(browser.screenshot), key=object())  # drawn if and when it is looked at
        return Frame(screen, app=f"{task.suite}/{task.template}")


def load_site(name: str) -> Site:
    """The site of that name or "pkg.mod:Name". Raises ConfigError."""
    if ":" not in name:
        check_kind(SITES, name, "env.options.site")
    site: Site = choose(SITES, name, name if ":" in name else None)()
    return site


def _execute(browser: Chromium, action: Action) -> bool:
    kind = action.kind
    if kind is ActionKind.TAP and action.point is not None:
        browser.click(*action.point)
    elif kind is ActionKind.DOUBLE_TAP and action.point is not None:
        browser.click(*action.point, times=2)
    elif kind is ActionKind.LONG_PRESS and action.point is not None:
        if not browser.select(*action.point):
            browser.click(*action.point, hold_ms=LONG_PRESS_MS)
    elif kind is ActionKind.SWIPE and action.point is not None and action.to is not None:
        if not browser.scroll(action.point, action.to):
            browser.drag(action.point, action.to)
    elif kind is ActionKind.TYPE:
        if action.point is not None:
            browser.click(*action.point)
        browser.type_keys(action.text)
    elif kind is ActionKind.WAIT:
        time.sleep(WAIT_S)
    elif kind in _KEYS:
        browser.type_keys(_KEYS[kind])
    else:
        return False
    return True


_KEYS = {ActionKind.ENTER: ENTER, ActionKind.BACK: ESCAPE, ActionKind.HOME: HOME_KEY}

SITES = {"miniwob": "distrl.workers.envs.miniwob:MiniWob"}
