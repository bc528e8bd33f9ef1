"""The browser environment against real Chromium: what it shows, what a click does, how it fails."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from waiting import until

from distrl.configs.schema import WorkerConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError, EnvError, MissingDependency, TaskError
from distrl.core.types import Task
from distrl.workers.envs import chromium
from distrl.workers.envs.browser import BrowserEnv, Verdict, load_site
from distrl.workers.envs.chromium import DRIVER_NAMES, Chromium, find_program
from distrl.workers.episode import observe


def browser_test(function: Callable[..., None]) -> Callable[..., None]:
    """Marks a test that needs the real browser."""
    return pytest.mark.browser(pytest.mark.needs("miniwob", "selenium")(function))


def task_of(page: str, seed: int) -> Task:
    return Task(
        id=f"{page}/{seed}", suite="t", template=page, split="x", goal="", params={"env": page}, seed=seed
    )


@pytest.fixture(scope="module")
def env() -> Iterator[BrowserEnv]:
    made = BrowserEnv()
    yield made
    made.close()


@pytest.fixture
def fragile_env() -> Iterator[BrowserEnv]:
    """An environment of its own, for tests that break the browser."""
    made = BrowserEnv(deadline_s=2.5)
    yield made
    made.close()


def solve(env: BrowserEnv) -> float:
    for _ in range(30):
        if env.step(env.expert_action()).done:
            break
    return env.evaluate()


# Showing


@browser_test
def test_a_seed_determines_the_picture_whatever_was_done_before(env: BrowserEnv) -> None:
    pages = ("click-tab", "click-dialog", "click-collapsible-nodelay", "form-sequence-2")
    first = {page: env.reset(task_of(page, 7)).image for page in pages}
    for page in pages:
        assert first[page].mode == "RGB"
        assert first[page].size == (160, 210)
        other = env.reset(task_of(page, 8)).image
        assert other.tobytes() != first[page].tobytes()
        if not env.step(Action.tap(0.5, 0.6)).done:
            env.step(env.expert_action())
        assert env.reset(task_of(page, 7)).image.tobytes() == first[page].tobytes()


@browser_test
def test_two_browsers_show_the_same_and_act_apart(env: BrowserEnv) -> None:
    other = BrowserEnv(scale=2.0)
    try:
        mine, theirs = env.reset(task_of("click-color", 3)), other.reset(task_of("click-color", 3))
        assert theirs.image.size == (320, 420)
        for point in ((40, 100), (110, 100), (40, 160), (110, 160)):
            assert theirs.image.getpixel((2 * point[0], 2 * point[1])) == mine.image.getpixel(point)
        assert solve(other) == 1.0
        assert env.evaluate() == 0.0
        assert solve(env) == 1.0
    finally:
        assert other.browser is not None
        group, home = _group(other), other.browser.home
        assert len(_processes(group)) > 2
        other.close()
        other.close()
        assert not home.exists()
    until(lambda: not _processes(group))
    with pytest.raises(EnvError, match="reset"):
        other.step(Action.tap(0.5, 0.5))


# Acting


@browser_test
@pytest.mark.parametrize(
    "page",
    [
        *("choose-list", "click-scroll-list", "enter-date", "enter-time"),  # fields of the browser's own
        *("click-menu", "use-slider"),  # arrow keys
        *("sign-agreement", "scroll-text-2"),  # scrolling
        *("drag-items", "drag-shapes", "highlight-text"),  # dragging
        *("click-color", "email-inbox", "login-user-popup"),
    ],
)
def test_experts_solve_pages_of_every_sort(env: BrowserEnv, page: str) -> None:
    env.reset(task_of(page, 2))
    assert solve(env) == 1.0


@browser_test
def test_a_wrong_click_ends_without_success_and_stays_ended(env: BrowserEnv) -> None:
    env.reset(task_of("click-color", 1))
    assert not env.step(Action.tap(0.99, 0.99)).done
    right = env.expert_action().point
    assert right is not None
    wrong = env.step(Action.tap(1.0 - right[0], right[1]))
    assert wrong.done
    assert env.evaluate() == 0.0
    # The page now shows a START cover; clicking it must not begin another episode.
    again = env.step(Action.tap(0.5, 0.5))
    assert again.done
    assert again.frame.image.tobytes() == wrong.frame.image.tobytes()


@browser_test
def test_a_partly_right_answer_is_not_a_success(env: BrowserEnv) -> None:
    env.reset(task_of("find-greatest", 1))
    best = env.expert_action().point
    assert best is not None
    env.step(Action.tap(0.15 if best[0] > 0.3 else 0.85, best[1]))
    submit = next(one for one in env.elements() if one.text == "Submit")
    left, top, right, bottom = submit.bounds
    assert env.step(Action.tap((left + right) / 2, (top + bottom) / 2)).done
    assert env.browser is not None
    assert env.browser.run("return WOB_RAW_REWARD_GLOBAL") == 0.1
    assert env.evaluate() == 0.0


@browser_test
def test_the_page_writes_the_goal_with_icons_and_colours_in_words(env: BrowserEnv) -> None:
    env.reset(task_of("use-colorwheel-2", 1))
    assert re.search(r"the following color #[0-9a-f]{6} with", env.goal)
    goals = set()
    for seed in range(6):
        env.reset(task_of("click-menu-2", seed))
        goals.add(env.goal)
    assert any(re.search(r"item with the (disk|seek|stop|play|zoom)\S* icon", goal) for goal in goals)


@browser_test
def test_what_is_no_touch_leaves_the_page_as_it_is(env: BrowserEnv) -> None:
    before = env.reset(task_of("click-tab", 2)).image.tobytes()
    for kind in (ActionKind.WAIT, ActionKind.COMPLETE, ActionKind.IMPOSSIBLE, ActionKind.INVALID):
        result = env.step(Action(kind=kind))
        assert (result.done, result.frame.image.tobytes()) == (False, before)


@browser_test
def test_elements_have_a_text_a_place_and_a_state(env: BrowserEnv) -> None:
    env.reset(task_of("click-checkboxes", 1))
    assert env.browser is not None
    half = r"'\ud83d'"  # of a surrogate pair, which no encoding can carry
    env.browser.run(f"const one = document.querySelector('input'); one.checked = true; one.title = {half}")
    hides_title = '<form><input name="title"></form>'  # as form.title
    env.browser.run("document.body.insertAdjacentHTML('beforeend', arguments[0])", hides_title)
    elements = env.elements()
    assert not any("object" in one.text for one in elements)
    boxes = [one for one in elements if one.class_name == "input:checkbox"]
    assert (boxes[0].text, boxes[0].description) == ("", "\ufffd")
    states = [[flag for flag in one.flags if flag.endswith("checked")] for one in boxes]
    assert states == [["checked"], *[["unchecked"]] * (len(boxes) - 1)]
    assert all(elements[one.parent].class_name == "label" for one in boxes)
    (button,) = [one for one in elements if one.text == "Submit"]
    assert (button.class_name, button.flags) == ("button", ("clickable",))
    left, top, right, bottom = button.bounds
    assert env.step(Action.tap((left + right) / 2, (top + bottom) / 2)).done


@browser_test
def test_elements_leave_out_the_instruction_and_what_the_goal_says_already(env: BrowserEnv) -> None:
    env.reset(task_of("click-button", 1))
    assert env.goal
    assert not any("Click" in one.text for one in env.elements())


@browser_test
def test_no_screen_is_drawn_that_is_not_looked_at(env: BrowserEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    screenshot = Chromium.screenshot
    monkeypatch.setattr(Chromium, "screenshot", lambda browser: taken.append("") or screenshot(browser))
    frame = env.reset(task_of("click-button", 1))
    first, _ = observe(frame, WorkerConfig(screenshot_format="none"))
    second, _ = observe(env.step(Action(kind=ActionKind.WAIT)).frame, WorkerConfig(screenshot_format="none"))
    assert (taken, first.image != second.image) == ([], True)
    assert frame.image.size == frame.image.size == (160, 210)
    assert len(taken) == 1


class EventLog:
    """A site that is not MiniWoB: one page that records the events it gets."""

    size = (200, 100)

    def __init__(self, page: Path) -> None:
        self._page = page

    def begin(self, browser: Chromium, task: Task) -> None:
        self._page.write_text(
            "<body><script>var seen = [];"
            "for (const kind of ['mousedown', 'mouseup', 'click', 'dblclick'])"
            " document.addEventListener(kind, e => seen.push([kind, e.clientX, e.clientY, e.isTrusted]));"
            "document.addEventListener('keydown', e => seen.push([e.key]));</script></body>",
            encoding="utf-8",
        )
        browser.open(self._page.as_uri())

    def verdict(self, browser: Chromium) -> Verdict:
        return Verdict(done=False, score=float(browser.run("return seen.length > 0")))

    def expert(self, browser: Chromium, task: Task) -> Action:
        raise EnvError("this page has no expert.")


@browser_test
def test_every_action_is_a_real_event_in_another_site(tmp_path: Path) -> None:
    env = BrowserEnv(site=EventLog(tmp_path / "page.html"))
    try:
        assert env.reset(task_of("log", 0)).image.size == (200, 100)
        assert env.evaluate() == 0.0
        assert env.browser is not None

        def events_of(action: Action) -> object:
            env.step(action)
            assert env.browser is not None
            return env.browser.run("return seen.splice(0);")

        at = [50, 25, True]
        assert events_of(Action.tap(0.25, 0.25)) == [["mousedown", *at], ["mouseup", *at], ["click", *at]]
        assert events_of(Action(kind=ActionKind.LONG_PRESS, point=(1.0, 1.0))) == [
            [kind, 199, 99, True] for kind in ("mousedown", "mouseup", "click")
        ]
        twice = events_of(Action(kind=ActionKind.DOUBLE_TAP, point=(0.25, 0.25)))
        assert twice == [[kind, *at] for kind in ("mousedown", "mouseup", "click") * 2 + ("dblclick",)]
        dragged = events_of(Action.swipe((0.25, 0.25), (0.5, 0.75)))
        assert isinstance(dragged, list)
        assert dragged[:2] == [["mousedown", *at], ["mouseup", 100, 75, True]]
        assert events_of(Action.type_text("aÉ\n")) == [["a"], ["É"], ["Enter"]]
        assert events_of(Action.type_text("")) == []
        assert events_of(Action.type_text("→↑")) == [["ArrowRight"], ["ArrowUp"]]
        there = Action(kind=ActionKind.TYPE, point=(0.25, 0.25), text="b")
        assert events_of(there) == [["mousedown", *at], ["mouseup", *at], ["click", *at], ["b"]]
        keys = {ActionKind.ENTER: "Enter", ActionKind.BACK: "Escape", ActionKind.HOME: "Home"}
        assert [events_of(Action(kind=kind)) for kind in keys] == [[[key]] for key in keys.values()]
        with pytest.raises(EnvError, match="no expert"):
            env.expert_action()
    finally:
        env.close()


class Form(EventLog):
    """A page with a list of options, a box that scrolls, and in it something that is dragged."""

    def begin(self, browser: Chromium, task: Task) -> None:
        self._page.write_text(
            "<style>body, p, select {margin: 0; display: block; height: 20px}"
            "#box {height: 60px; overflow: auto} #drag {user-select: none}</style>"
            "<body><select><option>one<option>two</select>"
            "<div id='box'><p id='drag'>drag</p><p style='height: 400px'>text</p></div>"
            "<script>var seen = []; const drag = document.querySelector('#drag');"
            "for (const kind of ['mousedown', 'mouseup']) drag.addEventListener(kind, () => seen.push(kind));"
            "document.querySelector('select').onchange = e => seen.push(e.target.value);</script></body>",
            encoding="utf-8",
        )
        browser.open(self._page.as_uri())


@browser_test
def test_options_are_shown_in_the_page_and_a_swipe_scrolls_where_nothing_is_dragged(tmp_path: Path) -> None:
    env = BrowserEnv(site=Form(tmp_path / "page.html"))
    try:
        closed = env.reset(task_of("form", 0)).image.tobytes()
        assert env.goal == ""
        assert env.step(Action.tap(0.1, 0.1)).frame.image.tobytes() != closed
        options = [one for one in env.elements() if one.text == "two" and "clickable" in one.flags]
        left, top, right, bottom = options[-1].bounds
        env.step(Action.tap((left + right) / 2, (top + bottom) / 2))
        assert env.browser is not None
        assert env.browser.run("return seen.splice(0)") == ["two"]
        assert [one.text for one in env.elements() if one.class_name == "select"] == ["two"]
        env.step(Action.swipe((0.5, 0.3), (0.5, 0.7)))
        assert env.browser.run("return [seen.splice(0)[0], document.querySelector('#box').scrollTop]") == [
            "mousedown",
            0,
        ]
        env.step(Action.swipe((0.5, 0.7), (0.5, 0.2)))
        assert env.browser.run("return [seen, document.querySelector('#box').scrollTop]") == [[], 50]
    finally:
        env.close()


class Mixed(EventLog):
    """A page with what is half seen, wrapped, or drawn."""

    def begin(self, browser: Chromium, task: Task) -> None:
        self._page.write_text(
            "<style>* {margin: 0; padding: 0; border: 0} p {height: 20px}</style><body>"
            "<div style='height: 30px; overflow: auto'><p>seen<p>cut<p>below</div>"
            "<div onclick='0'><button style='width: 100%'>inner</button></div>"
            "<a onclick='0' class='ui-button go-up'><b>&nbsp;</b></a><textarea rows=1>two  words </textarea>"
            "<svg style='position: fixed; top: 60px; left: 0'><text y=10 x=60 onclick='0'>7</text>"
            "<text y=10 onclick='0'>covered</text>"
            "<path d='M0 0h49v20H0z' class='slice' onclick='0'/></svg>"
            "<script>var seen = [];</script></body>",
            encoding="utf-8",
        )
        browser.open(self._page.as_uri())


@browser_test
def test_elements_are_what_can_be_seen_without_wrappers(tmp_path: Path) -> None:
    env = BrowserEnv(site=Mixed(tmp_path / "page.html"))
    try:
        env.reset(task_of("mixed", 0))
        listed = {one.text or one.description: one for one in env.elements()}
        assert set(listed) == {"", "seen", "cut", "inner", "go-up", "two  words ", "7", "slice"}
        assert listed[""].flags == ("scrollable",)
        assert (listed["cut"].bounds[1], listed["cut"].bounds[3]) == (0.2, 0.3)
        assert listed["inner"].parent == -1
        assert listed["7"].description.endswith("digit")
        assert env.browser is not None
        for point, marked in (((0.1, 0.05), "seen"), ((0.1, 0.4), "")):
            env.browser.run("getSelection().empty()")
            env.step(Action(kind=ActionKind.LONG_PRESS, point=point))
            assert env.browser.run("return getSelection().toString()") == marked
        env.browser.run("window.distrl = {elements: () => 7}")
        with pytest.raises(EnvError, match="gives no list of elements"):
            env.elements()
    finally:
        env.close()


@browser_test
def test_a_tab_is_kept_as_it_was_left_until_there_are_too_many(
    fragile_env: BrowserEnv, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, most = fragile_env, 8
    monkeypatch.setattr(chromium, "MAX_TABS", most)
    env.reset(task_of("click-test", 0))
    browser = env.browser
    assert browser is not None
    addresses = []
    for number in range(most + 1):
        page = tmp_path / f"{number}.html"
        page.write_text(f"<body style='background: rgb({number}, 0, 0)'></body>", encoding="utf-8")
        addresses.append(page.as_uri())
        browser.show(addresses[-1])
        browser.run("window.visited = true")
        assert browser.screenshot().size == (160, 210)
        assert browser.screenshot().getpixel((5, 5)) == (number, 0, 0)
    # The first one was given up for the last one.
    for number in (most, 1, 2, 0):
        browser.show(addresses[number])
        assert browser.run("return window.visited === true") == (number != 0)
        assert browser.screenshot().getpixel((5, 5)) == (number, 0, 0)
    browser.open(addresses[1])
    assert not browser.run("return window.visited === true")
    env.reset(task_of("click-test", 0))
    assert solve(env) == 1.0


# Failing


@browser_test
@pytest.mark.parametrize(("number", "message"), [(signal.SIGKILL, "."), (signal.SIGSTOP, "in time")])
def test_a_browser_that_dies_or_hangs_is_a_fault_and_the_next_reset_recovers(
    fragile_env: BrowserEnv, number: signal.Signals, message: str
) -> None:
    before = fragile_env.reset(task_of("click-test", 1)).image.tobytes()
    group = _group(fragile_env)
    os.kill(_browser_process(fragile_env), number)
    with pytest.raises(EnvError, match=message) as caught:
        fragile_env.step(Action.tap(0.5, 0.5))
    assert caught.value.fault == "env"
    with pytest.raises(EnvError, match="not running"):
        fragile_env.step(Action.tap(0.5, 0.5))
    until(lambda: not _processes(group))
    assert fragile_env.reset(task_of("click-test", 1)).image.tobytes() == before
    assert solve(fragile_env) == 1.0


@browser_test
def test_the_browser_ends_with_a_killed_owner() -> None:
    script = textwrap.dedent("""
        import sys
        from distrl.core.types import Task
        from distrl.workers.envs.browser import BrowserEnv
        env = BrowserEnv()
        env.reset(Task(id="t", suite="t", template="t", split="x", goal="", params={"env": "click-test"}))
        print(env.browser.process_group, env.browser.home, flush=True)
        sys.stdin.read()
    """)
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        group, home = owner.stdout.readline().split()
        assert _processes(int(group))
    finally:
        owner.kill()
        owner.communicate(timeout=30)
    until(lambda: not _processes(int(group)))
    assert not Path(home).exists()


@browser_test
def test_a_page_that_does_not_exist_is_a_task_error(env: BrowserEnv) -> None:
    for page in ("no-such-page", "../core/core", ""):
        with pytest.raises(TaskError, match="does not exist"):
            env.reset(task_of(page, 0))
    env.reset(task_of("simon-says", 0))
    with pytest.raises(EnvError, match="has no expert"):
        env.expert_action()


def test_a_missing_browser_is_named_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DISTRL_CHROMIUM", str(tmp_path / "nowhere"))
    with pytest.raises(MissingDependency, match=r"nowhere.*DISTRL_CHROMIUM"):
        Chromium((160, 210))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependency, match="apt install chromium"):
        find_program("chromedriver", None, "DISTRL_UNSET", DRIVER_NAMES)


def test_a_driver_that_does_not_start_is_a_fault(tmp_path: Path) -> None:
    broken = tmp_path / "driver"
    broken.write_text("#!/bin/sh\necho cannot start; exit 1\n", encoding="utf-8")
    broken.chmod(0o755)
    with pytest.raises(EnvError, match="cannot start"):
        Chromium((160, 210), browser=str(broken), driver=str(broken))


def test_an_unknown_site_names_the_known_ones() -> None:
    for name in ("miniwobb", "no.such.module:Site", "os:nothing"):
        with pytest.raises(ConfigError):
            load_site(name)


# Processes


def _group(env: BrowserEnv) -> int:
    assert env.browser is not None
    return env.browser.process_group


def _processes(group: int) -> list[psutil.Process]:
    """The living processes of a process group."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _browser_process(env: BrowserEnv) -> int:
    """The browser's main process: the one with the profile directory and no --type."""
    for process in _processes(_group(env)):
        command = " ".join(process.cmdline())
        if "--user-data-dir=" in command and "--type=" not in command:
            return process.pid
    raise AssertionError("the browser has no main process")
