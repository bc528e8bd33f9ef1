"""MiniWoB++ (package `miniwob`): about a hundred small web pages, each a task with instruction and reward.

The pages come from the installed package and are loaded from disk. `task.params["env"]` names the page and
`task.seed` seeds its random generator. The page's clock is set to a day: neither does it end an episode nor
does the score depend on it, since the score is the sign of the page's raw reward. For some pages a scripted
expert names the element to click next (`TARGETS`).
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError, MissingDependency, TaskError
from distrl.core.types import Task
from distrl.workers.envs.browser import Verdict
from distrl.workers.envs.chromium import Chromium

# Page -> JavaScript expression of the element to click, given `goal`, the page's instruction.
TARGETS = {
    "click-test": "$('#subbtn')",
    "click-test-2": "$('#subbtn')",
    "click-color": "$('#area .color[data-color=\"' + goal.split(' ')[3] + '\"]')",
    "click-tab": "$('#area ul li:nth-child(' + /#([0-9])/.exec(goal)[1] + ') a')",
    "click-dialog": "$('.ui-dialog-titlebar-close')",
    "click-widget": "$('#area .widget [data-type=\"' + /\"(.*)\"/.exec(goal)[1] + '\"]')",
    "click-button": "all('#area button').find(e => e.innerHTML === /\"(.*)\"/.exec(goal)[1])",
    "click-collapsible-nodelay": "shown('.ui-accordion-content') ? $('#subbtn') : $('#area h3')",
    "focus-text": "$('#tt')",
    "focus-text-2": "$('#tt' + /the ([0-9])/.exec(goal)[1])",
}

# A point of the target, its centre if possible, where a click would really reach it: inside the page's frame
# and not covered by another element. Null when there is none.
VISIBLE_POINT = """
var width = arguments[0], height = arguments[1], goal = core.getUtterance();
var $ = selector => document.querySelector(selector);
var all = selector => Array.from(document.querySelectorAll(selector));
var shown = selector => { var e = $(selector); return e !== null && e.offsetHeight > 0; };
var target = TARGET;
if (!target) return null;
var box = target.getBoundingClientRect();
for (var fx of [0.5, 0.3, 0.7, 0.1, 0.9]) for (var fy of [0.5, 0.3, 0.7, 0.1, 0.9]) {
  var x = box.left + fx * box.width, y = box.top + fy * box.height;
  if (x < 0 || y < 0 || x >= width || y >= height) continue;
  var hit = document.elementFromPoint(x, y);
  if (hit && target.contains(hit)) return [x, y];
}
return null;
"""


SIZE = (160, 210)

# endEpisode stops an episode that is still running. Focus and the mouse pointer are all that an earlier
# episode can leave behind: the page's own genProblem rebuilds the rest. What the page shows to a human beside
# the task (clock, statistics, click marks) is hidden, since focusing an element could otherwise scroll there.
_BEGIN = """
core.endEpisode(0);
core.hideDisplay();
document.getElementById('click-canvas').style.display = 'none';
if (document.activeElement) document.activeElement.blur();
core.EPISODE_MAX_TIME = 24 * 3600 * 1000;
Math.seedrandom(arguments[0]);
core.startEpisodeReal();
window.scrollTo(0, 0);
"""

# Icons are background images that load when they are first shown; a screenshot before that would lack them.
# The driver awaits a returned promise. An image that cannot be loaded is not waited for.
_AFTER_IMAGES = """
var urls = new Set(Array.from(document.body.querySelectorAll('*'))
  .map(e => getComputedStyle(e).backgroundImage).filter(css => css.startsWith('url('))
  .map(css => css.slice(5, -2)));
return Promise.all(Array.from(urls, url => {
  var image = new Image();
  image.src = url;
  return image.decode().catch(() => null);
})).then(() => ({done: WOB_DONE_GLOBAL, raw: WOB_RAW_REWARD_GLOBAL}));
"""

# Dialogs are children of the body, beside the task's own element.
_DESCRIBE = """
var aside = ['reward-display', 'click-canvas', 'sync-task-cover'];
return arguments[0].map(function (seed) {
  (function () { BEGIN }).call(null, seed);
  var parts = Array.from(document.body.children).filter(e => !aside.includes(e.id));
  return [core.getUtterance(), parts.map(e => e.outerHTML).join('')];
});
""".replace("BEGIN", _BEGIN)


class MiniWob:
    """The site `miniwob`. Raises MissingDependency if the package `miniwob` is not installed."""

    size = SIZE

    def __init__(self) -> None:
        # Its files are all that is needed; importing it would import gymnasium and Selenium.
        spec = importlib.util.find_spec("miniwob")
        if spec is None or not spec.submodule_search_locations:
            raise MissingDependency(
                "The MiniWoB++ pages are needed and package 'miniwob' is not installed.",
                "Install it: pip install 'distrl[browser]'.",
            )
        self._pages = Path(next(iter(spec.submodule_search_locations))) / "html" / "miniwob"

    def begin(self, browser: Chromium, task: Task) -> None:
        """Starts the episode of `task`; its page stays open in a tab for the next one."""
        self._show(browser, self.page_of(task))
        browser.rest_mouse()
        browser.run(_BEGIN + _AFTER_IMAGES, task.seed)

    def verdict(self, browser: Chromium) -> Verdict:
        """Done when the page ended the episode; 1.0 if its raw reward is positive then."""
        state: dict[str, Any] = browser.run(_AFTER_IMAGES)
        done = bool(state["done"])
        return Verdict(done, 1.0 if done and state["raw"] > 0 else 0.0)

    def expert(self, browser: Chromium, task: Task) -> Action:
        """A click on the element that the page's expert names; IMPOSSIBLE once that has gone."""
        page = self.page_of(task)
        if page not in TARGETS:
            raise EnvError(f"MiniWoB page {page!r} has no expert.", "Add one to TARGETS in miniwob_experts.")
        point = browser.run(VISIBLE_POINT.replace("TARGET", TARGETS[page]), *SIZE)
        if point is None:
            return Action(kind=ActionKind.IMPOSSIBLE)
        return Action.tap(point[0] / SIZE[0], point[1] / SIZE[1])

    def describe(self, browser: Chromium, page: str, seeds: Sequence[int]) -> list[tuple[str, str]]:
        """The instruction and the HTML of a page's instances: equal HTML means the same instance."""
        self._show(browser, page)
        described: list[tuple[str, str]] = []
        # In portions, so that none comes near the deadline of a command.
        for start in range(0, len(seeds), 40):
            portion = browser.run(_DESCRIBE, list(seeds[start : start + 40]))
            described += [(goal, html) for goal, html in portion]
        return described

    def _show(self, browser: Chromium, page: str) -> None:
        browser.show((self._pages / f"{page}.html").as_uri())

    def page_of(self, task: Task) -> str:
        page = task.params.get("env")
        if (
            not isinstance(page, str)
            or re.fullmatch(r"[a-z0-9-]+", page) is None
            or not (self._pages / f"{page}.html").is_file()
        ):
            raise TaskError(
                f"Task {task.id!r} names the MiniWoB page {page!r}, which does not exist.",
                "Take the suite miniwob, or set params.env to a page such as click-test.",
            )
        return page
