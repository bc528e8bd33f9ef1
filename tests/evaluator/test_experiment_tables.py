"""Tables: agents by suites over seeds, measured once, and the written results."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from counting_phone import CountingEnv, write_suite
from judge_endpoint import JudgeEndpoint, says

from distrl.core.errors import ConfigError, RunDirectoryError
from distrl.evaluator.experiment_results import as_markdown
from distrl.evaluator.experiment_tables import (
    find_gains,
    read_cells,
    table_blocks,
    write_section,
    write_table,
)
from distrl.evaluator.experiments import Cell, load_table, plan_cells
from distrl.evaluator.runner import EvaluationStopped
from distrl.evaluator.statistics import t_quantile


@pytest.fixture(autouse=True)
def no_resets() -> None:
    CountingEnv.resets.clear()


def suite(folder: Path, name: str, taps: list[int]) -> str:
    """A suite whose train split has the same tasks as its test split."""
    (folder / name).mkdir()
    tasks = [{"taps": count, "split": split} for split in ("train", "test") for count in taps]
    return str(write_suite(folder / name, tasks))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A table of two suites: the expert solves all tasks of the one, and half of the other's."""
    easy, hard = suite(tmp_path, "easy", [1, 2]), suite(tmp_path, "hard", [1, 99])
    base = {"env": {"import_path": "counting_phone:CountingEnv"}, "evaluate": {"slots": 2}}
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    content = {
        "base": "base.yaml",
        "suites": {"easy": {"set": {"tasks.suite": easy}}, "hard": {"set": {"tasks.suite": hard}}},
        "generalisation": {
            "trained_on": "easy",
            "suites": {"hard": {"set": {"tasks.suite": hard}, "splits": ["test"], "title": "Elsewhere"}},
        },
        "agents": {
            "expert": {"agent": "expert"},
            "random": {"agent": "random"},
            "trained": {"checkpoint": {"easy": str(tmp_path / "run-{seed}")}},
        },
        "seeds": [0, 3],
    }
    table = tmp_path / "mine.yaml"
    table.write_text(yaml.safe_dump(content))
    return table


def measure_all(cells: list[Cell]) -> list[str]:
    said: list[str] = []
    for cell in cells:
        cell.measure(threading.Event(), said.append)
    return said


def test_a_table_is_measured_once_and_written(file: Path, tmp_path: Path) -> None:
    spec = load_table(file)
    cells = plan_cells(spec, tmp_path / "out")
    assert len(measure_all(cells)) == 6  # two agents on easy, hard, and easy-to-hard
    assert measure_all(cells) == []
    results = read_cells(cells)
    text = as_markdown(table_blocks(spec, results, [], "distrl table mine.yaml"))
    assert "distrl table mine.yaml" in text
    assert "| Agent | easy train | easy test | hard train | hard test |" in text
    best = "**100.0 ± 0.0** | **100.0 ± 0.0** | **50.0 ± 0.0** | **50.0 ± 0.0**"
    assert f"| expert | {best} |" in text
    assert "| trained | – | – | – | – |" in text
    assert "### Generalisation: trained on easy\n\n| Agent | Elsewhere |" in text
    assert "### Failure modes on hard test" in text
    write_table(spec, cells, tmp_path / "out", "command")
    data = json.loads((tmp_path / "out" / "results.json").read_text())
    found = {(c["agent"], c["suite"], c["trained_on"], c["split"]): c for c in data["cells"]}
    hard = found["expert", "hard", "hard", "test"]
    assert (hard["mean"], hard["sd"], hard["rates"], hard["episodes"]) == (0.5, 0.0, [0.5, 0.5], 4)
    assert ("expert", "hard", "easy", "test") in found


def test_a_row_is_compared_with_another_on_the_same_tasks(file: Path, tmp_path: Path) -> None:
    content = yaml.safe_load(file.read_text())
    content["agents"]["expert"]["over"] = "random"
    content["agents"]["trained"]["over"] = "expert"
    file.write_text(yaml.safe_dump(content))
    spec = load_table(file)
    cells = plan_cells(spec, tmp_path / "out")
    measure_all(cells)
    results = read_cells(cells)
    text = as_markdown(table_blocks(spec, results, [], "command")).partition("### Gains")[2]
    assert "| Agent | easy train | easy test | hard train | hard test | Elsewhere (from easy) |" in text
    assert "| expert over random | +100.0 (" in text
    assert "trained over" not in text  # it has no cells
    write_table(spec, cells, tmp_path / "out", "command")
    cells_data = json.loads((tmp_path / "out" / "results.json").read_text())["cells"]
    data = {(c["agent"], c["suite"], c["trained_on"], c["split"]): c for c in cells_data}
    hard = data["expert", "hard", "hard", "test"]
    gain = hard["gain"]
    assert (gain["over"], gain["gain"], gain["gained"], gain["neither"]) == ("random", 0.5, 2, 2)
    assert gain["interval"]["low"] < 0.5 < gain["interval"]["high"]
    assert gain["seeds"] == {"0": 0.5, "3": 0.5}
    assert gain["interval_over_seeds"] is None  # both seeds are alike
    assert "gain" not in data["random", "hard", "hard", "test"]


def test_a_gain_has_an_interval_over_tasks_and_one_over_seeds(file: Path, tmp_path: Path) -> None:
    content = yaml.safe_load(file.read_text())
    content["agents"]["expert"]["over"] = "random"
    file.write_text(yaml.safe_dump(content))
    spec = load_table(file, agents=["expert", "random"], suites=["easy"])
    cells = plan_cells(spec, tmp_path / "out")
    measure_all(cells)
    results = read_cells(cells)
    key = ("expert", "easy", "easy", "test")
    lost = next(e.model_copy(update={"success": False}) for e in results[key].episodes if e.seed == 3)
    rest = [e for e in results[key].episodes if (e.seed, e.task_id) != (3, lost.task_id)]
    results[key] = replace(results[key], rates=(1.0, 0.98), episodes=(*rest, lost))
    gain = find_gains(spec, results)[key]
    assert gain.pairs.gain == 0.75
    assert gain.seeds == {0: 1.0, 3: 0.98}
    assert gain.over_seeds is not None
    assert gain.over_seeds.low == pytest.approx(0.99 - t_quantile(1) * 0.01)
    assert gain.over_seeds.high == 1.0  # there is no more
    assert gain.text.startswith("+75.0 (")
    assert gain.text.endswith("; +86.3 to +100.0)")


def test_a_part_of_the_columns_is_measured(file: Path, tmp_path: Path) -> None:
    assert list(load_table(file, suites=["easy"]).columns()) == list(load_table(file).columns())[:1]
    both = load_table(file, suites=["easy", "hard"])
    assert list(both.columns()) == list(load_table(file).columns())
    assert load_table(file, suites=["hard"]).generalisation is None  # nothing is trained on `easy` there
    with pytest.raises(ConfigError, match="no suite 'soft'"):
        load_table(file, suites=["easy", "soft"])
    with pytest.raises(ConfigError, match="no agent 'you'"):
        load_table(file, ["expert", "you"])


def test_a_seed_that_only_faulted_is_no_seed_without_success(file: Path, tmp_path: Path) -> None:
    easy = tmp_path / "easy" / "counting.jsonl"
    tasks = [json.loads(line) for line in easy.read_text().splitlines()]
    for task in tasks:  # the first seed's three tries of each
        task["params"]["faults"] = 3
    easy.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    spec = load_table(file, agents=["expert"])
    cells = plan_cells(spec, tmp_path / "out")
    measure_all(cells)
    results = read_cells(cells)
    found = results["expert", "easy", "easy", "test"]
    assert (found.seeds, found.rates, found.mean, found.sd) == ((3,), (1.0,), 1.0, None)
    text = as_markdown(table_blocks(spec, results, [], "command"))
    lacking = "(1 of 2 seeds; n = 2, 2 faulted)"
    assert f"| expert | 100.0 {lacking} | 100.0 {lacking} | 50.0 ± 0.0 | 50.0 ± 0.0 |" in text
    assert "4 episodes faulted in every attempt and are not counted." in text


def test_suites_with_levels_have_a_table_of_them(file: Path, tmp_path: Path) -> None:
    hard = tmp_path / "hard" / "counting.jsonl"
    tasks = [json.loads(line) for line in hard.read_text().splitlines()]
    for task in tasks:
        task["params"]["level"] = 1 if task["params"]["taps"] == 1 else 2
    hard.write_text("".join(json.dumps(task) + "\n" for task in tasks))
    spec = load_table(file, agents=["expert"])
    cells = plan_cells(spec, tmp_path / "out")
    measure_all(cells)
    results = read_cells(cells)
    text = as_markdown(table_blocks(spec, results, [], "command"))
    assert "### By level on hard test" in text
    assert "| Agent | level 1 | level 2 |\n| --- | ---: | ---: |\n| expert | 100.0 | 0.0 |" in text
    assert "By level on easy" not in text
    write_table(spec, cells, tmp_path / "out", "command")
    cells_data = json.loads((tmp_path / "out" / "results.json").read_text())["cells"]
    found = {(c["suite"], c["trained_on"], c["split"]): c["levels"] for c in cells_data}
    assert found["hard", "hard", "test"] == {"1": 1.0, "2": 0.0}
    assert found["easy", "easy", "test"] == {}


def test_the_same_cells_are_gone_on_with_and_others_are_refused(file: Path, tmp_path: Path) -> None:
    cells = plan_cells(load_table(file, seeds=[0]), tmp_path / "out")
    measure_all(cells)
    more = plan_cells(load_table(file), tmp_path / "out")
    assert more[0].open_seeds() == [3]
    fewer = plan_cells(load_table(file, episodes=1), tmp_path / "out")
    with pytest.raises(RunDirectoryError, match="episodes is 128, not 1"):
        fewer[0].open_seeds()


@pytest.mark.needs("torch")
def test_prompted_and_untrained_models_are_rows_and_measured_once(file: Path, tmp_path: Path) -> None:
    done = says('Action: {"action_type": "status", "goal_status": "complete"}')
    small = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "image_size": [24, 40]}
    content = yaml.safe_load(file.read_text())
    del content["suites"]["hard"], content["generalisation"]
    with JudgeEndpoint([done]) as endpoint:
        prompted = {"model": "m", "url": endpoint.url}
        content["agents"] = {
            "prompted": {"agent": "prompted", "kind": "Prompting", "set": {"evaluate.prompted": prompted}},
            "untrained": {"agent": "model", "set": {"policy": {"kind": "tiny", "device": "cpu", **small}}},
        }
        file.write_text(yaml.safe_dump(content))
        spec = load_table(file)
        assert len(measure_all(plan_cells(spec, tmp_path / "out"))) == 2
        again = plan_cells(spec, tmp_path / "out")
        assert measure_all(again) == []
    text = as_markdown(table_blocks(spec, read_cells(again), [], "command"))
    assert "| Prompting | prompted | 0.0 ± 0.0 | 0.0 ± 0.0 |" in text
    assert "untrained | " in text


def test_checkpoints_are_those_of_the_family_and_the_seed(file: Path, tmp_path: Path) -> None:
    cells = {(cell.suite, cell.directory.name): cell for cell in plan_cells(load_table(file), tmp_path)}
    missing = cells["easy", "easy"].missing
    assert f"{tmp_path / 'run-3'}" in missing[3]
    assert "no checkpoint is named for hard" in cells["hard", "hard"].missing[0]
    assert f"{tmp_path / 'run-0'}" in cells["hard", "easy-to-hard"].missing[0]


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


def test_a_section_goes_into_text_only(tmp_path: Path) -> None:
    picture = tmp_path / "results.png"
    picture.write_bytes(b"\x89PNG\xff")
    for file in (picture, tmp_path):
        with pytest.raises(ConfigError, match=r"cannot be read as text: .* Name a Markdown file\."):
            write_section(file, "a", "one\n")
    assert picture.read_bytes() == b"\x89PNG\xff"


@pytest.mark.parametrize("name", ["quickstart", "table1"])
def test_shipped_tables_are_sound(name: str, tmp_path: Path) -> None:
    spec = load_table(name)
    cells = plan_cells(spec, tmp_path)
    assert len(cells) == len(spec.agents) * len(list(spec.columns()))
    assert {cell.config.evaluate.episodes for cell in cells} == {128}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"agents": {"x": {}}}, "exactly one of agent, checkpoint and inference"),
        ({"agents": {"a/b": {"agent": "expert"}}}, "is not a valid name"),
        ({"seeds": [1, 1]}, "a seed appears twice"),
        ({"generalisation": {"trained_on": "moon", "suites": {"hard": {}}}}, "'moon' is not a suite"),
        (
            {"agents": {"expert": {"agent": "expert", "over": "expert"}}},
            "expert cannot be compared with 'expert'",
        ),
        ({"base": "nowhere"}, "nowhere"),
    ],
)
def test_mistakes_are_named(file: Path, change: dict[str, object], expected: str) -> None:
    content = yaml.safe_load(file.read_text()) | change
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=expected):
        load_table(file)


def test_who_interrupts_a_table_is_told_the_way_on(file: Path, tmp_path: Path) -> None:
    cells = plan_cells(load_table(str(file)), tmp_path / "out")
    stop = threading.Event()
    stop.set()
    with pytest.raises(EvaluationStopped) as caught:
        cells[0].measure(stop, lambda line: None)
    assert "Run the same command again to continue." in str(caught.value)
    assert "--resume" not in str(caught.value)
