"""The phone environment: actions to the device, ground truth, expert, and waiting."""

from __future__ import annotations

import random
from typing import Any, Literal

import pytest
from scripted_episode import Script, run

from distrl.configs.schema import WorkerConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError, EnvError
from distrl.core.types import Fault, Outcome, Purpose, Task, Trajectory
from distrl.simulator.device import SimDevice
from distrl.simulator.tasks.play import SimBackend
from distrl.workers.devices.errors import OutputInvalid, Untypable
from distrl.workers.envs.base import Env
from distrl.workers.envs.phone import Latency, PhoneEnv, elements_of

WAIT = Action(kind=ActionKind.WAIT)
TASK = Task(
    id="quickstart/toggle/test/0000",
    suite="quickstart",
    template="toggle",
    split="test",
    goal="Turn on Wi-Fi",
    params={"layout": 0, "setting": "wifi", "on": True},
    seed=11,
    max_steps=10,
)


def test_the_expert_solves_and_then_says_complete() -> None:
    env: Env = PhoneEnv()
    frame = env.reset(TASK)
    assert (frame.image.size, frame.image.mode, frame.app) == ((540, 1200), "RGB", "launcher")
    assert env.evaluate() == 0.0
    apps = []
    for _ in range(3):
        apps.append(env.step(env.expert_action()).frame.app)
    assert apps == ["settings"] * 3
    assert env.evaluate() == 1.0
    assert env.expert_action().kind is ActionKind.COMPLETE
    env.close()
    env.close()


@pytest.mark.parametrize(
    "kind", [ActionKind.WAIT, ActionKind.COMPLETE, ActionKind.IMPOSSIBLE, ActionKind.INVALID]
)
def test_some_actions_leave_the_phone_as_it_is(kind: ActionKind) -> None:
    device = SimDevice()
    env = PhoneEnv(backend=SimBackend(device))
    first = env.reset(TASK)
    before = device.phone.dump()
    result = env.step(Action(kind=kind, text="nonsense"))
    assert not result.done
    assert result.frame.image.tobytes() == first.image.tobytes()
    assert device.phone.dump() == before


def test_resets_with_the_same_task_show_the_same_bytes() -> None:
    def play(env: PhoneEnv) -> list[bytes]:
        shots = [env.reset(TASK).image.tobytes()]
        shots += [env.step(env.expert_action()).frame.image.tobytes() for _ in range(4)]
        return shots

    first = PhoneEnv()
    assert play(first) == play(PhoneEnv()) == play(first)


def test_latency_waits_by_the_tasks_seed() -> None:
    def waits(task: Task, **fields: Any) -> list[float]:
        slept: list[float] = []
        env = PhoneEnv(latency=fields, sleep=slept.append)
        env.reset(task)
        for _ in range(5):
            env.step(Action(kind=ActionKind.WAIT))
        return slept

    settings = {"kind": "lognormal", "median_s": 2.0, "sigma": 1.0}
    assert waits(TASK, **settings) == waits(TASK, **settings)
    assert waits(TASK, **settings) != waits(TASK.model_copy(update={"seed": 12}), **settings)
    assert waits(TASK) == []
    drawn = sorted(
        Latency(kind="lognormal", median_s=2.0, sigma=1.0).draw(random.Random(n)) for n in range(999)
    )
    assert 1.7 < drawn[499] < 2.3
    assert drawn[-1] / drawn[0] > 100


def test_an_env_without_a_task_says_so() -> None:
    env = PhoneEnv()
    for use in (lambda: env.step(WAIT), env.evaluate, env.expert_action):
        with pytest.raises(EnvError, match="shows no task"):
            use()


@pytest.mark.parametrize("size", [(10, 10), (540, 800), (9000, 20000)])
def test_impossible_screens_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(ConfigError, match=r"pixels|2 to 2\.5"):
        SimDevice(*size)


def test_text_that_the_device_cannot_type_has_no_effect_and_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Keyboardless(SimDevice):
        def type_text(self, text: str) -> None:
            raise Untypable("text beyond ASCII cannot be typed.", "Install ADBKeyboard.")

    env = PhoneEnv(backend=SimBackend(Keyboardless()))
    first = env.reset(TASK)
    for _ in range(2):
        result = env.step(Action.type_text("größer"))
        assert result.frame.image.tobytes() == first.image.tobytes()
    assert [record.levelname for record in caplog.records if "Install ADBKeyboard" in record.message] == [
        "WARNING"
    ]


def shown(env: Any, elements: Literal["final", "all"]) -> Trajectory:
    """What the expert does."""
    return run(Script(), env, WorkerConfig(elements=elements), task=TASK, purpose=Purpose.DEMO)[0]


MALFORMED = "<?xml version='1.0'?><hierarchy><node></hierarchy>"


@pytest.mark.parametrize("said", [OutputInvalid("could not get idle state."), MALFORMED])
def test_a_screen_whose_elements_cannot_be_read_has_none_and_is_no_fault(
    said: str | OutputInvalid, caplog: pytest.LogCaptureFixture
) -> None:
    class Restless(SimDevice):
        def hierarchy(self) -> str:
            if isinstance(said, OutputInvalid):
                raise said
            return said

    env = PhoneEnv(backend=SimBackend(Restless()))
    for trajectory in (shown(env, "final"), shown(env, "all")):
        assert (trajectory.outcome, trajectory.fault) == (Outcome.SUCCESS, Fault.NONE)
        assert {step.observation.elements for step in trajectory.steps} == {None}
        assert trajectory.final is not None
        assert trajectory.final.elements is None
    told = [record.levelname for record in caplog.records if "are not recorded" in record.message]
    assert told == ["WARNING"]


def test_the_elements_of_the_last_screen_or_of_all_reach_the_record() -> None:
    assert all(step.observation.elements for step in shown(PhoneEnv(), "all").steps)
    trajectory = shown(PhoneEnv(), "final")
    assert {step.observation.elements for step in trajectory.steps} == {None}
    assert trajectory.final is not None
    found = {(one.class_name, one.text): one for one in reversed(trajectory.final.elements or ())}
    title, switch = found["TextView", "Wi-Fi"], found["Switch", ""]
    assert (title.flags, switch.flags) == ((), ("checked",))
    assert (title.resource_id, switch.resource_id) == ("title", "switch_widget")
    assert 0 < title.bounds[0] < title.bounds[2] <= switch.bounds[0] < switch.bounds[2] < 1
    assert switch.bounds[1] < (title.bounds[1] + title.bounds[3]) / 2 < switch.bounds[3]
    elements = trajectory.final.elements or ()
    row = elements[title.parent]
    assert (row.description, row.flags, switch.parent) == ("Wi-Fi", ("clickable",), title.parent)


def test_what_can_be_acted_on_is_listed_and_what_does_not_show_is_not() -> None:
    def node(fields: str, *inside: str, bounds: str = "[0,0][100,50]") -> str:
        return f'<node class="a.b.EditText" bounds="{bounds}" {fields}>{"".join(inside)}</node>'

    hidden, plain = node('text="gone"', bounds="[100,0][120,50]"), '<node bounds="[0,0][9,9]"/>'
    field = node('long-clickable="true" enabled="false" resource-id="org.app:id/query"')
    listed = elements_of(node('scrollable="true" content-desc="Page"', hidden, plain, field), (100, 100))
    assert [(one.label, one.flags, one.parent, one.resource_id) for one in listed] == [
        ("Page", ("scrollable", "editable"), -1, ""),
        ("", ("long_clickable", "editable", "disabled"), 0, "query"),
    ]
    assert listed[0].bounds == (0.0, 0.0, 1.0, 0.5)


@pytest.mark.parametrize(
    ("fields", "said"), [({"median": 1.0}, r"latency\.median"), ({"median_s": -1}, r"latency\.median_s")]
)
def test_wrong_settings_are_config_errors(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        PhoneEnv(latency=fields)
