"""Whole pages: complete in themselves, everything escaped, numbers where people look for them."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from episode_factory import SCREEN, make_episode, make_task, screen, with_elements
from PIL import Image
from policy_fakes import png_without_palette

from distrl.configs.schema import Config
from distrl.core.errors import MissingDependency, RunDirectoryError
from distrl.core.rundir import RunDir
from distrl.core.store import TrajectoryStore
from distrl.core.types import Element, Fault, Timing, Trajectory, image_digest
from distrl.evaluator.report.episodes import picture
from distrl.evaluator.report.metrics import RunMetrics
from distrl.evaluator.report.page import percent
from distrl.evaluator.report.run import run_facts, write_report, write_run_report
from distrl.evaluator.report.viewer import TRAJECTORY_SHOT_WIDTH, write_trajectory_page
from distrl.evaluator.results import (
    EvaluationDirectory,
    EvaluationSpec,
    Subject,
    episode_result,
    evaluation_of,
)
from distrl.evaluator.stores import Found

pytestmark = pytest.mark.needs("jinja2")
EVIL = '<script>alert("x")</script><img src=http://example.org/x>'
Evaluate = Callable[..., Path]


class Page(HTMLParser):
    """Collects tags, attributes that load things, and the visible text."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.html = file.read_text(encoding="utf-8")
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.text = ""
        self.feed(self.html)
        self.words = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "action")]
        assert not [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def evaluate(tmp_path: Path) -> Evaluate:
    """Writes an evaluation in which the first `solved` of 8 tasks are solved."""

    def make(
        name: str,
        solved: int,
        evil: str = "",
        split: str = "test",
        levels: bool = False,
        subject: object = None,
        faulted: int = 1,
    ) -> Path:
        subject = subject or Subject(kind="checkpoint", name=f"checkpoints/{name}")
        spec = EvaluationSpec(suite="fake", splits=(split,), subject=subject)
        directory = EvaluationDirectory(tmp_path / name, spec)
        for i in range(9):
            task = make_task(i, ("toggle", "alarm")[i % 2], split, evil)
            if levels:
                task = task.model_copy(update={"params": {"level": (2, 10)[i % 2]}})
            fault = Fault.DEVICE if i >= 9 - faulted else Fault.NONE
            trajectory, images = make_episode(task, i < solved, 4, text=evil, fault=fault)
            directory.add(episode_result(trajectory), trajectory, images)
        directory.finish(evaluation_of(spec, directory.episodes, 0.0, 9.0))
        directory.close()
        return directory.path

    return make


@pytest.mark.parametrize(
    ("subject", "who"),
    [
        (Subject(kind="random"), "random actions · measured with seed 0"),
        (Subject(kind="prompted", name="gpt-x"), "the prompted model gpt-x · measured with seed 0"),
        (Subject(kind="model", name="Auto-UI-Base"), "Auto-UI-Base, untrained · measured with seed 0"),
        (Subject(kind="checkpoint", name="step_9"), "algorithm aride · policy tiny · seed 5"),
    ],
)
def test_the_header_says_who_acted(tmp_path: Path, evaluate: Evaluate, subject: Subject, who: str) -> None:
    results = {"one": evaluate("one", 3, subject=subject)}
    page = Page(write_report(tmp_path, "demo", results, config=Config(seed=5)))
    assert f"Suite fake · {who}" in page.words
    assert ("algorithm" in page.words.split("of the tasks in")[0]) == ("algorithm" in who)
    assert "Learning curve" not in page.words


def test_a_run_report_shows_before_and_after(tmp_path: Path, evaluate: Evaluate) -> None:
    run = RunDir.create(Config(name="demo", runs_dir=str(tmp_path / "runs")))
    rows = [{"step": i, "time": 10.0 * i, "episodes": 8 * i, "train/success": 0.1 * i} for i in range(9)]
    run.metrics.write_text("\n".join(json.dumps(row) for row in rows))
    results = {"warm start": evaluate("step_0", 2), "after training": evaluate("step_9", 7)}
    assert write_run_report(run.path, results) == run.report
    page = Page(run.report)
    for expected in (
        "the same tasks twice",
        "25%→88%",
        "2 of 8",
        "7 of 8",
        "Learning curve",
        "Training episodes64",
    ):
        assert expected in page.words
    for expected in ("the device went away", "step_9", "name: demo", "the same tasks twice"):
        assert expected in page.words
    assert "<h2>Staleness" not in page.html
    data = json.loads((run.path / "report.json").read_text())
    assert data["evaluations"]["after training"]["splits"]["test"]["overall"]["success_rate"] == 0.875
    assert data["gains"]["test"]["gain"] == pytest.approx(0.625)
    assert data["facts"]["episodes"] == 64
    assert data["learning_curve"]["episodes"]["train"][-1] == [64, pytest.approx(0.8)]


TABLE = {"trajectories": 4, "steps": 8, "success": 0.75, "ratio_mean": 2.0, "log_ratio_abs": 0.6, "ess": 0.8}


def test_an_evaluation_that_only_faulted_is_no_rate_of_0(tmp_path: Path, evaluate: Evaluate) -> None:
    rows = [{"step": i, "time": 10.0 * i, "episodes": 8 * i, "train/success": 0.1 * i} for i in range(9)]
    results = {"warm start": evaluate("step_0", 0, faulted=9), "after training": evaluate("step_9", 6)}
    page = Page(write_report(tmp_path, "demo", results, RunMetrics(rows)))
    assert "–→75%" in page.words.replace(" ", "")
    assert "left:0.00%" not in page.html, "there is no dot"
    assert "warm start on the test split" not in page.words


@pytest.mark.parametrize("with_tables", [True, False])
def test_staleness_and_mismatch_are_shown_if_they_were_measured(
    tmp_path: Path, evaluate: Evaluate, with_tables: bool
) -> None:
    rows = [{"step": i, "time": float(i), "off_policy/ess": 0.5, "mismatch/alarm": 0.0} for i in range(5)]
    if with_tables:
        rows[4] |= {f"staleness/4-7/{name}": value for name, value in TABLE.items()} | {"mismatch/alarm": 1.0}
    html = write_report(tmp_path, "demo", {"only": evaluate("only", 2)}, RunMetrics(rows)).read_text()
    text = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    assert "Effective sample" in text
    assert ("4–7 4 8 75% 2.00 ± 1.00 0.60 80%" in text) is with_tables
    assert ("Mismatch alarms 1 " in text) is with_tables
    data = json.loads((tmp_path / "report.json").read_text())
    assert [one["label"] for one in data["staleness"]["by_versions"]] == (["4-7"] if with_tables else [])


def test_the_page_is_complete_in_itself_and_escapes_everything(tmp_path: Path, evaluate: Evaluate) -> None:
    page = Page(write_report(tmp_path, EVIL, {EVIL: evaluate("a", 2, EVIL), "after": evaluate("b", 6, EVIL)}))
    assert page.tags.count("script") == 2  # the table's data and its program, whose hash the policy names
    program = re.search(r"<script>(.*?)</script>", page.html, re.DOTALL)
    style = re.search(r"<style>(.*?)</style>", page.html, re.DOTALL)
    assert program is not None
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(program[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.html
    assert EVIL in page.text
    assert page.sources
    assert all(source.startswith(("data:image/jpeg;base64,", "#")) for source in page.sources)
    assert "default-src 'none'" in page.html
    assert "url(" not in style[1]
    assert "&gt;" not in style[1]


def test_levels_of_difficulty_stand_in_order_before_the_templates(tmp_path: Path, evaluate: Evaluate) -> None:
    results = {"before": evaluate("a", 2, split="val"), "after": evaluate("b", 7, levels=True)}
    words = Page(write_report(tmp_path, "levels", results)).words
    assert words.index("level 2") < words.index("level 10") < words.index("alarm")
    assert "val" in words, "splits may differ between evaluations"


def test_a_report_needs_complete_evaluations_and_jinja2(
    tmp_path: Path, evaluate: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RunDirectoryError, match="no complete evaluation"):
        write_report(tmp_path, "x", {"a": tmp_path / "nothing"})
    with pytest.raises(RunDirectoryError, match="not a run"):
        write_run_report(tmp_path, {})
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependency, match=r"distrl\[report\]"):
        write_report(tmp_path, "x", {"only": evaluate("only", 4)})


def write_page(tmp_path: Path, trajectory: Trajectory, images: dict[str, bytes]) -> Page:
    file, store = tmp_path / "t.html", TrajectoryStore(tmp_path / "store.sqlite3")
    store.add(trajectory, images)
    write_trajectory_page(file, Found(trajectory, episode_result(trajectory), store))
    store.close()
    return Page(file)


def test_a_trajectory_page_shows_tokens_and_escapes(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers: not installed")
    model = tokenizers.models.WordLevel({"<token 7>": 7, "?": 0}, "?")
    tokenizers.Tokenizer(model).save(str(tmp_path / "checkpoints" / "tokenizer.json"))
    trajectory, images = make_episode(make_task(goal=EVIL), success=True, text=EVIL, version=12)
    timing = Timing(started_at=1.8e9, think_s=0.05)
    steps = tuple(step.model_copy(update={"timing": timing}) for step in trajectory.steps)
    page = write_page(tmp_path, trajectory.model_copy(update={"steps": steps}), images)
    assert "script" not in page.tags
    assert page.tags.count("img") == 4
    assert "think 50 ms" in page.words
    assert "started" not in page.words, "a time of day is not a duration"
    for expected in (EVIL, "<token 7>", "−0.10", "log μ = −0.35", "weights v12", "+1 outcome", "solved"):
        assert expected in page.words


def test_a_trajectory_page_lists_elements_and_escapes_them(tmp_path: Path) -> None:
    texts = dict.fromkeys(("text", "description", "class_name", "resource_id"), EVIL)
    evil = Element(**texts, flags=("clickable",), bounds=(0.0, 0.0, 1.0, 1.0))
    trajectory, images = make_episode(success=True)
    first, *others = with_elements(trajectory, (evil,) * 2).steps
    marked = screen(9)
    seen = first.observation.model_copy(update={"marked": image_digest(marked)})
    first = first.model_copy(update={"observation": seen})
    page = write_page(
        tmp_path,
        trajectory.model_copy(update={"steps": (first, *others)}),
        {**images, image_digest(marked): marked},
    )
    assert "script" not in page.tags
    assert page.words.count("2 UI elements on the screen") == len(trajectory.steps)
    assert page.words.count(EVIL) >= 8 * len(trajectory.steps)
    assert f"on element 1, {EVIL}" in page.words
    assert page.sources[0] == picture(marked, *SCREEN, TRAJECTORY_SHOT_WIDTH).uri
    assert "UI element" not in write_page(tmp_path / "none", *make_episode()).words


def huge_image() -> bytes:
    """A small file of more pixels than Pillow agrees to decode."""
    buffer = io.BytesIO()
    Image.new("1", (14_000, 14_000)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize("damaged", [b"no image", huge_image(), png_without_palette((9, 9))])
def test_a_trajectory_with_damaged_screenshots_still_shows(tmp_path: Path, damaged: bytes) -> None:
    trajectory, images = make_episode(fault=Fault.INFERENCE)
    page = write_page(tmp_path, trajectory, dict.fromkeys(images, damaged))
    assert "screenshot not stored" in page.words
    assert "inference fault" in page.words


def test_actions_a_second_are_the_mean_while_the_policy_was_trained() -> None:
    rows = [{"step": 0.0, "workers/actions_per_s": 500.0}]  # at first workers demonstrate
    rows += [{"step": step, "workers/actions_per_s": rate} for step, rate in ((1.0, 20.0), (9.0, 30.0))]
    facts = {fact.key: fact for fact in run_facts({}, RunMetrics(rows))}
    assert (facts["actions_per_s"].number, "judged" in facts) == (25.0, False)


def test_a_judge_s_work_and_cost_are_tiles() -> None:
    said = {"judged": 40.0, "unjudged": 2.0, "calls": 55.0, "input_tokens": 5e4, "output_tokens": 900.0}
    row = {"step": 1.0, "time": 0.0, **{f"judge/{name}": number for name, number in said.items()}}
    facts = {fact.key: fact for fact in run_facts({}, RunMetrics([{**row, "judge/cost": 0.0}]))}
    assert (facts["judged"].value, facts["judged"].note) == ("40", "episodes, and 2 unjudged")
    assert facts["judge_cost"].value == "50,900 tokens"
    assert facts["judge_cost"].note == "55 calls, 50,000 + 900 tokens"
    facts = {fact.key: fact for fact in run_facts({}, RunMetrics([{**row, "judge/cost": 1.5}]))}
    assert (facts["judge_cost"].number, facts["judge_cost"].value) == (1.5, "1.5")
    unused = run_facts({}, RunMetrics([dict.fromkeys(row, 0.0)]))
    assert not any(fact.key.startswith("judge") for fact in unused)


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (0.0, "0"),
        (1 / 2500, "<0.1"),
        (0.004, "0.4"),
        (0.996, "99.6"),
        (0.9997, ">99.9"),
        (1.0, "100"),
    ],
)
def test_a_share_is_100_or_0_percent_only_if_it_is(share: float, said: str) -> None:
    assert percent(share) == said
