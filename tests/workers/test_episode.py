"""Episodes with a ten-line environment (tests/fakes) and a ten-line policy."""

import io
import random
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pytest
from counting_env import BACK, COMPLETE, IMPOSSIBLE, TAP, CountingEnv
from PIL import Image, ImageChops
from scripted_episode import AGENT, TASK, Script, lease, run

from distrl.configs.judge import RewardConfig
from distrl.configs.schema import WorkerConfig
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError, ContextFull, EnvError, ProtocolError
from distrl.core.types import (
    Chat,
    ChatMessage,
    Completion,
    Element,
    Fault,
    Observation,
    Outcome,
    Purpose,
    Sampling,
    TextPart,
    image_digest,
    shown_images,
)
from distrl.simulator.device import SimDevice
from distrl.workers import episode
from distrl.workers.actors import random_action
from distrl.workers.agents.androidworld import AndroidWorldAgent
from distrl.workers.agents.autoui import AutoUIAgent
from distrl.workers.agents.base import Prompt
from distrl.workers.devices.device import Screen
from distrl.workers.envs.base import Frame, StepResult
from distrl.workers.episode import EpisodeRunner, draw_marks, observe


def test_a_successful_episode() -> None:
    trajectory, images = run(Script(TAP, TAP, TAP, COMPLETE))
    assert (trajectory.outcome, trajectory.success, trajectory.fault) == (Outcome.SUCCESS, 1.0, Fault.NONE)
    assert (trajectory.task, trajectory.lease_id, trajectory.group_id) == (TASK, "lease-1", "g")
    assert (trajectory.worker, trajectory.slot, trajectory.truncated) == ("w", 3, False)
    assert [step.action.kind for step in trajectory.steps] == ["tap", "tap", "tap", "complete"]
    assert [step.reward.outcome for step in trajectory.steps] == [0.0, 0.0, 0.0, 1.0]
    assert [step.done for step in trajectory.steps] == [False, False, False, True]
    assert trajectory.total_reward == 1.0
    assert trajectory.oldest_version == 7
    assert trajectory.final is not None
    assert trajectory.final.image == trajectory.steps[-1].observation.image  # COMPLETE changes nothing
    assert trajectory.steps[0].chats[0].completion.logprobs == (-0.1, -0.2)
    assert set(images) == set(trajectory.image_digests)
    assert len(images) == 4


def test_images_are_named_by_the_digest_of_the_bytes_that_the_policy_saw() -> None:
    policy = Script(TAP, COMPLETE)
    trajectory, images = run(policy)
    assert all(image_digest(data) == digest for digest, data in images.items())
    for (_, shown, _), step in zip(policy.asked, trajectory.steps, strict=True):
        assert dict(shown) == {step.observation.image: images[step.observation.image]}
    assert Image.open(io.BytesIO(images[trajectory.steps[0].observation.image])).size == (8, 16)


def test_the_prompt_carries_the_goal_and_the_sampling_is_the_leases() -> None:
    policy = Script(TAP, COMPLETE)
    run(policy, sampling=Sampling(temperature=0.3, max_new_tokens=9))
    messages, _, sampling = policy.asked[1]
    assert messages[0].parts[1].model_dump()["text"] == f"step 1 last {AGENT.format(TAP)} Goal: reach three"
    assert sampling == Sampling(temperature=0.3, max_new_tokens=9)


class Full(Script):
    """Has no room for another answer after the given ones."""

    def act(self, *args: Any) -> Completion:
        if len(self.asked) == len(self.answers):
            raise ContextFull("The sequence has 99 tokens.")
        return super().act(*args)


def test_a_full_token_sequence_truncates_as_the_step_limit_does(caplog: pytest.LogCaptureFixture) -> None:
    trajectory, images = run(Full(TAP, BACK))
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"ended after 2 of its {trajectory.task.max_steps} steps" in said
    assert "The sequence has 99 tokens." in said
    assert (trajectory.outcome, trajectory.success, trajectory.fault) == (Outcome.STEP_LIMIT, 0.0, Fault.NONE)
    assert trajectory.truncated
    assert [step.done for step in trajectory.steps] == [False, True]
    assert trajectory.final is not None
    assert trajectory.final.image != trajectory.steps[-1].observation.image
    assert set(images) == set(trajectory.image_digests)


ANYHOW = WorkerConfig(rewards=RewardConfig(require_complete=False))


@pytest.mark.parametrize(
    ("policy", "env", "config", "ending"),
    [
        (Script(TAP, TAP, TAP, *["?"] * 3), {}, None, (Outcome.STEP_LIMIT, 0.0, True)),
        (Script(TAP, TAP, TAP, *["?"] * 3), {}, ANYHOW, (Outcome.SUCCESS, 1.0, True)),
        (Full("?", TAP, TAP, TAP), {}, ANYHOW, (Outcome.SUCCESS, 1.0, True)),
        (Script(IMPOSSIBLE), {}, None, (Outcome.IMPOSSIBLE_CLAIMED, 0.0, False)),
        (Script(TAP, TAP, TAP), {"closes_at": 3}, None, (Outcome.SUCCESS, 1.0, False)),
        (Script(TAP, TAP), {"closes_at": 3, "limit": 2}, None, (Outcome.STEP_LIMIT, 0.0, True)),
        (Script(TAP, TAP, TAP), {"closes_at": 3, "limit": 3}, None, (Outcome.SUCCESS, 1.0, False)),
    ],
    ids=["limit", "evaluated-limit", "evaluated-full", "impossible", "closed", "env-limit", "both"],
)
def test_endings(
    policy: Script, env: dict[str, int], config: WorkerConfig | None, ending: tuple[Outcome, float, bool]
) -> None:
    trajectory, _ = run(policy, CountingEnv(**env), config)
    assert (trajectory.outcome, trajectory.success, trajectory.truncated) == ending
    assert (trajectory.steps[-1].done, trajectory.steps[-1].reward.outcome) == (True, ending[1])
    assert len(trajectory.steps) == len(policy.answers)
    at_limit = trajectory.truncated and not isinstance(policy, Full)
    assert shown_images(trajectory.next_prompt) == ((trajectory.final.image,) if at_limit else ())


def test_penalties_reach_the_record() -> None:
    trajectory, _ = run(Script(BACK, BACK, BACK, "what?", COMPLETE))
    assert [round(step.reward.total, 6) for step in trajectory.steps] == [0, -0.05, -0.1, -0.1, 0]
    assert trajectory.steps[3].action.reason == "no action_type"


class BlindEnv(CountingEnv):
    """Cannot tell whether a task is done, words the goals itself, and waits for a still screen."""

    goal = "Reach three, please"

    def has_truth(self, task: Any) -> bool:
        return False

    def evaluate(self) -> float:
        raise AssertionError("there is nothing to evaluate")

    def step(self, action: Action) -> StepResult:
        result = super().step(action)
        return StepResult(result.frame, settle_s=0.25, guard="call: com.android.dialer")


@pytest.mark.parametrize("answers", [[TAP, COMPLETE], [IMPOSSIBLE], ["?"] * 6])
def test_without_ground_truth_an_episode_stays_unjudged(answers: list[str | Action]) -> None:
    trajectory, _ = run(Script(*answers), BlindEnv())
    assert (trajectory.outcome, trajectory.success, trajectory.fault) == (Outcome.UNJUDGED, 0.0, Fault.NONE)
    assert trajectory.steps[-1].done
    assert trajectory.final is not None


def test_what_the_environment_says_of_a_step_reaches_the_record() -> None:
    policy = Script(TAP, COMPLETE)
    trajectory, _ = run(policy, BlindEnv())
    assert trajectory.steps[0].timing.settle_s == 0.25
    assert trajectory.steps[0].timing.act_s >= 0.0
    assert trajectory.steps[0].guard == "call: com.android.dialer"
    assert trajectory.task == TASK.model_copy(update={"goal": "Reach three, please"})
    part = policy.asked[0][0][0].parts[1].model_dump()
    assert part["text"].endswith("Goal: reach three, please")


def test_what_the_environment_finds_lacking_reaches_the_record() -> None:
    class Strict(CountingEnv):
        def shortfall(self) -> str:
            return "" if self.evaluate() == 1.0 else "Too few taps."

    assert run(Script(TAP, COMPLETE), Strict())[0].shortfall == "Too few taps."
    assert run(Script(TAP, TAP, TAP, COMPLETE), Strict())[0].shortfall == ""
    assert run(Script(TAP, COMPLETE))[0].shortfall == ""


class Refused(Script):
    def act(self, *args: Any) -> Completion:
        raise ProtocolError("malformed", "the prompt has 4000 tokens, more than 96.")


@pytest.mark.parametrize(
    ("policy", "env", "fault", "detail", "num_steps"),
    [
        (Script(TAP, TAP, TAP), CountingEnv(fail_at=2), Fault.DEVICE, "the screen is gone.", 1),
        (Script(TAP), CountingEnv(), Fault.INFERENCE, "nobody answered.", 1),
        (Refused(), CountingEnv(), Fault.INFERENCE, "4000 tokens", 0),
        (Full(), CountingEnv(), Fault.INFERENCE, "The sequence has 99 tokens.", 0),
    ],
    ids=["environment", "unreachable", "refused", "no-room"],
)
def test_faults_have_no_outcome_and_no_reward(
    policy: Script, env: CountingEnv, fault: Fault, detail: str, num_steps: int
) -> None:
    trajectory, images = run(policy, env)
    assert (trajectory.fault, trajectory.outcome, trajectory.final) == (fault, Outcome.UNJUDGED, None)
    assert detail in trajectory.fault_detail
    assert [step.done for step in trajectory.steps] == [False] * num_steps
    assert set(images) == set(trajectory.image_digests)


def test_a_failure_while_stopping_is_nobodys_fault() -> None:
    stop = threading.Event()
    stop.set()

    class Gone(CountingEnv):
        def reset(self, task: Any) -> Any:
            raise EnvError("the browser was closed.")

    assert EpisodeRunner(Gone(), AGENT, Script(), WorkerConfig(), stop=stop).run(lease()) is None


def test_a_demonstration_is_the_experts_and_asks_no_policy() -> None:
    policy = Script()
    trajectory, _ = run(policy, purpose=Purpose.DEMO)
    assert (trajectory.outcome, trajectory.purpose, policy.asked) == (Outcome.SUCCESS, Purpose.DEMO, [])
    completions = [step.chats[0].completion for step in trajectory.steps]
    assert [AGENT.parse(c.text) for c in completions] == [TAP, TAP, TAP, COMPLETE]
    assert all(c.token_ids == () and c.logprobs == () for c in completions)


def test_noise_changes_what_is_executed_but_not_what_is_taught_and_is_the_leases() -> None:
    task = TASK.model_copy(update={"max_steps": 60})
    noisy = {"purpose": Purpose.DEMO, "noise": 0.5, "task": task, "id": "lease-2"}
    trajectory, again = run(Script(), **noisy)[0], run(Script(), **noisy)[0]
    assert [step.action for step in trajectory.steps] == [step.action for step in again.steps]
    count, differ = 0, 0
    for step in trajectory.steps:
        taught = AGENT.parse(step.chats[0].completion.text)
        assert taught == (COMPLETE if count == 3 else TAP if count < 3 else BACK)
        is_other = taught.model_dump(mode="json") != step.action.model_dump(mode="json")
        assert step.chats[0].executed is not is_other
        differ += is_other
        count = {"tap": count + 1, "back": 0}.get(step.action.kind, count)
    assert differ > 0


def test_the_policy_plays_a_demonstration_and_the_expert_teaches() -> None:
    task = TASK.model_copy(update={"max_steps": 9})
    policy = Script(TAP, BACK, COMPLETE, TAP, TAP)
    trajectory, _ = run(policy, purpose=Purpose.DEMO, policy_plays=True, task=task)
    # The policy's COMPLETE came too early: the expert's tap takes its place. At the end the expert decides.
    assert [step.action.kind for step in trajectory.steps] == ["tap", "back", "tap", "tap", "tap", "complete"]
    taught = [step.chats[0].completion for step in trajectory.steps]
    assert [AGENT.parse(one.text) for one in taught] == [TAP, TAP, TAP, TAP, TAP, COMPLETE]
    assert [step.chats[0].executed for step in trajectory.steps] == [True, False, True, True, True, True]
    assert not any(one.token_ids for one in taught)
    assert (len(policy.asked), trajectory.outcome) == (5, Outcome.SUCCESS)


def test_random_actions_never_end_an_episode() -> None:
    rng = random.Random(0)
    drawn = [random_action(rng) for _ in range(300)]
    assert not any(action.is_terminal for action in drawn)
    kinds = {ActionKind.TAP, ActionKind.SWIPE, ActionKind.BACK, ActionKind.HOME}
    assert {action.kind for action in drawn} == kinds


class Summing(AutoUIAgent):
    """Asks for a summary before each action but the first."""

    def prompt(
        self, goal: str, screen: Observation, history: Sequence[Any], said: Sequence[Chat] = ()
    ) -> Prompt:
        found = super().prompt(goal, screen, history)
        words = [chat.completion.text for chat in said]
        said_so = ChatMessage(role="user", parts=(TextPart(text=f"summary {words}"),))
        return Prompt((*found.messages, said_so), is_action=bool(said) or not history)


def test_a_step_may_have_several_chats_and_the_last_one_is_the_action() -> None:
    policy = Script(TAP, "it counts", TAP, "it still counts", COMPLETE)
    episode = EpisodeRunner(CountingEnv(), Summing(), policy, WorkerConfig()).run(lease())
    assert episode is not None
    steps = episode[0].steps
    said = [[chat.completion.text for chat in step.chats][:-1] for step in steps]
    assert said == [[], ["it counts"], ["it still counts"]]
    assert [step.action.kind for step in steps] == ["tap", "tap", "complete"]
    assert policy.asked[2][0][-1].parts == (TextPart(text="summary ['it counts']"),)
    assert set(episode[1]) == set(episode[0].image_digests)


def test_a_demonstration_has_the_chat_for_the_action_only() -> None:
    runner = EpisodeRunner(CountingEnv(), Summing(), Script(), WorkerConfig())
    episode = runner.run(lease(purpose=Purpose.DEMO))
    assert episode is not None
    assert [len(step.chats) for step in episode[0].steps] == [1, 1, 1, 1]
    assert episode[0].success == 1.0


def test_an_agent_that_never_asks_for_an_action_is_an_error() -> None:
    class Endless(Summing):
        def prompt(self, *args: Any, **more: Any) -> Prompt:
            return Prompt(super().prompt(*args, **more).messages, is_action=False)

    runner = EpisodeRunner(CountingEnv(), Endless(), Script(*["x"] * 9), WorkerConfig())
    with pytest.raises(ConfigError, match="made 8 prompts in one step"):
        runner.run(lease())


def test_stop_abandons_the_episode_between_steps() -> None:
    stop = threading.Event()

    class StopsAtTwo(Script):
        def act(self, *args: Any) -> Completion:
            if len(self.asked) == 1:
                stop.set()
            return super().act(*args)

    env = CountingEnv()
    policy = StopsAtTwo(TAP, TAP, TAP)
    assert EpisodeRunner(env, AGENT, policy, WorkerConfig(), stop=stop).run(lease()) is None
    assert env.calls == 2


@pytest.mark.parametrize("image_format", ["jpeg", "png"])
def test_the_observation_names_the_encoded_bytes(image_format: str) -> None:
    config = WorkerConfig(screenshot_format=image_format)
    observation, data = observe(Frame.of(Image.new("RGB", (8, 16), (250, 0, 0)), "app"), config)
    assert observation.image == image_digest(data)
    assert (observation.width, observation.height, observation.app) == (8, 16, "app")
    red, green, blue = Image.open(io.BytesIO(data)).convert("RGB").getpixel((4, 4))
    assert red > 240
    assert max(green, blue) < 10


def test_a_screen_with_a_key_is_drawn_once_until_it_leaves_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode, "_encoded", lru_cache(2)(episode._encoded.__wrapped__))
    drawn: list[str] = []

    def frame(key: str) -> Frame:
        def picture() -> Image.Image:
            drawn.append(key)
            return Image.new("RGB", (4, 4), (ord(key), 0, 0))

        return Frame(Screen(picture, key))

    config = WorkerConfig(screenshot_format="png")
    shots = {key: observe(frame(key), config) for key in "aab"}
    assert drawn == ["a", "b"]
    assert shots["a"] == observe(frame("a"), config)
    observe(frame("c"), config)
    observe(frame("b"), config)
    assert drawn == ["a", "b", "c", "b"], "the least recently used left first"
    assert observe(frame("a"), WorkerConfig(screenshot_format="jpeg")) != shots["a"]


def test_the_simulated_phone_s_key_stands_for_its_picture() -> None:
    device = SimDevice()
    before = device.screen()
    device.swipe(270, 900, 270, 300)
    after = device.screen()
    assert before.key != after.key
    assert before.picture().tobytes() != after.picture().tobytes()
    assert after.picture().tobytes() == device.screenshot().tobytes()
    assert SimDevice().screen().key == before.key


class ListedEnv(CountingEnv):
    """Lists two elements, and none at the last count."""

    def elements(self) -> tuple[Element, ...] | None:
        one = Element(text=str(self.count), bounds=(0.0, 0.0, 0.5, 1.0))
        return None if self.count == 3 else (one, one.model_copy(update={"parent": 0}))


@pytest.mark.parametrize("policy", [Script(TAP, COMPLETE), Full(TAP)], ids=["complete", "full"])
def test_the_elements_of_the_last_screen_are_recorded_however_the_episode_ends(policy: Script) -> None:
    trajectory, _ = run(policy, ListedEnv(), WorkerConfig(elements="final"))
    assert trajectory.final is not None
    assert trajectory.final.elements is not None
    assert [step.observation.elements for step in trajectory.steps] == [None] * len(policy.answers)


@pytest.mark.parametrize("image_format", ["jpeg", "png"])
def test_marks_are_drawn_on_a_picture_of_its_own_which_prompts_show(image_format: str) -> None:
    policy, agent = (
        Script(*['Action: {"action_type": "click", "index": 1}'] * 6),
        AndroidWorldAgent(observe="marks"),
    )
    config = WorkerConfig.model_validate({"screenshot_format": image_format})
    episode = EpisodeRunner(ListedEnv(), agent, policy, config).run(lease())
    assert episode is not None
    trajectory, images = episode
    assert set(images) == set(trajectory.image_digests)
    assert [step.action.kind for step in trajectory.steps] == ["tap"] * 3 + ["invalid"] * 3
    for step, (_, shown, _) in zip(trajectory.steps, policy.asked, strict=True):
        seen = step.observation
        assert set(shown) == {seen.marked or seen.image}
        assert bool(seen.marked) is (seen.elements is not None)
        if seen.marked:
            assert seen.marked == image_digest(images[seen.marked]) != seen.image
            sizes = {Image.open(io.BytesIO(images[one])).size for one in (seen.image, seen.marked)}
            assert sizes == {(seen.width, seen.height)}


def test_numbers_on_marks_do_not_hide_each_other() -> None:
    """A row and the text that fills it have a corner in common."""
    box = Element(text="a", bounds=(0.1, 0.1, 0.9, 0.5))
    plain = Image.new("RGB", (360, 600), "grey")
    one, two = (draw_marks(plain, [box] * count) for count in (1, 2))
    assert plain.getpixel((40, 65)) == (128, 128, 128)  # not drawn upon
    changed = ImageChops.difference(one, two).getbbox()
    assert changed is not None
    assert changed[0] > 180  # the second number is in another corner
    thin = [Element(bounds=(x, x, x + 1e-4, x + 1e-4)) for x in (0.0, 0.5, 0.9999)]
    assert draw_marks(plain, thin).size == plain.size
