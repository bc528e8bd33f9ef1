"""AndroidWorld through a double of the package: the order of an episode, its goals, its actions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from android_world_bench import Emulators, counter, described, task, times

from distrl.configs.schema import WorkerConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError
from distrl.core.messages import Lease
from distrl.core.types import Completion, Outcome
from distrl.workers.agents.androidworld import AndroidWorldAgent
from distrl.workers.envs.android_world import AndroidWorldEnv
from distrl.workers.envs.android_world_child import instance_seed
from distrl.workers.episode import EpisodeRunner

COMPLETE = Action(kind=ActionKind.COMPLETE)
TAP = Action.tap(0.5, 0.5)
Make = Callable[..., AndroidWorldEnv]


def test_an_episode_in_the_packages_order(make: Make, emulators: Emulators) -> None:
    before = random.getstate()
    env = make()
    one = counter()
    frame = env.reset(one)
    assert (frame.image.size, frame.app) == ((90, 160), "com.launcher/.Main")
    assert env.goal == one.goal
    for _ in range(times(one)):
        result = env.step(TAP)
    assert result.settle_s > 0.0
    assert result.frame.image.getpixel((0, 0)) == (20 * times(one) + 5,) * 3
    assert env.step(COMPLETE).frame is result.frame
    assert env.evaluate() == 1.0
    assert env.evaluate() == 1.0
    env.close()
    env.close()
    assert emulators.events() == [
        "attach grpc=8554 adb_server=5037",
        "setup apps=False freeze=True",
        "reset go_home=True",
        "hide_automation_ui",
        "initialize CounterReach",
        "reset go_home=True",
        *['action {"action_type": "click", "x": 45, "y": 80}'] * times(one),
        "is_successful CounterReach",
        "tear_down CounterReach",
        "close",
    ]
    assert random.getstate() == before, "the package seeds the random numbers of its own process only"


def test_goal_and_budget_are_the_packages(emulators: Emulators) -> None:
    found = described("CounterReach", "AskDay", "Wordless", seeds=(30, 31))
    assert [one["max_steps"] for one in found] == [12, 12, 5, 5, 10, 10]
    assert [one["goal"] for one in found[:2]] == [counter(30).goal, counter(31).goal]
    assert found[4]["goal"] == ""
    assert found == described("CounterReach", "AskDay", "Wordless", seeds=(30, 31))


def test_the_instance_seed_is_create_suites() -> None:
    # sha256("30_ContactsAddContact_0") and sha256("30_ContactsAddContact_1"), modulo 2**32
    assert instance_seed(30, "ContactsAddContact") == 1155463587
    assert instance_seed(30, "ContactsAddContact", 1) == 1324763856


def test_a_goal_that_is_worded_at_the_start_is_what_the_agent_reads(make: Make) -> None:
    (one,) = described("AskDay")
    assert one["goal"].startswith("What is on October")
    env, asked = make(), []

    class Policy:
        def act(self, messages: Any, *_: Any) -> Completion:
            asked.append(messages[1].parts[0].text)
            answer = '{"action_type": "answer", "text": "Dentist"}'
            done = '{"action_type": "status", "goal_status": "complete"}'
            return Completion(text=f"Action: {done if len(asked) > 1 else answer}", token_ids=(1,))

    lease = Lease(id="l", task=task("AskDay", one["goal"]))
    episode = EpisodeRunner(env, AndroidWorldAgent(), Policy(), WorkerConfig()).run(lease)
    assert episode is not None
    assert episode[0].outcome is Outcome.SUCCESS
    assert episode[0].task.goal in ("What is on tomorrow?", "What is on the day after tomorrow?")
    assert f"Goal: {episode[0].task.goal}" in asked[0]


def test_success_counts_only_if_the_agent_said_done(make: Make, emulators: Emulators) -> None:
    one = counter().model_copy(update={"max_steps": times(counter())})

    class Policy:
        def act(self, *_: Any) -> Completion:
            return Completion(text='Action: {"action_type": "click", "x": 1, "y": 1}', token_ids=(1,))

    env = make()
    episode = EpisodeRunner(env, AndroidWorldAgent(), Policy(), WorkerConfig()).run(Lease(id="l", task=one))
    assert episode is not None
    assert (episode[0].outcome, episode[0].success) == (Outcome.STEP_LIMIT, 0.0)
    assert "is_successful CounterReach" not in emulators.events()
    env.reset(counter(1))
    assert emulators.events().count("tear_down CounterReach") == 1
    assert emulators.events()[-5:-3] == ["tear_down CounterReach", "reset go_home=True"]


def test_actions_are_written_as_the_package_wants_them(make: Make, emulators: Emulators) -> None:
    env = make()
    env.reset(task("AskDay", seed=7, goal=described("AskDay", seeds=(7,))[0]["goal"]))
    started = len(emulators.events())
    for action in (
        Action(kind=ActionKind.LONG_PRESS, point=(0.0, 1.0)),
        Action(kind=ActionKind.DOUBLE_TAP, point=(1.0, 0.0)),
        Action.type_text("milk & 'honey'"),
        Action.swipe((0.5, 0.5), (0.5, 0.0)),
        Action.swipe((0.5, 0.9), (0.5, 0.1)),
        Action(kind=ActionKind.BACK),
        Action(kind=ActionKind.HOME),
        Action(kind=ActionKind.ENTER),
        Action(kind=ActionKind.WAIT),
        Action(kind=ActionKind.OPEN_APP, text="notes"),
        Action(kind=ActionKind.OPEN_APP, text="nothing"),  # the package refuses it: nothing happens
        Action.invalid("?", "no JSON"),
    ):
        env.step(action)
    assert emulators.events()[started:] == [
        'action {"action_type": "long_press", "x": 0, "y": 159}',
        'action {"action_type": "double_tap", "x": 89, "y": 0}',
        """action {"action_type": "input_text", "text": "milk & 'honey'"}""",
        'action {"action_type": "scroll", "direction": "down"}',
        "adb shell input swipe 45 144 45 16 500",
        'action {"action_type": "navigate_back"}',
        'action {"action_type": "navigate_home"}',
        'action {"action_type": "keyboard_enter"}',
        'action {"action_type": "wait"}',
        'action {"action_type": "open_app", "app_name": "notes"}',
        'action {"action_type": "open_app", "app_name": "nothing"}',
    ]


def test_each_slot_has_an_emulator_of_its_own(make: Make, emulators: Emulators) -> None:
    devices = [{"console": 5554}, {"console": 5556, "grpc": 8556, "adb_server": 5038}]
    first, second = make(devices=devices), make(devices=devices)
    assert [first.ports.console, second.ports.console] == [5554, 5556]
    assert emulators.events(5556)[0] == "attach grpc=8556 adb_server=5038"
    with pytest.raises(EnvError, match="all 2 AndroidWorld emulators are in use"):
        make(devices=devices)
    first.close()
    assert make(devices=devices).ports.console == 5554


def test_there_is_no_expert(make: Make) -> None:
    env = make()
    with pytest.raises(EnvError, match="no scripted expert"):
        env.expert_action()
    with pytest.raises(EnvError, match="no AndroidWorld task is running"):
        env.step(TAP)
