"""Tasks that the devices do not know, or cannot teach by, are told before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, TaskError
from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.evaluator.suites.playable import check_expert, check_playable, check_truth

ADB, SIM = {"kind": "adb", "serials": ["emulator-5554"]}, {"kind": "sim"}
AVD, PHONE = {"kind": "avd", "avd": "Pixel"}, {"kind": "phone", "serials": ["R5CT10ABCDE"]}
CHECK = {"shell": "settings get global wifi_on", "equals": "1"}
JUDGED = {"judge": {"kind": "vlm"}, "worker": {"rewards": {"source": "judge"}}}


def task(template: str = "fly", **params: Any) -> Task:
    return Task(id="mine/1", suite="mine", template=template, split="train", goal="Do it", params=params)


def on(*pool: dict[str, Any], episodes: int = 0, **fields: Any) -> Config:
    """A run on these devices that waits for so many demonstrations."""
    learner = {"demonstrations": {"episodes": episodes}, **fields.pop("learner", {})}
    return Config.model_validate({"devices": {"pool": list(pool)}, "learner": learner, **fields})


@pytest.mark.parametrize("fields", [{}, {"devices": {"pool": [SIM]}}, {"devices": {"pool": [ADB, SIM]}}])
@pytest.mark.parametrize(
    ("unknown", "message"),
    [
        (task("open_ap"), r"mine/1: on the simulated phone there is no task template 'open_ap'"),
        (task("open_app", app="notes"), r"mine/1: .* takes the params layout, app, start; got app"),
        (task("open_app", layout=0, app="games", start="clock"), "mine/1: .*'games' is not a valid app"),
    ],
)
def test_what_a_simulated_phone_does_not_know_is_refused(
    fields: dict[str, Any], unknown: Task, message: str
) -> None:
    known = task("open_app", layout=0, app="notes", start="clock")
    check_playable(Config.model_validate(fields), [known])
    with pytest.raises(TaskError, match=message):
        check_playable(Config.model_validate(fields), [known, unknown])


def test_an_unknown_template_is_answered_in_a_line() -> None:
    with pytest.raises(TaskError) as refused:
        check_playable(Config(), [task("open_ap")])
    for part in ("Did you mean 'open_app'?", "`distrl tasks list", "the preset phones"):
        assert part in refused.value.remedy
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "fields",
    [
        {"env": {"kind": "browser", "options": {"site": "mine:Site"}}},
        {"env": {"kind": "browser"}, "local": {"workers": 0}},
        {"env": {"import_path": "mine:Env"}},
        {"devices": {"pool": [ADB]}},
    ],
)
def test_others_take_any_task(fields: dict[str, Any]) -> None:
    check_playable(Config.model_validate(fields), [task()])


@pytest.mark.parametrize(
    ("kind", "suite"),
    [
        ("two_screens", "two_screens"),
        pytest.param("browser", "miniwob", marks=pytest.mark.needs("miniwob")),
        ("android_world", None),
    ],
)
def test_tasks_of_another_environment_are_refused(kind: str, suite: str | None) -> None:
    config = Config.model_validate({"env": {"kind": kind}})
    check_playable(config, load_suite(suite) if suite else [task("any", task="ClockStopWatchRunning")])
    with pytest.raises(TaskError, match="quickstart/"):
        check_playable(config, load_suite("quickstart"))


def test_demonstrations_that_nobody_can_show_are_not_waited_for() -> None:
    member = AVD
    simulated = task("open_app")
    with pytest.raises(ConfigError, match=r"demonstrations\.episodes=200: .* expert for mine/1") as refused:
        check_expert(on(member, episodes=200), [simulated, task()])
    assert "episodes: 0" in refused.value.remedy
    check_expert(on(member, episodes=200), [simulated])  # a simulated phone may be behind adb
    check_expert(on(member), [task()])
    with_weights = {"demonstrations": {"episodes": 200, "weights": {"fly": 0.0}}}
    check_expert(on(member, learner=with_weights), [simulated, task()])
    check_expert(on(member, learner={"demonstrations": {"dataset": "demos"}}), [task()])
    check_expert(Config.model_validate({"env": {"import_path": "mine:Env"}}), [task()])


@pytest.mark.parametrize("member", [ADB, AVD, PHONE])
def test_tasks_that_nobody_can_judge_are_refused(member: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"split 'train' .* no params\.check, such as mine/1") as refused:
        check_truth(on(member), "train", [task()])
    assert "worker.rewards.source to judge" in refused.value.remedy
    assert check_truth(on(member, **JUDGED), "train", [task()]) is None
    assert check_truth(on(member), "train", [task(check=CHECK), task("open_app")]) is None
    assert check_truth(Config.model_validate({"env": {"import_path": "mine:Env"}}), "train", [task()]) is None


def test_some_that_nobody_can_judge_are_warned_of() -> None:
    warning = check_truth(on(AVD), "val", [task(check=CHECK), task(), task()])
    assert warning is not None
    assert "2 of the 3 tasks of the split 'val'" in warning
    assert "not used for training" in warning


def test_a_page_without_an_expert_has_no_demonstrations() -> None:
    pages = [task(page, env=page) for page in ("click-test", "simon-says")]
    fields = {"env": {"kind": "browser"}, "learner": {"demonstrations": {"episodes": 8}}}
    with pytest.raises(ConfigError, match="no scripted expert for mine/1") as refused:
        check_expert(Config.model_validate(fields), pages)
    assert "{simon-says: 0}" in refused.value.remedy
    check_expert(Config.model_validate(fields), pages[:1])


def test_demonstrations_of_libero_are_recordings_played_back_as_they_are() -> None:
    def wanted(**fields: Any) -> Config:
        demonstrations = {"episodes": 8, "noise": 0, **fields}
        return Config.model_validate(
            {"env": {"kind": "libero"}, "learner": {"demonstrations": demonstrations}}
        )

    recorded = [task(env="libero_goal/turn_on_the_stove", recording=3)]
    check_expert(wanted(), recorded)
    with pytest.raises(ConfigError, match="LIBERO has no scripted expert for mine/1"):
        check_expert(wanted(), [task(env="libero_goal/turn_on_the_stove", init=3)])
    for field in ("noise", "dagger"):
        with pytest.raises(ConfigError, match="cannot correct random actions") as refused:
            check_expert(wanted(**{field: 0.1}), recorded)
        assert f"learner.demonstrations.{field}" in refused.value.remedy
        check_expert(wanted(**{field: 0.1, "episodes": 0}), recorded)
