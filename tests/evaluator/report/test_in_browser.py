"""Report pages in headless Chromium: offline, without errors, and the table of all episodes does its work."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from episode_factory import make_episode, write_evaluation

from distrl.core.store import TrajectoryStore
from distrl.evaluator.report.run import write_report
from distrl.evaluator.report.viewer import write_listing
from distrl.evaluator.results import load_evaluation
from distrl.evaluator.stores import StoredEpisodes
from distrl.workers.envs.chromium import Chromium

COUNT = 1_000
"""Episodes of each of two evaluations; the numbers on the page have a thousands separator."""
pytestmark = [pytest.mark.browser, pytest.mark.needs("jinja2", "selenium")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    made = Chromium((1280, 900))
    yield made
    made.close()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("many")
    return {
        "before": write_evaluation(folder / "before", COUNT, 0.3),
        "after": write_evaluation(folder / "after", COUNT, 0.7, seed=1),
    }


@pytest.fixture(scope="module")
def page(browser: Chromium, results: dict[str, Path]) -> Chromium:
    """The report, opened as a file."""
    file = write_report(results["after"], "many <b>", results)
    log(browser)
    browser.open(file.as_uri())
    return browser


def log(browser: Chromium) -> list[str]:
    """What the console has said since it was last asked, errors and warnings."""
    entries: list[dict[str, Any]] = browser.command("getLog", type="browser")
    return [entry["message"] for entry in entries]


def count(page: Chromium) -> str:
    text: str = page.run("return document.querySelector('.pager .count').textContent")
    return text


def choose(page: Chromium, label: str, value: str) -> None:
    script = """
        const labels = [...document.querySelectorAll('.filters label')];
        const field = labels.find(l => l.textContent.startsWith(arguments[0])).querySelector('select, input');
        field.value = arguments[1];
        field.dispatchEvent(new Event(field.tagName === 'SELECT' ? 'change' : 'input'));
    """
    page.run(script, label, value)


def rows(page: Chromium) -> list[list[str]]:
    found: list[list[str]] = page.run("""
        const rows = [...document.querySelectorAll('#explorer tbody tr')];
        return rows.map(row => [...row.cells].map(cell => cell.textContent));
    """)
    return found


@pytest.fixture(autouse=True)
def no_filters(page: Chromium) -> None:
    for label in ("Evaluation", "Template", "Ended", "Why it failed"):
        choose(page, label, "*")
    choose(page, "Search", "")


def test_nothing_is_loaded_and_nothing_is_wrong(page: Chromium) -> None:
    loaded = page.run("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    assert log(page) == []
    assert page.run("return document.querySelector('h1').textContent") == "many <b>"


def test_a_script_from_elsewhere_would_not_run(page: Chromium) -> None:
    """The page's own policy stops it, so that an instruction or an answer of a model never can be one."""
    page.run(
        "const s = document.createElement('script'); s.text = 'window.harm = 1'; document.body.append(s)"
    )
    assert page.run("return window.harm") is None
    assert "Content Security Policy" in " ".join(log(page))


def test_episodes_are_paged(page: Chromium) -> None:
    assert count(page).startswith("2,000 of 2,000 episodes")
    assert len(rows(page)) == 50
    first = rows(page)
    page.run("document.querySelectorAll('.pager button')[1].click()")
    assert len(rows(page)) == 50
    assert rows(page) != first


def test_filters_find_what_there_is(page: Chromium, results: dict[str, Path]) -> None:
    episodes = load_evaluation(results["after"]).episodes
    choose(page, "Evaluation", "after")
    counted = episodes[:-1]
    solved = sum(episode.success for episode in counted)
    assert count(page) == f"1,000 of 2,000 episodes, {100 * solved / len(counted):.1f}% solved"
    choose(page, "Why it failed", "stuck")
    stuck = [episode for episode in episodes if episode.mode == "stuck"]
    assert count(page) == f"{len(stuck)} of 2,000 episodes, 0.0% solved"
    choose(page, "Template", "alarm")
    wanted = [(episode.goal, episode.task_id) for episode in stuck if episode.template == "alarm"]
    assert count(page) == f"{len(wanted)} of 2,000 episodes, 0.0% solved"
    assert [row[2] for row in rows(page)] == [f"{goal}{task_id}" for goal, task_id in wanted[:50]]
    assert {row[4] for row in rows(page)} == {"Gets stuck midway"}
    choose(page, "Why it failed", "*")
    choose(page, "Search", episodes[1].trajectory_id[:10])
    assert [row[2] for row in rows(page)] == ["Turn on switch 1" + episodes[1].task_id]
    choose(page, "Search", "switch 733")
    assert {row[2][:18] for row in rows(page)} == {"Turn on switch 733"}


def test_a_number_of_a_failure_mode_filters_the_table(page: Chromium) -> None:
    number = page.run("const a = document.querySelector('a.pick'); a.click(); return a.textContent")
    assert count(page).startswith(f"{number} of ")


def test_an_episode_is_opened_step_by_step_or_has_a_command(page: Chromium) -> None:
    choose(page, "Evaluation", "after")
    choose(page, "Ended", "solved")
    command = page.run("""
        document.querySelector('#explorer .open').click();
        return document.querySelector('#explorer .command').textContent;
    """)
    assert command.startswith("distrl inspect ")
    assert "--trajectory" in command
    shown = page.run("""
        for (;;) {
            const link = document.querySelector('#explorer tbody a[href^="#e-"]');
            if (link) return document.querySelectorAll(`${link.hash} .strip img`).length;
            document.querySelectorAll('.pager button')[1].click();
        }
    """)
    assert shown >= 5
    assert log(page) == []


def test_a_command_to_copy_runs_nothing_that_a_worker_wrote(page: Chromium, tmp_path: Path) -> None:
    place, name = tmp_path / "my runs", "$(echo 'harm')"
    trajectory, images = make_episode()
    with closing(TrajectoryStore(place / "store.sqlite3")) as store:
        store.add(trajectory.model_copy(update={"id": name}), images)
    with closing(StoredEpisodes(place)) as stored:
        write_listing(tmp_path / "list.html", place, list(stored.find()), "all", max_bytes=0)
    page.open((tmp_path / "list.html").as_uri())
    page.run("document.querySelector('#explorer .open').click()")
    command: str = page.run("return document.querySelector('#explorer .command').textContent")
    shown = subprocess.check_output(["sh", "-c", command.replace("distrl", "printf '%s\\n'", 1)], text=True)
    assert shown.splitlines() == ["inspect", str(place), "--trajectory", name]
