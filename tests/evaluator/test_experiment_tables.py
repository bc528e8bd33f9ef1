"""Tables: agents by suites over seeds, measured once, and the written results."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from counting_phone import CountingEnv, write_suite
from judge_endpoint import JudgeEndpoint, says

from distrl.core.errors import ConfigError, RunDirectoryError
from distrl.core.types import Fault
from distrl.evaluator.experiment_results import as_markdown
from distrl.evaluator.experiment_tables import (
    find_gains,
    read_cells,
    table_blocks,
    write_section,
    write_table,
)
from distrl.evaluator.experiments import Cell, Experiment, load_table, plan_cells
from distrl.evaluator.runner import EvaluationStopped
from distrl.evaluator.statistics import EpisodeResult, Interval


@pytest.fixture(autouse=True)
def no_resets() -> None:
    CountingEnv.resets.clear()


def write_file(folder: Path) -> Path:
    """A table of two suites: the expert solves all of the one, and half of the other, which has levels."""
    suites = {}
    for name, taps in (("easy", [1, 2]), ("hard", [1, 99])):
        (folder / name).mkdir()
        tasks = [{"taps": count, "split": split} for split in ("train", "test") for count in taps]
        suites[name] = str(write_suite(folder / name, tasks))
    hard = Path(suites["hard"])
    edit_tasks(hard, lambda params: params | {"level": 1 if params["taps"] == 1 else 2})
    base = {"env": {"import_path": "counting_phone:CountingEnv"}, "evaluate": {"slots": 2}}
    (folder / "base.yaml").write_text(yaml.safe_dump(base))
    content = {
        "base": "base.yaml",
        "suites": {name: {"set": {"tasks.suite": suite}} for name, suite in suites.items()}
        | {
            "elsewhere": {
                "set": {"tasks.suite": str(hard)},
                "splits": ["test"],
                "title": "Elsewhere",
                "trained_on": "easy",
            }
        },
        "agents": {
            "expert": {"agent": "expert", "over": "random"},
            "random": {"agent": "random"},
            "trained": {"checkpoint": {"easy": str(folder / "run-{seed}")}, "over": "expert"},
        },
        "seeds": [0, 3],
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(content))
    return folder / "mine.yaml"


def edit_tasks(suite: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    tasks = [json.loads(line) for line in suite.read_text().splitlines()]
    suite.write_text("".join(json.dumps(task | {"params": edit(task["params"])}) + "\n" for task in tasks))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_file(tmp_path)


def measure_all(cells: list[Cell]) -> list[str]:
    said: list[str] = []
    for cell in cells:
        cell.measure(threading.Event(), said.append)
    return said


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, list[Cell]]:
    """The table with all its cells measured, and measured again."""
    folder = tmp_path_factory.mktemp("table")
    spec = load_table(write_file(folder))
    cells = plan_cells(spec, folder / "out")
    assert len(measure_all(cells)) == 6  # two agents on easy, hard, and easy-to-hard
    assert measure_all(cells) == []
    return spec, cells


def test_a_table_shows_success_gains_levels_and_failures(
    measured: tuple[Experiment, list[Cell]], tmp_path: Path
) -> None:
    spec, cells = measured
    text = as_markdown(write_table(spec, cells, tmp_path, "distrl table mine.yaml"))
    assert text == (tmp_path / "table.md").read_text()
    assert "distrl table mine.yaml" in text
    assert "| Agent | easy train | easy test | hard train | hard test |" in text
    best = "**100.0 ± 0.0** | **100.0 ± 0.0** | **50.0 ± 0.0** | **50.0 ± 0.0**"
    assert f"| expert | {best} |" in text
    assert "| trained | – | – | – | – |" in text
    assert "### Generalisation: trained on easy\n\n| Agent | Elsewhere |" in text
    assert "### Failure modes on hard test" in text
    assert "| Agent | level 1 | level 2 |\n| --- | ---: | ---: |\n| expert | 100.0 | 0.0 |" in text
    assert "By level on easy" not in text
    gains = text.partition("### Gains")[2]
    assert "| Agent | easy train | easy test | hard train | hard test | Elsewhere (from easy) |" in gains
    assert "| expert over random | +100.0 (" in gains
    assert "trained over" not in gains  # it has no cells
    assert "no checkpoint is named for hard (hard, seed 0; hard, seed 3)" in text
    assert "run-3" in text
    data = json.loads((tmp_path / "results.json").read_text())["cells"]
    (found,) = [c for c in data if (c["agent"], c["suite"], c["split"]) == ("expert", "hard", "test")]
    assert (found["mean"], found["sd"], found["rates"], found["episodes"]) == (0.5, 0.0, [0.5, 0.5], 4)
    assert (found["levels"], found["gain"]["over"]) == ({"1": 1.0, "2": 0.0}, "random")
    assert (found["gain"]["gained"], found["gain"]["seeds"]) == (2, {"0": 0.5, "3": 0.5})


def test_a_gain_has_an_interval_over_tasks_and_one_over_seeds(
    measured: tuple[Experiment, list[Cell]],
) -> None:
    spec, cells = measured
    results = read_cells(cells)
    key = ("expert", "easy", "test")
    lost = next(e.model_copy(update={"success": False}) for e in results[key].episodes if e.seed == 3)
    rest = [e for e in results[key].episodes if (e.seed, e.task_id) != (3, lost.task_id)]
    results[key] = replace(results[key], rates=(1.0, 0.5), episodes=(*rest, lost))
    gain = find_gains(spec, results)[key]
    assert (gain.pairs.gain, gain.seeds) == (0.75, {0: 1.0, 3: 0.5})
    assert gain.over_seeds == Interval(low=-1.0, high=1.0), "0.75 ± 12.7 · 0.25; there is no more"
    assert gain.text.startswith("+75.0 (")
    assert gain.text.endswith("; -100.0 to +100.0)")

    def faulted(one: EpisodeResult) -> EpisodeResult:
        is_it = (one.seed, one.task_id) == (3, lost.task_id)
        return one.model_copy(update={"fault": Fault.DEVICE}) if is_it else one

    before = results["random", "easy", "test"]
    results["random", "easy", "test"] = replace(before, episodes=tuple(map(faulted, before.episodes)))
    gain = find_gains(spec, results)[key]
    assert (gain.pairs.gain, gain.seeds) == (1.0, {0: 1.0, 3: 1.0}), "on the tasks that both have"
    zeros = {key: replace(one, mean=0.0) for key, one in results.items()}
    assert "**" not in as_markdown(table_blocks(spec, zeros, [], "command")), "nothing is the best"


def test_a_seed_that_only_faulted_is_no_seed_without_success(file: Path, tmp_path: Path) -> None:
    # The first seed's three tries of each task.
    edit_tasks(tmp_path / "easy" / "counting.jsonl", lambda params: params | {"faults": 3})
    spec = load_table(file, agents=["expert"], suites=["easy"])
    cells = plan_cells(spec, tmp_path / "out")
    measure_all(cells)
    results = read_cells(cells)
    found = results["expert", "easy", "test"]
    assert (found.seeds, found.rates, found.mean, found.sd) == ((3,), (1.0,), 1.0, None)
    text = as_markdown(table_blocks(spec, results, [], "command"))
    lacking = "(1 of 2 seeds; n = 2, 2 faulted)"
    assert f"| expert | 100.0 {lacking} | 100.0 {lacking} |" in text
    assert "4 episodes faulted in every attempt and are not counted." in text


def test_a_table_says_how_many_episodes_are_unjudged(measured: tuple[Experiment, list[Cell]]) -> None:
    spec, cells = measured
    results = read_cells(cells)
    key = ("random", "easy", "test")
    unjudged = results[key].result.model_copy(update={"num_unjudged": 3})
    results[key] = replace(results[key], result=unjudged)
    text = as_markdown(table_blocks(spec, results, [], "command"))
    assert "| 0.0 ± 0.0 (n = 4, 3 unjudged) |" in text
    assert results[key].data()["unjudged"] == 3


def test_the_same_cells_are_continued_and_others_are_refused(file: Path, tmp_path: Path) -> None:
    cells = plan_cells(load_table(file, ["expert"], ["easy"], seeds=[0]), tmp_path / "out")
    measure_all(cells)
    more = plan_cells(load_table(file), tmp_path / "out")
    assert more[0].open_seeds() == [3]
    fewer = plan_cells(load_table(file, episodes=1), tmp_path / "out")
    with pytest.raises(RunDirectoryError, match="episodes is 128, not 1"):
        fewer[0].open_seeds()
    with pytest.raises(RunDirectoryError, match="episodes is 128, not 1"):
        read_cells(fewer)  # as with --report-only
    stop = threading.Event()
    stop.set()
    with pytest.raises(EvaluationStopped) as caught:
        more[0].measure(stop, lambda line: None)
    assert "Run the same command again to continue." in str(caught.value)


def test_a_prompted_model_is_a_row(file: Path, tmp_path: Path) -> None:
    done = says('Action: {"action_type": "status", "goal_status": "complete"}')
    content = yaml.safe_load(file.read_text())
    with JudgeEndpoint([done]) as endpoint:
        prompted = {"evaluate.prompted": {"model": "m", "url": endpoint.url}}
        content["agents"] = {"prompted": {"agent": "prompted", "kind": "Prompting", "set": prompted}}
        file.write_text(yaml.safe_dump(content | {"seeds": [0]}))
        spec = load_table(file, suites=["easy"])
        assert len(measure_all(plan_cells(spec, tmp_path / "out"))) == 1
        again = plan_cells(spec, tmp_path / "out")
        assert measure_all(again) == []
    text = as_markdown(table_blocks(spec, read_cells(again), [], "command"))
    assert "| Prompting | prompted | 0.0 | 0.0 |" in text


def test_a_section_of_a_file_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    file = tmp_path / "docs" / "results.md"
    write_section(file, "a", "one\n")
    file.write_text("# Results\n\n" + file.read_text() + "\nThe end.\n")
    write_section(file, "a", "two \\1\n")
    write_section(file, "b", "three\n")
    text = file.read_text()
    assert text.startswith("# Results\n")
    assert "one" not in text
    assert text.index("two \\1") < text.index("The end.") < text.index("three")
    file.write_text(text.replace("<!-- end of table a -->", ""))
    with pytest.raises(ConfigError, match="lacks the line"):
        write_section(file, "a", "four\n")
    picture = tmp_path / "results.png"
    picture.write_bytes(b"\x89PNG\xff")
    with pytest.raises(ConfigError, match=r"cannot be read as text: .* Name a Markdown file\."):
        write_section(picture, "a", "one\n")
    assert picture.read_bytes() == b"\x89PNG\xff"


@pytest.mark.parametrize("name", ["quickstart", "table1"])
def test_shipped_tables_are_sound(name: str, tmp_path: Path) -> None:
    spec = load_table(name)
    assert len(plan_cells(spec, tmp_path)) == len(spec.agents) * len(spec.suites)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"agents": {"x": {}}}, "exactly one of agent, checkpoint and inference"),
        ({"agents": {"a/b": {"agent": "expert"}}}, "is not a valid name"),
        ({"suites": {"hard": {"trained_on": "moon"}}}, "trained_on 'moon', which is not a suite"),
        ({"agents": {"expert": {"agent": "expert", "over": "expert"}}}, "`over` names another row"),
    ],
)
def test_mistakes_are_named(file: Path, change: dict[str, object], expected: str) -> None:
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | change))
    with pytest.raises(ConfigError, match=expected):
        load_table(file)
