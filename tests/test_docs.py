"""The documentation names everything that goes over the wire and into metrics.jsonl."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distrl.core.messages import MESSAGE_TYPES, RejectCode
from distrl.core.metrics import FAMILIES
from distrl.learner import peers
from distrl.workers.agents import AGENTS

ROOT = Path(__file__).parents[1]
METRIC = re.compile(r'f?"(?!step_)([a-z_]+)/[a-z_0-9{}/]+":')


def text(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(MESSAGE_TYPES))
def test_every_message_has_a_row(name: str) -> None:
    assert re.search(rf"^\| [^|]*`{name}`", text("architecture.md"), re.MULTILINE)


@pytest.mark.parametrize("code", list(RejectCode))
def test_every_reject_code_is_explained(code: RejectCode) -> None:
    assert re.search(rf"^\| .*`{code.value}`", text("architecture.md"), re.MULTILINE)


@pytest.mark.parametrize("name", [*AGENTS, "auto"])
def test_every_agent_is_explained(name: str) -> None:
    assert re.search(rf"^\| `{name}` \|", text("models.md"), re.MULTILINE)
    assert re.search(rf"is the name of a built-in agent [^`]*\b{name}\b", text("configuration.md"))


def test_every_metric_of_peers_is_listed() -> None:
    names = [*peers.RATES.values(), *peers.TOTALS.values(), *peers.ALIVE.values()]
    names += [name for name, _ in peers.GAUGES.values()]
    assert [name for name in names if f"`{name}`" not in text("operations.md")] == []
    assert {name.partition("/")[0] for name in names} <= FAMILIES


def test_every_family_of_the_learner_s_metrics_is_listed() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "learner").rglob("*.py")]
    families = {match for source in sources for match in METRIC.findall(source)}
    assert {"loss", "advantage", "off_policy", "eval", "time"} <= families <= FAMILIES
    assert [name for name in sorted(families) if f"`{name}/" not in text("operations.md")] == []


def test_what_names_in_metrics_begin_with_is_listed() -> None:
    rows = re.findall(r"^\| (`[^|]*) \|", text("operations.md") + text("environments.md"), re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`([a-z_]+)(?:/[^`]*)?`", row)}
    assert FAMILIES - listed == {"step"}, "a column of every row, as the text above the table says"


def test_every_link_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    pages += (ROOT / "simulator" / "docs").glob("*.md")
    broken = []
    for page in pages:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            name, _, anchor = link.partition("#")
            file = page.parent / name if name else page
            if link.startswith("http"):
                continue
            if not file.exists() or (anchor and anchor not in anchors(file)):
                broken.append((page.name, link))
    assert broken == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    body = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", body, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
