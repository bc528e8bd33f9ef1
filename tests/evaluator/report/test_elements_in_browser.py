"""The elements of a screen on an episode's page, in headless Chromium, in light and dark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from episode_factory import make_episode, with_elements

from distrl.core.store import TrajectoryStore
from distrl.core.types import Element
from distrl.evaluator.report.viewer import write_trajectory_page
from distrl.evaluator.results import episode_result
from distrl.evaluator.stores import Found
from distrl.workers.envs.chromium import Chromium

pytestmark = [pytest.mark.browser, pytest.mark.needs("jinja2", "selenium")]
BOX = Element(text="<i>box</i>", flags=("clickable",), bounds=(0.1, 0.1, 0.4, 0.3))
ELEMENTS = (BOX, BOX.model_copy(update={"text": "w" * 1000, "bounds": (0.5, 0.5, 0.9, 0.9)}))
PLACES = "return [...document.querySelectorAll('.boxes')[1].children].map(b => getComputedStyle(b).opacity)"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    folder = tmp_path_factory.mktemp("elements")
    trajectory, images = make_episode(success=True)
    store = TrajectoryStore(folder / "store.sqlite3")
    listed = with_elements(trajectory, ELEMENTS)
    store.add(listed, images)
    write_trajectory_page(folder / "t.html", Found(listed, episode_result(listed), store))
    store.close()
    browser = Chromium((390, 844))
    browser.open((folder / "t.html").as_uri())
    yield browser
    browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_element_is_outlined_while_it_is_selected(page: Chromium, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.command("executeCdpCommand", cmd="Emulation.setEmulatedMedia", params={"features": features})
    page.run("document.querySelectorAll('details').forEach(details => details.open = true)")
    page.run("document.activeElement.blur()")
    assert page.run(PLACES) == ["0", "0"]
    cells = page.run("""
        const row = document.querySelectorAll('.elements')[1].querySelector('.e0');
        row.nextElementSibling.focus();
        return [...row.cells].map(cell => cell.textContent.trim());
    """)
    assert page.run(PLACES) == ["0", "1"]
    assert cells == ["0", "", BOX.text, "", "", "clickable"]
    assert page.run("return document.documentElement.scrollWidth") <= 390
    assert page.command("getLog", type="browser") == []
