"""MiniWoB++ (package `miniwob`): about 130 small web pages, each a task with instruction and reward.

The pages come from the installed package and are loaded from disk. `task.params["env"]` names the page and
`task.seed` seeds its random generator. The page's clock is set to a day: neither does it end an episode nor
does the score depend on it. An episode is a success if the page's raw reward is 1. Animations of jQuery are
off, so a page never moves because of an action. Many pages have a scripted expert (miniwob_experts.js).
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError, MissingDependency, TaskError
from distrl.core.types import Task
from distrl.workers.envs.browser import Verdict
from distrl.workers.envs.chromium import Chromium

SIZE = (160, 210)

# The instruction as text: an icon by its name, a coloured box by its colour.
_SPOKEN = r"""
const spoken = () => {
  const query = document.getElementById('query').cloneNode(true);
  const replace = (selector, text) => query.querySelectorAll(selector).forEach(
    e => { e.textContent = text(e); });
  replace('[class*="ui-icon-"]', e => /ui-icon-([\w-]+)/.exec(e.className)[1]);
  replace('[style*="background-color"]', e => /background-color: *([^;]+)/.exec(e.getAttribute('style'))[1]);
  return query.textContent.replace(/\s+/g, ' ').trim();
};
"""

# endEpisode stops an episode that is still running. Focus, the mouse pointer and what was typed or ticked are
# all that an earlier episode can leave behind: the page's own genProblem rebuilds the rest. What it shows
# beside the task (clock, statistics, click marks) is hidden, since focusing an element could scroll there.
# Elements leave out the instruction, which is the goal already.
_BEGIN = """
core.endEpisode(0);
core.hideDisplay();
document.getElementById('click-canvas').style.display = 'none';
document.getElementById('query').dataset.goal = '';
if (document.activeElement) document.activeElement.blur();
if (window.jQuery) jQuery.fx.off = true;
for (const field of document.querySelectorAll('input, textarea')) {
  const form = document.createElement('form');  // only its reset makes a field as if it was never touched
  field.replaceWith(form);
  form.append(field);
  form.reset();
  form.replaceWith(field);
}
core.EPISODE_MAX_TIME = 24 * 3600 * 1000;
Math.seedrandom(arguments[0]);
core.startEpisodeReal();
window.scrollTo(0, 0);
"""

# Icons are images that load when they are first shown; a screenshot before that would lack them. The driver
# awaits a returned promise. An image that cannot be loaded is not waited for.
_AFTER_IMAGES = r"""
const seen = window.distrl.images ??= new Set(), urls = new Set();
for (const one of document.body.querySelectorAll('*')) {
  const style = getComputedStyle(one);
  for (const css of [style.backgroundImage, style.content]) {
    const url = /^url\("(.*?)"\)/.exec(css)?.[1] ?? (one.tagName === 'IMG' ? one.src : null);
    if (url && !seen.has(url)) urls.add(url);
  }
}
return Promise.all([...urls].map(url => {
  const image = new Image();
  image.src = url;
  seen.add(url);
  return image.decode().catch(() => null);
})).then(() => ({done: WOB_DONE_GLOBAL, raw: WOB_RAW_REWARD_GLOBAL}));
"""

# Dialogs are children of the body, beside the task's own element.
_DESCRIBE = """
SPOKEN
const aside = ['reward-display', 'click-canvas', 'sync-task-cover'];
return arguments[0].map(seed => {
  (function () { BEGIN }).call(null, seed);
  const parts = Array.from(document.body.children).filter(e => !aside.includes(e.id));
  return [spoken(), parts.map(e => e.outerHTML).join('')];
});
""".replace("SPOKEN", _SPOKEN).replace("BEGIN", _BEGIN)

_EXPERTS = Path(__file__).with_name("miniwob_experts.js").read_text(encoding="utf-8")
_NEXT_STEP = f"{_SPOKEN}{_EXPERTS}\nreturn PAGES[arguments[1]]();"


EXPERT_PAGES = tuple(re.findall(r'^  "([a-z0-9-]+)":', _EXPERTS, re.MULTILINE))
"""The pages that have a scripted expert."""


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

    def goal(self, browser: Chromium) -> str:
        return str(browser.run(_SPOKEN + "return spoken();"))

    def verdict(self, browser: Chromium) -> Verdict:
        """Done when the page ended the episode; 1.0 if its raw reward is 1: partly right is not solved."""
        state: dict[str, Any] = browser.run(_AFTER_IMAGES)
        done = bool(state["done"])
        return Verdict(done, float(done and math.isclose(state["raw"], 1.0)))

    def expert(self, browser: Chromium, task: Task) -> Action:
        """The next step of the page's expert; IMPOSSIBLE where it has none."""
        page = self.page_of(task)
        if page not in EXPERT_PAGES:
            raise EnvError(f"MiniWoB page {page!r} has no expert.", "Add one to miniwob_experts.js.")
        step: dict[str, Any] | None = browser.run(_NEXT_STEP, task.seed, page)
        if step is None:
            return Action(kind=ActionKind.IMPOSSIBLE)
        for name, key in (("point", "at"), ("to", "to")):
            if key in step:
                x, y = step.pop(key)
                step[name] = (_inside(x / SIZE[0]), _inside(y / SIZE[1]))
        return Action(**step)

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


def _inside(fraction: float) -> float:
    return min(1.0, max(0.0, fraction))
