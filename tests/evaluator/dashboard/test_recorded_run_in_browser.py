"""The page of a recorded run in headless Chromium; the goal and the judge of one episode are harmful."""

from __future__ import annotations

import contextlib
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from episode_factory import make_episode, make_task
from page_browser import HARM, assert_harmless, holds, press, text
from page_stub import Stub

from distrl.configs.load import check_config
from distrl.core.rundir import RunDir
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Purpose, Verdict
from distrl.evaluator.dashboard.dashboard import Dashboard
from distrl.evaluator.dashboard.server import DashboardServer
from distrl.workers.envs.chromium import Chromium

pytestmark = [pytest.mark.browser, pytest.mark.needs("selenium")]
OPEN = {"counts", "pool", "faults", "postmortems", "alarms", "slots", "facts", "lines", "costs", "modes"}
OPEN |= {"group", "rewards", "seconds", "elements", "judged"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty updates and twelve episodes of two templates; the newest one is the harmful one."""
    folder = tmp_path_factory.mktemp("runs")
    run = RunDir.create(check_config({"name": "recorded", "runs_dir": str(folder)}, "test"))
    rows = []
    for step in range(20):
        row = {
            "step": step,
            "time": 1000.0 + 10 * step,
            "time/elapsed_s": 10.0 * step,
            "episodes": 8.0 * step,
        }
        row |= {"versions": float(step), "train/success": step / 25, "reward/outcome": step / 25}
        row |= {"reward/total": step / 30, "policy/entropy": 1.0 - step / 40}
        rows.append(
            row | ({"eval/val/success": step / 25, "eval/val/episodes": 34.0} if step % 5 == 0 else {})
        )
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with contextlib.closing(TrajectoryStore(run.store)) as store:
        for number in range(12):
            template = ("toggle", "alarm")[number % 2]
            task = make_task(number, template, goal=HARM if number == 11 else "")
            fault = Fault.DEVICE if number == 4 else Fault.NONE
            made, images = make_episode(task, success=number % 3 == 2, fault=fault)
            when = {"started_at": 1000.0 + 20 * number, "purpose": Purpose.TRAIN}
            words = Verdict(success=True, score=0.9, reason=HARM, judge="vlm", answers=(HARM,))
            store.add(made.model_copy(update=when | ({"verdict": words} if number == 11 else {})), images)
    return run.path


@pytest.fixture(scope="module")
def page(run: Path) -> Iterator[tuple[Chromium, str]]:
    """The browser with the page, and its address."""
    browser = Chromium((1280, 900))
    with contextlib.closing(browser), serving(run, 0) as url:
        browser.open(url)
        holds(browser, "return document.querySelectorAll('#episodes tbody tr').length === 12")
        yield browser, url


@contextlib.contextmanager
def serving(run: Path, port: int) -> Iterator[str]:
    with Dashboard(run) as dashboard, contextlib.closing(DashboardServer(dashboard, str(port))) as server:
        yield server.url


def test_line_curves_heat_map_and_episodes(page: tuple[Chromium, str]) -> None:
    browser, _ = page
    holds(browser, "return document.querySelectorAll('#curves canvas').length >= 3")
    assert text(browser, "#run") == "recorded"
    assert "Success76%67–83%, n = 100" in text(browser, "#line")
    assert text(browser, "#link") == "recorded"
    rows = browser.run("return [...document.querySelectorAll('.heat tbody tr')].map(r => r.textContent)")
    assert sorted(row.rstrip("0123456789") for row in rows) == ["alarm", "toggle"]
    ended = browser.run("return [...document.querySelectorAll('#episodes td .chip')].map(c => c.textContent)")
    assert ended.count("device fault") == 1
    assert ended.count("solved") == 4


def test_an_episode_is_played_and_its_texts_stay_text(page: tuple[Chromium, str]) -> None:
    browser, _ = page
    assert text(browser, "#episodes .goal") == HARM
    browser.run("document.querySelector('#episodes .open').click()")
    holds(browser, "return document.querySelector('#player[open] .text-side h3')")
    heading = "#player .text-side h3"
    assert text(browser, "#player h2") == HARM
    assert text(browser, heading).startswith("1 Tap 50%, 20%")
    holds(browser, "return document.querySelector('#player .frame img')?.naturalWidth > 0")
    press(browser, "ArrowRight")
    assert text(browser, heading).startswith("2 Tap")
    press(browser, "ArrowLeft")
    assert text(browser, heading).startswith("1 Tap")
    press(browser, "End")
    assert HARM in text(browser, "#player .judged")
    assert_harmless(browser)
    assert browser.command("getLog", type="browser") == []


def test_it_reconnects_when_the_server_is_back(run: Path, page: tuple[Chromium, str]) -> None:
    browser, _ = page
    with serving(run, 0) as other:
        browser.open(other)
        holds(browser, "return document.querySelector('#link').textContent === 'recorded'")
    holds(browser, "return document.querySelector('#link').textContent === 'connection lost'")
    with serving(run, urlsplit(other).port or 0):
        holds(browser, "return document.querySelector('#link').textContent === 'recorded'")


def test_the_stub_of_the_other_tests_answers_as_the_server_does(page: tuple[Chromium, str]) -> None:
    """The same names everywhere; lists are compared by their first entry."""
    _, url = page
    with contextlib.closing(Stub()) as stub:
        for path in ("snapshot", "metrics", "heatmap?bins=8", "episodes?limit=3"):
            made, real = fetch(f"{stub.url}api/{path}"), fetch(f"{url}api/{path}")
            assert names(made) == names(real), path
        made, real = (fetch(f"{site}api/episodes?limit=1")["rows"][0]["id"] for site in (stub.url, url))
        assert names(fetch(f"{stub.url}api/episode/{made}")) == names(fetch(f"{url}api/episode/{real}"))


def fetch(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=20) as answer:
        return json.loads(answer.read())


def names(value: Any) -> Any:
    """The names in a JSON value, without its numbers and texts, and without what may be empty."""
    if isinstance(value, dict):
        return {name: names(one) for name, one in value.items() if name not in OPEN}
    return [names(value[0])] if isinstance(value, list) and value else None
