"""A sweep's metric that does not exist: told before the first run, or when the first is finished."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from finished_runs import make_run

from distrl.configs.presets import preset_names
from distrl.configs.sweep import SWEEPS_DIR, Sweep, load_sweep
from distrl.core.errors import ConfigError
from distrl.evaluator.sweeps import write_sweep_report
from distrl.evaluator.sweeps.metric import check_metric, not_measured
from distrl.evaluator.sweeps.runs import read_run

PHONE = "base: quickstart\nset: {tasks.test: [test, unseen_layout]}\n"
CONTROL = "base: appo-hopper\n"


def load(tmp_path: Path, text: str) -> Sweep:
    (tmp_path / "try.yaml").write_text(f"{text}\n")
    return load_sweep(tmp_path / "try.yaml", runs_dir=str(tmp_path / "runs"))


@pytest.mark.parametrize(
    "text",
    [
        PHONE,
        PHONE + "metric: unseen_layout/invalid",
        PHONE + "metric: test+unseen_layout/success",
        PHONE + "metric: train/success",
        PHONE + "metric: eval/val/reward/total",
        PHONE + "metric: staleness/4-7/success\ncurve: loss/policy",
        PHONE + "metric: episodes",
        PHONE + "metric: val/success\narms: {a: {}, b: {tasks.test: [val]}}",
        CONTROL,
        CONTROL + "metric: solved/return\ncurve: train/return",
    ],
)
def test_what_runs_can_have_is_accepted(tmp_path: Path, text: str) -> None:
    check_metric(load(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PHONE + "metric: test/sucess", "Did you mean test/success?"),
        (
            PHONE + "metric: tset/success",
            "asks for the split 'tset', which is not in tasks.test. Did you mean te",
        ),
        (
            PHONE + "metric: test+val/success",
            "the split 'val', which is not in tasks.test. There are: test, un",
        ),
        (PHONE + "metric: los/policy", "Did you mean loss/policy?"),
        (PHONE + "metric: success", "Did you mean test/success?"),
        (PHONE + "metric: quality", "There are: test/success, test/score, "),
        (PHONE + "metric: return", "The sweep's metric return is nothing that its runs measure."),
        (PHONE + "metric: eval/vall/success", "Did you mean eval/val/success?"),
        (
            PHONE + "curve: val/success",
            "The sweep's curve val/success is nothing that its runs measure. Did you m",
        ),
        (CONTROL + "metric: test/success", "There are: return."),
        (CONTROL + "metric: retrun", "Did you mean return?"),
    ],
)
def test_what_no_run_can_have_is_refused_with_the_nearest(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_metric(load(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", preset_names(SWEEPS_DIR))
def test_the_sweeps_that_ship_have_metrics(name: str) -> None:
    check_metric(load_sweep(name))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"metric": "loss/policy", "curve": "loss/policy"}, None),
        ({"curve": "eval/none/success"}, None),
        (
            {"metric": "loss/polcy"},
            "has no loss/polcy, which is the sweep's metric. Did you mean loss/policy?",
        ),
        ({"metric": "test/steps+"}, "the sweep's metric. Did you mean test/steps?"),
        ({"curve": "loss/polcy"}, "has no loss/polcy, which is the sweep's curve. Did you mean loss/policy?"),
    ],
)
def test_a_finished_run_shows_what_it_lacks(
    tmp_path: Path, changes: dict[str, str], told: str | None
) -> None:
    sweep = dataclasses.replace(load(tmp_path, PHONE + "seeds: [0, 1]"), **changes)
    make_run(sweep.runs[0], 2, 9, [0.2, 0.4])
    make_run(sweep.runs[1], 2, None, [0.2])
    lacking = not_measured(sweep, read_run(sweep.runs[0], sweep))
    assert not_measured(sweep, read_run(sweep.runs[1], sweep)) is None, "it is not finished"
    text, _, _ = write_sweep_report(sweep)
    if told is None:
        assert lacking is None
    else:
        assert lacking is not None
        assert told in lacking
        assert text.rstrip().endswith(lacking)
