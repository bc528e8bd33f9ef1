"""Judging a stored evaluation again: verdicts beside the ground truth, and a page with what differs."""

from __future__ import annotations

import base64
import contextlib
import io
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from episode_factory import make_episode, make_task, make_undrawn
from judge_endpoint import JudgeEndpoint, Reply, says, status
from PIL import Image
from typer.testing import CliRunner

from distrl.cli.main import app
from distrl.configs.schema import Config
from distrl.core.errors import JudgeRefuses
from distrl.core.rundir import DirectoryInUse
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Outcome, Purpose, Trajectory
from distrl.evaluator.agreement import AgreementReport
from distrl.evaluator.rejudge import Rejudged, read_verdicts
from distrl.workers.episode import BLANK
from distrl.workers.rewards import truth_after


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_JUDGE_KEY", "sk")


def fill(place: Path, *successes: bool) -> list[Trajectory]:
    """A store with episodes that said that they were done, and a faulted, a cut and an imagined one."""
    store = TrajectoryStore(place / "store.sqlite3")
    found = []
    for number, success in enumerate(successes):
        trajectory, images = make_episode(make_task(number))
        found.append(trajectory.model_copy(update={"success": float(success)}))
        store.add(found[-1], images)
    store.add(*make_episode(make_task(90), fault=Fault.DEVICE))
    store.add(*make_episode(make_task(91), success=False))
    trajectory, images = make_episode(make_task(92))
    store.add(trajectory.model_copy(update={"purpose": Purpose.IMAGINED}), images)
    store.close()
    return found


def config(endpoint: JudgeEndpoint, **judge: Any) -> Config:
    vlm = {"url": endpoint.url, "model": "m", "examples": None, "attempts": 1, "timeout_s": 5.0}
    rewards = {"require_complete": judge.get("when") != "steps"}
    return Config.model_validate({"judge": {"kind": "vlm", **vlm, **judge}, "worker": {"rewards": rewards}})


def judge_all(
    place: Path, config: Config, limit: int | None = None, stop: threading.Event | None = None
) -> tuple[Rejudged, AgreementReport]:
    rejudged = Rejudged(place, config.judge, config.worker.rewards)
    try:
        return rejudged, rejudged.run(limit, stop or threading.Event(), lambda done: None)
    finally:
        rejudged.close()


def run(place: Path, endpoint: JudgeEndpoint, limit: int | None = None, **judge: Any) -> Rejudged:
    return judge_all(place, config(endpoint, **judge), limit)[0]


def command(place: Path, endpoint: JudgeEndpoint) -> list[str]:
    options = ["url=" + endpoint.url, "model=m", "examples=null", "attempts=1"]
    sets = [part for option in options for part in ("--set", f"judge.{option}")]
    return ["evaluate", "quickstart", "--rejudge", str(place), "--judge", "vlm", *sets]


def test_verdicts_and_truth_are_compared(tmp_path: Path) -> None:
    fill(tmp_path, True, False, False)
    with JudgeEndpoint([status(False), status(True), status(True)]) as endpoint:  # the newest is asked first
        rejudged = run(tmp_path, endpoint)
    said = {one.task_id[-4:]: (one.truth, one.verdict.success) for one in rejudged.judged}
    assert said == {"0002": (False, False), "0001": (False, True), "0000": (True, True)}


@pytest.mark.needs("jinja2")
def test_the_judge_and_the_page_show_pictures_that_were_not_stored(tmp_path: Path) -> None:
    with contextlib.closing(TrajectoryStore(tmp_path / "store.sqlite3")) as store:
        store.add(*make_undrawn())
    with JudgeEndpoint([status(False)]) as endpoint:
        run(tmp_path, endpoint)
        rejudged = Rejudged(tmp_path, config(endpoint).judge, config(endpoint).worker.rewards)
    with contextlib.closing(rejudged):
        page = rejudged.write_page().read_text()
    for text in (str(endpoint.requests[0][2]), page):
        found = [
            base64.b64decode(data) for data in re.findall("data:image/jpeg;base64,([A-Za-z0-9+/=]+)", text)
        ]
        sizes = [Image.open(io.BytesIO(data)).size for data in found]
        assert sizes
        assert BLANK not in sizes


def test_without_an_endpoint_they_are_undecided_and_asked_again_next_time(tmp_path: Path) -> None:
    fill(tmp_path, True, True)
    with JudgeEndpoint([Reply(500), says("Hm."), status(True)]) as endpoint:
        first = run(tmp_path, endpoint)
        assert [one.verdict.is_decided for one in first.judged] == [False, False]
        second = run(tmp_path, endpoint)
    assert [one.verdict.is_decided for one in second.judged] == [True, True]
    assert sum(one.verdict.calls for one in second.judged) == 4, "the first session's too"
    assert [one.verdict.input_tokens for one in second.judged] == [1000, 2000]
    assert len(read_verdicts(second.file)) == 2


def test_a_limit_counts_those_that_are_asked_about(tmp_path: Path) -> None:
    fill(tmp_path, True, False, False)  # the newest three of six are not asked about
    with JudgeEndpoint([status(True)]) as endpoint:
        rejudged = run(tmp_path, endpoint, limit=2)
        assert len(endpoint.requests) == 2
    assert [one.task_id[-4:] for one in rejudged.judged] == ["0002", "0001"]


def solved_of(place: Path, config: Config, limit: int | None, stop: threading.Event) -> tuple[int, int]:
    _, report = judge_all(place, config, limit, stop)
    assert report.solved is not None
    return report.solved.successes, report.solved.episodes


def test_failures_nobody_is_asked_about_count_as_far_back_as_the_verdicts(tmp_path: Path) -> None:
    """However little a session does: the rate would rise with every failure that it did not come to."""
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    for number, says_done in enumerate((False, True, False, True)):  # the oldest first
        trajectory, images = make_episode(make_task(number), success=says_done)
        changes = {} if says_done else {"success": 0.0}
        store.add(trajectory.model_copy(update={**changes, "outcome": Outcome.UNJUDGED}), images)
    store.add(*make_episode(make_task(90), fault=Fault.DEVICE))
    store.close()
    go, stop = threading.Event(), threading.Event()
    stop.set()
    with JudgeEndpoint([status(True)]) as endpoint:
        loaded = config(endpoint)
        assert solved_of(tmp_path, loaded, 0, go) == (0, 0)
        assert solved_of(tmp_path, loaded, 1, go) == (1, 1)
        assert solved_of(tmp_path, loaded, 1, go) == (2, 3)
        assert solved_of(tmp_path, loaded, None, stop) == (2, 3)
        assert solved_of(tmp_path, loaded, None, go) == (2, 4)


def test_phones_without_ground_truth_get_the_judges_rate(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="needs jinja2: not installed")
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    for number in range(4):
        trajectory, images = make_episode(make_task(number, ("toggle", "alarm")[number % 2]))
        store.add(trajectory.model_copy(update={"success": 0.0, "outcome": Outcome.UNJUDGED}), images)
    store.close()
    with JudgeEndpoint([status(True), status(False), status(False), status(False)]) as endpoint:
        result = CliRunner().invoke(app, command(tmp_path, endpoint), catch_exceptions=False)
    assert "by vlm: 25.0% solved (4.6 to 69.9), 1 of 4" in result.output
    assert "  alarm                   50.0% solved" in result.output
    assert "vlm against ground truth: nothing to compare" in result.output
    report = AgreementReport.model_validate_json((tmp_path / "agreement-vlm.json").read_text())
    assert report.solved is not None
    assert report.solved.rate == 0.25
    page = (tmp_path / "agreement-vlm.html").read_text()
    assert "25.0% solved (4.6 to 69.9), 1 of 4" in page
    assert "Success according to the judge" in page


def test_all_repetitions_of_an_evaluation_are_judged(tmp_path: Path) -> None:
    place = tmp_path / "out"
    for seed in (0, 1):
        (place / f"seed-{seed}").mkdir(parents=True)
        fill(place / f"seed-{seed}", True, False)
    with JudgeEndpoint([status(True)]) as endpoint:
        rejudged = run(place, endpoint)
    assert [one.truth for one in rejudged.judged] == [False, True] * 2
    assert rejudged.file == place / "verdicts" / "vlm.jsonl"


def with_distances(trajectory: Trajectory, distances: tuple[int, ...]) -> Trajectory:
    """The episode, its screens told to be so far from the goal."""
    assert trajectory.final is not None
    *before, last = distances
    steps = tuple(
        step.model_copy(update={"observation": step.observation.model_copy(update={"distance": distance})})
        for step, distance in zip(trajectory.steps, before, strict=True)
    )
    final = trajectory.final.model_copy(update={"distance": last})
    return trajectory.model_copy(update={"steps": steps, "final": final})


@pytest.mark.parametrize(
    ("distances", "truths"),
    [
        (((3, 0, 1, 2), (2, 1, 0, 0)), {"0": True, "1": False}),
        (None, {"0": None, "1": None}),
    ],
)
def test_a_judge_of_steps_is_compared_with_the_truth_where_it_decided(
    tmp_path: Path, distances: tuple[tuple[int, ...], ...] | None, truths: dict[str, bool | None]
) -> None:
    """It says success after the first step: there one is done, which fails in the end, and the other not."""
    store = TrajectoryStore(tmp_path / "store.sqlite3")
    for number, success in enumerate((False, True)):
        trajectory, images = make_episode(make_task(number), success=success)
        if distances is not None:
            trajectory = with_distances(trajectory, distances[number])
        store.add(trajectory, images)
    store.close()
    with JudgeEndpoint([status(True)]) as endpoint:
        for _ in range(2):  # the second session reads what the first one wrote
            rejudged, report = judge_all(tmp_path, config(endpoint, when="steps"))
            assert {one.task_id[-1]: one.truth for one in rejudged.judged} == truths
            assert report.unknown == (0 if distances is not None else 2)


def test_what_a_cut_off_episode_shows_counts_for_a_judge_of_steps() -> None:
    cut_off, _ = make_episode(success=False)
    shown = with_distances(cut_off, (3, 2, 1, 0))
    assert cut_off.ground_truth == 0.0
    assert truth_after(shown, 0) == truth_after(shown, 3) == 1.0
    assert truth_after(shown, 1) == truth_after(cut_off, 0) == 0.0


def test_two_judges_of_a_kind_are_two_judges(tmp_path: Path) -> None:
    fill(tmp_path, True, False)
    with JudgeEndpoint([status(True)] * 2 + [status(False)] * 2) as endpoint:
        first = run(tmp_path, endpoint)
        other = run(tmp_path, endpoint, model="other")
        again = run(tmp_path, endpoint, threads=2)
    assert (first.name, other.name, again.name) == ("vlm", "vlm-2", "vlm")
    assert {one.verdict.success for one in first.judged} == {True}
    assert {one.verdict.success for one in other.judged} == {False}
    assert {one.verdict.success for one in again.judged} == {True}


def test_verdicts_are_on_disk_at_once_and_a_session_that_waits_can_be_stopped(tmp_path: Path) -> None:
    fill(tmp_path, True, True)
    stop = threading.Event()
    seen: list[int] = []

    def tell(done: int) -> None:
        seen.append(len(read_verdicts(rejudged.file)))
        stop.set()

    with JudgeEndpoint([status(True), Reply(429, headers={"Retry-After": "60"})]) as endpoint:
        loaded = config(endpoint, attempts=2)
        rejudged = Rejudged(tmp_path, loaded.judge, loaded.worker.rewards)
        rejudged.run(None, stop, tell)
        rejudged.close()
    assert set(seen) == {1}
    assert len(read_verdicts(rejudged.file)) == 1, "nothing is written of the one that waited"


def test_two_sessions_of_a_judge_do_not_overwrite_each_other(tmp_path: Path) -> None:
    fill(tmp_path, True)
    with JudgeEndpoint([status(True)]) as endpoint:
        loaded = config(endpoint)
        first = Rejudged(tmp_path, loaded.judge, loaded.worker.rewards)
        with pytest.raises(DirectoryInUse, match=r"Another session of vlm .* use another judge\."):
            Rejudged(tmp_path, loaded.judge, loaded.worker.rewards)
        first.run(None, threading.Event(), lambda done: None)
        first.close()
        assert len(run(tmp_path, endpoint).judged) == 1


def test_the_command_says_why_episodes_are_unjudged(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="needs jinja2: not installed")
    fill(tmp_path, True, True, True)
    with JudgeEndpoint([Reply(500, "oops"), Reply(500, "oops"), says("Hm.")]) as endpoint:
        result = CliRunner().invoke(app, command(tmp_path, endpoint), catch_exceptions=False)
    assert result.exit_code == 0
    away = f"The endpoint: {endpoint.url}/chat/completions answers 500: oops."
    assert f"  2 unjudged: {away}" in result.output
    assert "  1 unjudged: The answer has no status, or several; it ends with 'Hm.'." in result.output
    page = (tmp_path / "agreement-vlm.html").read_text()
    assert "Why episodes are unjudged" in page
    assert away in page
    lines = read_verdicts(tmp_path / "verdicts/vlm.jsonl")
    assert all("Task: " in one.verdict.prompt and one.verdict.model == "m" for one in lines)


def test_the_command_ends_with_a_refused_key(tmp_path: Path) -> None:
    fill(tmp_path, True, True, True, True)
    with JudgeEndpoint([Reply(401, "who are you?")]) as endpoint:
        result = CliRunner().invoke(app, command(tmp_path, endpoint))
        assert len(endpoint.requests) == 1
    assert isinstance(result.exception, (JudgeRefuses, SystemExit))
    assert result.exit_code != 0
    assert "1 unjudged: The endpoint" in result.output


def test_an_interrupted_session_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, True, True)
    stop = threading.Event()
    stop.set()
    monkeypatch.setattr("distrl.core.process.install_signals", lambda grace_s: stop)
    with JudgeEndpoint([status(True)]) as endpoint:
        result = CliRunner().invoke(app, command(tmp_path, endpoint))
    assert result.exit_code != 0
    assert "Run the same command again" in f"{' '.join(result.output.split())} {result.exception}"


def test_the_command_prints_the_numbers_and_writes_the_page(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="needs jinja2: not installed")
    (wrong, *_) = fill(tmp_path, False, True)
    with JudgeEndpoint([status(True)]) as endpoint:
        options = ["url=" + endpoint.url, "model=m", "examples=null"]
        sets = [part for option in options for part in ("--set", f"judge.{option}")]
        line = ["evaluate", "quickstart", "--rejudge", str(tmp_path), "--judge", "vlm", *sets]
        result = CliRunner().invoke(app, line, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "vlm against ground truth: 50.0% agree" in result.output
    assert "2 calls, 2,000 + 40 tokens\n" in result.output
    page = (tmp_path / "agreement-vlm.html").read_text()
    assert wrong.id in page
    assert "truth: failure" in page
    assert "data:image/jpeg;base64" in page
    assert "I see it." in page
    assert "2 calls, 2,000 + 40 tokens; failed calls and unreadable answers included" in page
    assert (tmp_path / "verdicts/vlm.jsonl").is_file()


@pytest.mark.needs("jinja2")
def test_the_page_leaves_out_what_the_store_has_trimmed(tmp_path: Path) -> None:
    wrong, other = fill(tmp_path, False, False)
    with JudgeEndpoint([status(True)]) as endpoint:
        run(tmp_path, endpoint)
        with contextlib.closing(TrajectoryStore(tmp_path / "store.sqlite3")) as store:
            assert store.trim(0, before=other.id) == [wrong.id]
        rejudged = Rejudged(tmp_path, config(endpoint).judge, config(endpoint).worker.rewards)
        with contextlib.closing(rejudged):
            page = rejudged.write_page().read_text()
    assert (wrong.id in page, other.id in page) == (False, True)
    assert "2 episodes, the most confident errors of the judge first; 1 are shown" in page


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--judge", "vlm"], "--rejudge"),
        (["--rejudge", "/nowhere", "--judge", "ground_truth", "--seeds", "5"], "have no effect"),
        (["--rejudge", "/nowhere"], "No judge is configured"),
        (["--rejudge", "/nowhere", "--judge", "rules"], "no rules"),
        (["--rejudge", "/nowhere", "--judge", "ground_truth"], "no trajectory store"),
    ],
)
def test_what_is_missing_is_told(options: list[str], problem: str) -> None:
    result = CliRunner().invoke(app, ["evaluate", "quickstart", *options])
    assert result.exit_code != 0
    assert problem in " ".join(result.output.split())
