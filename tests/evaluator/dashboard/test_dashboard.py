"""The dashboard of a recorded run, over HTTP: its data, its filters, and what it refuses."""

from __future__ import annotations

import contextlib
import http.client
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from episode_factory import make_episode, make_task
from typer.testing import CliRunner
from waiting import until

from distrl.cli.main import app
from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, StoreError
from distrl.core.rundir import RunDir
from distrl.core.store import TrajectoryStore
from distrl.core.types import Fault, Outcome, Purpose, Verdict
from distrl.evaluator.dashboard.dashboard import Dashboard
from distrl.evaluator.dashboard.index import Selection
from distrl.evaluator.dashboard.server import DashboardServer, check_address
from distrl.evaluator.dashboard.snapshot import find_bottleneck
from distrl.workers.devices.errors import DeviceError
from distrl.workers.devices.postmortem import Bundle

EVIL = "</script><img src=x onerror=alert(1)>\"'\u2028"
TOKEN = "sesame"
ROWS = [
    {
        "step": 0,
        "time": 1000.0,
        "episodes": 0.0,
        "train/success": 0.0,
        "time/elapsed_s": 0.0,
        "versions": 1.0,
    },
    {"step": 5, "time": 1060.0, "episodes": 50.0, "train/success": 0.5, "policy/entropy": 0.9},
    {"step": 9, "time": 1120.0, "episodes": 150.0, "train/success": 0.6, "policy/entropy": 0.8},
    {"step": 9, "time": 1120.0, "versions": 9.0},
    {"step": 9, "time": 1120.0, "eval/val/success": 0.7, "eval/val/episodes": 10.0, "eval/val/updates": 9.0},
]


class Browser:
    """Asks one server."""

    def __init__(self, server: DashboardServer) -> None:
        self.address = server.url.split("/")[2]

    def ask(self, path: str, method: str = "GET", body: str | None = None, **headers: str) -> Any:
        connection = http.client.HTTPConnection(self.address, timeout=30)
        with contextlib.closing(connection):
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            answer.data = answer.read()  # type: ignore[attr-defined]
            return answer

    def json(self, path: str) -> Any:
        answer = self.ask(path)
        assert answer.status == 200, answer.data
        assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
        return json.loads(answer.data)


def add(store: TrajectoryStore, number: int, **options: Any) -> str:
    template = ("toggle", "alarm")[number % 2]
    trajectory, images = make_episode(
        make_task(number, template, goal=f"Goal {number} {EVIL}"), version=3, **options
    )
    update = {"started_at": 1000.0 + number, "group_id": f"g{number // 2}", "worker": EVIL}
    trajectory = trajectory.model_copy(update=update)
    store.add(trajectory, images)
    return trajectory.id


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """Six episodes: solved, failed, a fault, solved …"""
    made = RunDir.create(Config.model_validate({"name": "r", "runs_dir": str(tmp_path)}))
    made.metrics.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with contextlib.closing(TrajectoryStore(made.store)) as store:
        for number in range(6):
            fault = Fault.DEVICE if number % 3 == 2 else Fault.NONE
            add(store, number, success=number % 3 == 0, fault=fault, text=EVIL)
        store.quarantine(store.ids()[0], f"Bad {EVIL}")
    return made


@contextlib.contextmanager
def indexed(run: RunDir, count: int) -> Iterator[Dashboard]:
    """The run's dashboard, as soon as it has read so many episodes."""
    with Dashboard(run.path) as dashboard:
        until(lambda: len(dashboard.index.rows) == count, "the index")
        yield dashboard


@pytest.fixture
def watched(run: RunDir) -> Iterator[Dashboard]:
    with indexed(run, 6) as dashboard:
        yield dashboard


@pytest.fixture
def serve(watched: Dashboard) -> Iterator[Callable[..., Browser]]:
    with contextlib.ExitStack() as stack:

        def serve(token: str | None = None) -> Browser:
            server = DashboardServer(watched, "0", token)
            stack.callback(server.close)
            return Browser(server)

        yield serve


@pytest.fixture
def browser(serve: Callable[..., Browser]) -> Browser:
    return serve()


def test_the_snapshot_says_where_a_stopped_run_stands(browser: Browser) -> None:
    found = browser.json("/api/snapshot")
    line = found["line"]
    assert (found["run"]["name"], found["learner"]["state"], found["slots"]) == ("r", "none", [])
    assert (line["version"], line["done"], line["updates"]) == (9, 150, 9)
    assert (line["success"]["rate"], line["success"]["n"]) == (0.6, 100)
    assert line["success"]["low"] < 0.6 < line["success"]["high"]
    assert (line["validation"]["rate"], line["validation"]["n"]) == (0.7, 10)
    assert [alarm["text"].split()[0] for alarm in line["alarms"]] == ["Quarantined"]
    assert found["devices"]["faults"] == {"device": 2}


def test_learning_curves_have_intervals(browser: Browser) -> None:
    found = browser.json("/api/metrics")
    for x, newest in (("episodes", 150.0), ("minutes", 2.0)):
        train, validation = found["success"][x]
        assert train["points"][-1] == [newest, 0.6]
        at, rate, low, high = validation["points"][0]
        assert (at, rate) == (newest, 0.7)
        assert low < rate < high
    signals = {one["title"]: one for one in found["signals"]}
    assert signals["Entropy"]["lines"][0]["points"][-1] == pytest.approx([9.0, 0.8])


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("", [6, 5, 4, 3, 2, 1]),
        ("outcome=success", [4, 1]),
        ("fault=any", [6, 3]),
        ("fault=device", [6, 3]),
        ("fault=none", [5, 4, 2, 1]),
        ("task=alarm", [6, 4, 2]),
        ("task=fake/toggle/test/0002", [3]),
        ("mode=step-limit", [5, 2]),
        ("group=g0", [2, 1]),
        ("after=1002&until=1004", [4, 3]),
        ("min_staleness=7", []),
        ("before=4&limit=2", [3, 2]),
    ],
)
def test_episodes_are_filtered_newest_first(browser: Browser, query: str, numbers: list[int]) -> None:
    found = browser.json(f"/api/episodes?{query}")
    modes = {row["mode"] for row in found["rows"]}
    if query.startswith("mode="):  # whichever mode the failures have
        numbers = numbers if modes else []
    assert [row["seq"] for row in found["rows"]] == numbers
    assert found["more"] == (query == "before=4&limit=2")
    assert found["templates"] == ["alarm", "toggle"]


def test_the_heatmap_counts_every_episode_once(browser: Browser) -> None:
    found = browser.json("/api/heatmap?bins=3")
    assert len(found["times"]) == 4
    sums = {row["task"]: [sum(part) for part in zip(*row["cells"], strict=True)] for row in found["rows"]}
    assert sums == {"toggle": [3, 1, 1, 2], "alarm": [3, 1, 1, 2]}
    for row in found["rows"]:
        for start, end, cell in zip(found["times"][:-1], found["times"][1:], row["cells"], strict=True):
            query = f"/api/episodes?task={row['task']}&purpose=own&after={start}&until={end}"
            assert len(browser.json(query)["rows"]) == cell[0]


def test_an_episode_plays_step_by_step(browser: Browser) -> None:
    row = browser.json("/api/episodes?limit=1&before=2")["rows"][0]
    found = browser.json(f"/api/episode/{row['id'][:12]}")
    assert found["row"] == row
    assert row["quarantined"].startswith("Bad")
    assert [one["seq"] for one in found["group"]] == [2]
    first = found["steps"][0]
    assert (first["mark"]["kind"], first["versions"]) == ("tap", "v3")
    assert [token["logprob"] for token in first["calls"][0]["tokens"]] == [-0.1, -0.25]
    image = browser.ask(first["shot"]["image"])
    assert (image.status, image.headers["Content-Type"]) == (200, "image/jpeg")
    assert image.data.startswith(b"\xff\xd8")


def test_texts_of_episodes_leave_as_json_only(browser: Browser) -> None:
    """What an episode says can be read back, but no answer could be taken for a page."""
    ids = [row["id"] for row in browser.json("/api/episodes")["rows"]]
    paths = ["/api/episodes", "/api/heatmap", "/api/snapshot", *(f"/api/episode/{one}" for one in ids)]
    answers = [browser.ask(path) for path in paths]
    goals = [row["goal"] for row in json.loads(answers[0].data)["rows"]]
    assert all(EVIL in goal for goal in goals)
    for answer in [*answers, browser.ask("/"), browser.ask(f"/api/episode/{EVIL.encode().hex()}")]:
        kind = answer.headers["Content-Type"]
        assert kind.startswith("application/json") or EVIL.encode() not in answer.data
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/episode/ffffffffffffffff", 404),
        ("/api/episode/", 404),
        ("/api/image/00000000000000000000000000000000", 404),
        ("/api/screen/w/0.jpg", 404),
        ("/api/nothing", 404),
        ("/static/../server.py", 404),
        ("/static/%2e%2e/server.py", 404),
        ("/etc/passwd", 404),
        ("/api/episodes?limit=999", 400),
        ("/api/episodes?before=x", 400),
        ("/api/episodes?colour=red", 400),
        ("/api/heatmap?bins=nan", 400),
        (f"/api/events?follow={'x' * 999}", 400),
    ],
)
def test_what_is_not_there_is_refused_in_a_line(browser: Browser, path: str, status: int) -> None:
    answer = browser.ask(path)
    assert answer.status == status
    assert "\n" not in json.loads(answer.data)["error"]


def test_a_name_that_was_made_to_point_here_is_refused(browser: Browser) -> None:
    assert browser.ask("/api/snapshot", Host="evil.example").status == 403
    assert browser.ask("/api/snapshot", Host="localhost:1").status == 200


def test_a_token_is_asked_for_and_remembered(serve: Callable[..., Browser]) -> None:
    browser = serve(TOKEN)
    assert browser.ask("/").status == 200  # the page asks for the token
    assert browser.ask("/api/snapshot").status == 401
    assert browser.ask("/api/snapshot", Authorization=f"Bearer {TOKEN}").status == 200
    assert browser.ask("/login?token=wrong").status == 401
    answer = browser.ask(f"/login?token={TOKEN}")
    cookie = answer.headers["Set-Cookie"]
    assert (answer.status, answer.headers["Location"]) == (303, "/")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert browser.ask("/api/snapshot", Cookie=cookie.partition(";")[0]).status == 200


def test_actions_need_a_token_the_own_page_and_a_learner(serve: Callable[..., Browser]) -> None:
    json_body = {"Content_Type": "application/json"}
    assert serve().ask("/api/pause", "POST", "{}", **json_body).status == 403
    browser, sent = serve(TOKEN), {"Authorization": f"Bearer {TOKEN}"}
    assert browser.ask("/api/pause", "POST", "{}", **json_body).status == 401
    foreign = browser.ask("/api/pause", "POST", "{}", **sent, **json_body, Origin="http://evil.example")
    assert foreign.status == 403
    assert browser.ask("/api/stop", "POST", "{}", **sent, **json_body).status == 404
    assert browser.ask("/api/pause", "POST", "{}", **sent, **json_body).status == 503  # no learner
    assert browser.ask("/api/play", "POST", '{"slot": "w/0"}', **sent, **json_body).status == 503
    for body in ("{}", "", '{"slot": "w/0", "action": {"kind": "tap", "point": [2, 0]}}'):
        assert browser.ask("/api/play", "POST", body, **sent, **json_body).status == 400


@pytest.mark.parametrize("address", ["0.0.0.0:0", "192.0.2.1:80", "example.net:80"])
def test_other_machines_need_token_and_tls(address: str, tmp_path: Path) -> None:
    for token, certificate in ((None, None), (TOKEN, None), (None, tmp_path)):
        with pytest.raises(ConfigError, match="other machines"):
            check_address(address, token, certificate)
    assert check_address(address, TOKEN, tmp_path)[0] == address.partition(":")[0]


def test_events_are_snapshots_that_count_what_is_new(browser: Browser, run: RunDir) -> None:
    connection = http.client.HTTPConnection(browser.address, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/api/events?wall=1")
        answer = connection.getresponse()
        assert answer.headers["Content-Type"] == "text/event-stream"

        def read() -> Any:
            line = answer.readline()
            assert answer.readline() == b"\n"
            return json.loads(line.removeprefix(b"data: "))

        first = read()
        assert (first["rows"], first["indexed"]) == (len(ROWS), 6)
        with contextlib.closing(TrajectoryStore(run.store)) as store:
            add(store, 6)
        with run.metrics.open("a") as file:
            file.write(json.dumps(ROWS[2]) + "\n")
        until(
            lambda: (found := read()) and (found["rows"], found["indexed"]) == (len(ROWS) + 1, 7), "the news"
        )


def test_a_post_mortem_is_listed_and_downloaded(browser: Browser, run: RunDir) -> None:
    (run.path / "postmortems").mkdir()
    error = DeviceError("adb: offline")
    bundle = Bundle(run.path / "postmortems", EVIL, error, {"logcat.txt": b"<html>"})
    (bundle.folder / "away.txt").symlink_to(run.config)
    until(lambda: browser.json("/api/snapshot")["devices"]["postmortems"], "the listing")
    (found,) = browser.json("/api/snapshot")["devices"]["postmortems"]
    assert (found["device"], found["error"], found["result"]) == (EVIL, error.message, "under way")
    assert found["files"] == ["away.txt", "fault.json", "logcat.txt"]
    answer = browser.ask(f"/api/postmortem/{found['name']}/logcat.txt")
    assert (answer.status, answer.data) == (200, b"<html>")
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == "attachment"
    for path in (f"{found['name']}/away.txt", "../config.yaml", "%2e%2e/config.yaml", "..%2fconfig.yaml/x"):
        assert browser.ask(f"/api/postmortem/{path}").status == 404
    for path in (
        f"{found['name']}/%2e%2e%2f%2e%2e%2fconfig.yaml",
        f"{found['name']}/x%00",
        f"{found['name']}/.",
    ):
        assert browser.ask(f"/api/postmortem/{path}").status == 404


def test_a_store_is_read_without_changing_anything(run: RunDir) -> None:
    before = {file.name: file.read_bytes() for file in run.path.iterdir() if file.is_file()}
    with indexed(run, 6) as dashboard:
        assert dashboard.index.store is not None
        with pytest.raises(StoreError, match="readonly"):
            dashboard.index.store.quarantine("x", "y")
    after = {file.name: file.read_bytes() for file in run.path.iterdir() if file.is_file()}
    assert {name: after[name] for name in before} == before


def test_damaged_episodes_are_passed_over(run: RunDir) -> None:
    with contextlib.closing(sqlite3.connect(run.store)) as connection:
        connection.execute("UPDATE trajectories SET body = x'c1' WHERE seq = 3")
        connection.commit()
    with indexed(run, 5) as dashboard:
        assert [row["seq"] for row in dashboard.index.rows] == [6, 5, 4, 2, 1]


def test_staleness_counts_versions_that_became_known_later(watched: Dashboard, run: RunDir) -> None:
    """Episodes may be read before the metrics of the versions that were published by their end."""
    with contextlib.closing(TrajectoryStore(run.store)) as store:
        add(store, 200)
    until(lambda: len(watched.index.rows) == 7, "the new episode")
    assert watched.index.select(Selection())["rows"][0]["staleness"] == 6
    with run.metrics.open("a") as file:
        file.write('{"step": 12, "time": 1190.0, "versions": 20.0}\n')
    until(lambda: watched.snapshot()["rows"] == len(ROWS) + 1, "the row")
    assert [row["staleness"] for row in watched.index.select(Selection(min_staleness=17))["rows"]] == [17]


def test_imagined_and_demonstrated_episodes_are_listed_but_not_in_the_heatmap(run: RunDir) -> None:
    with contextlib.closing(TrajectoryStore(run.store)) as store:
        trajectory, images = make_episode(make_task(7), success=True)
        store.add(trajectory.model_copy(update={"purpose": Purpose.IMAGINED}), images)
        faulted = {"id": "faulted", "purpose": Purpose.IMAGINED, "fault": Fault.ENV}
        store.add(trajectory.model_copy(update=faulted), images)
        store.add(trajectory.model_copy(update={"id": "shown", "purpose": Purpose.DEMO}), images)
    with indexed(run, 9) as dashboard:
        rows = dashboard.index.select(Selection(purpose="imagined"))["rows"]
        assert [row["id"] for row in rows] == ["faulted", trajectory.id]
        assert "env" not in dashboard.snapshot()["devices"]["faults"]
        # A cell opens what it counts.
        own = dashboard.index.select(Selection(purpose="own"))["rows"]
        assert len(own) == 6
        assert {trajectory.id, "shown"}.isdisjoint(row["id"] for row in own)
        assert sum(row["episodes"] for row in dashboard.index.heatmap(3)["rows"]) == 6


def test_an_unjudged_episode_is_no_failure_in_the_heatmap(run: RunDir) -> None:
    trajectory, images = make_episode(make_task(7, "unjudged"))
    with contextlib.closing(TrajectoryStore(run.store)) as store:
        store.add(trajectory.model_copy(update={"outcome": Outcome.UNJUDGED, "success": 0.0}), images)
    with indexed(run, 7) as dashboard:
        cells = {row["task"]: row["cells"] for row in dashboard.index.heatmap(1)["rows"]}
    assert cells["unjudged"] == [[1, 0, 0, 0]]


def test_metrics_are_followed_as_they_grow(watched: Dashboard, run: RunDir) -> None:
    with run.metrics.open("a") as file:
        file.write('{"step": 10, "time": 1130.0, "train/success": 0.75, "bad": NaN}\n{"step": 11, "tr')
    assert watched.files is not None
    watched.files.refresh()
    assert watched.files.newest["train/success"] == 0.75
    assert "bad" not in watched.files.newest
    with run.metrics.open("a") as file:
        file.write('ain/success": 0.8}\n')
    watched.files.refresh()
    assert watched.files.newest["train/success"] == 0.8
    run.metrics.write_text(json.dumps(ROWS[0]) + "\n")
    watched.files.refresh()
    assert len(watched.files.rows) == 1


def test_the_bottleneck_is_named() -> None:
    waits = {"time/wait_for_episodes": 0.6, "inference/batch_p50_ms": 40.0}
    assert find_bottleneck({}, None)[0] == ""
    assert "workers compute" in find_bottleneck({"gradients/accepted": 3.0}, None)[1]
    assert find_bottleneck({"time/wait_for_episodes": 0.02}, None)[0] == "learner"
    assert find_bottleneck({**waits, "inference/queue_wait_p50_ms": 90.0}, None)[0] == "servers"
    calm = {**waits, "inference/queue_wait_p50_ms": 1.0}
    assert find_bottleneck(calm, None)[0] == "workers"
    assert find_bottleneck({**calm, "workers/idle_share": 0.9}, None)[0] == "learner"
    assert (
        find_bottleneck({**calm, "time/wait_for_episodes": 0.95, "workers/idle_share": 0.9}, None)[0]
        == "workers"
    )
    broken = {"workers/devices_busy": 1.0, "workers/devices_quarantined": 5.0}
    assert find_bottleneck({**waits, **broken}, None)[0] == "devices"


def test_top_prints_the_same_snapshot(run: RunDir) -> None:
    result = CliRunner().invoke(app, ["top", str(run.path), "--once", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["line"]["done"] == 150
    shown = CliRunner().invoke(app, ["top", str(run.path), "--once"])
    assert "150/" in shown.stdout
    assert "Quarantined" in shown.stdout
    assert CliRunner().invoke(app, ["top", str(run.path), "--json"]).exit_code == ConfigError.exit_code
    assert CliRunner().invoke(app, ["top"]).exit_code == ConfigError.exit_code


def test_judges_words_are_shown(run: RunDir) -> None:
    verdict = Verdict(success=True, score=0.75, reason=f"Yes {EVIL}", judge="vlm", answers=("yes", "no"))
    trajectory, images = make_episode(make_task(9))
    judged = trajectory.model_copy(update={"verdict": verdict, "success": 0.75, "outcome": Outcome.SUCCESS})
    with contextlib.closing(TrajectoryStore(run.store)) as store:
        store.add(judged, images)
    with indexed(run, 7) as dashboard:
        found = dashboard.episode(judged.id)
    assert (found["reason"], found["row"]["ended"]) == (verdict.reason, "solved")
    assert ["answers", "no"] in found["judged"]


def test_continuous_control_shows_returns(tmp_path: Path) -> None:
    made = RunDir.create(load_config("appo-lunarlander", [f"runs_dir={tmp_path}", "name=a"]))
    rows = [
        {"step": step, "time": time.time(), "env_steps": 1000.0 * step, "eval/return": 7.0 * step}
        for step in (1, 2)
    ]
    made.metrics.write_text("".join(json.dumps({**row, "inference/alive": 0.0}) + "\n" for row in rows))
    with made.announced("tcp://127.0.0.1:9"), Dashboard(made.path) as dashboard:
        line = dashboard.snapshot()["line"]
        assert (line["phase"], line["done"], line["unit"], line["alarms"]) == ("warm-up", 2000, "steps", [])
        (signal,) = dashboard.metrics()["signals"]
        assert signal["lines"][0]["points"][-1] == (2, 14.0)


def test_time_is_not_lost_before_the_first_row(tmp_path: Path) -> None:
    """A run that has just begun has no metrics and no store."""
    made = RunDir.create(Config.model_validate({"name": "new", "runs_dir": str(tmp_path)}))
    with Dashboard(made.path) as dashboard:
        found = dashboard.snapshot()
        assert found["line"]["phase"] == "starting"
        assert dashboard.metrics() == {"success": {"episodes": [], "minutes": []}, "signals": []}
        assert time.time() - found["time"] < 60
