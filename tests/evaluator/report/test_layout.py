"""Tables of reports fit the window that they are looked at in, in headless Chromium."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from many_episodes import write_evaluation

from distrl.core.types import Verdict
from distrl.evaluator.agreement import Judged, compare
from distrl.evaluator.report import write_report
from distrl.evaluator.report.viewer import write_agreement_page
from distrl.workers.envs.chromium import BROWSER_NAMES, DRIVER_NAMES, Chromium

HAVE_BROWSER = any(map(shutil.which, BROWSER_NAMES)) and any(map(shutil.which, DRIVER_NAMES))
pytestmark = [
    pytest.mark.browser,
    pytest.mark.needs("jinja2"),
    pytest.mark.skipif(not HAVE_BROWSER, reason="needs Chromium and chromedriver"),
]


def cut(page: Path, size: tuple[int, int], selector: str) -> list[int]:
    """By how many pixels each table that is selected is wider than what shows it."""
    browser = Chromium(size)
    try:
        browser.open(page.as_uri())
        script = """
            const boxes = [...document.querySelectorAll(arguments[0])];
            return boxes.map(box => box.scrollWidth - box.clientWidth);
        """
        assert browser.run("return window.innerWidth") == size[0]
        found: list[int] = browser.run(script, selector)
    finally:
        browser.close()
    assert found, f"{page} has no {selector}"
    return found


def test_failure_modes_fit_a_narrow_window(tmp_path: Path) -> None:
    results = {
        "step_400 (baseline)": write_evaluation(tmp_path / "before", 60, 0.3),
        "after training": write_evaluation(tmp_path / "after", 60, 0.5, seed=1),
    }
    page = write_report(tmp_path, "narrow", results)
    assert cut(page, (420, 900), ".modes .scroll") == [0]


def test_a_judge_that_says_one_thing_fits_the_page(tmp_path: Path) -> None:
    said = [
        Judged(
            trajectory_id=f"{number}",
            task_id=f"{number}",
            template="webshop3_checkout",
            split="test",
            goal="Go",
            truth=True,
            verdict=Verdict(success=True, score=1.0, reason="It says.", judge="j"),
        )
        for number in range(4)
    ]
    page = tmp_path / "page.html"
    write_agreement_page(page, compare(said, "j", "here", []), said, iter(()))
    assert "and the judge calls every episode" in page.read_text()
    assert cut(page, (1200, 900), ".scroll") == [0, 0]
