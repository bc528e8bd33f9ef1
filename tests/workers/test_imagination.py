"""Imagined episodes: they go on from the real state exactly, end at their horizon, and what they earn."""

from __future__ import annotations

import random

import pytest
from counting_env import BACK, COMPLETE, TAP, CountingEnv, counting_task
from scripted_episode import Script, run

from distrl.configs.schema import WorkerConfig
from distrl.core.messages import Lease
from distrl.core.types import ActionRecord, Branch, Completion, Observation, Outcome, PastStep, Purpose
from distrl.core.world import SUCCESS, said, text_of
from distrl.evaluator.stores import drawn
from distrl.evaluator.suites import load_suite
from distrl.workers.actors import random_action
from distrl.workers.agents.arm import ArmAgent
from distrl.workers.agents.elements import ElementsAgent
from distrl.workers.envs.phone import PhoneEnv
from distrl.workers.episode import EpisodeRunner

GAMMA = 0.9
REAL, _ = run(Script(TAP, TAP, TAP, COMPLETE))


def imagine(step, *answers, real=REAL, env=None, config=None, task=REAL.task, horizon=5, **how):
    """An imagined episode that leaves `real` before its step `step`."""
    branch = Branch.of(real, step, horizon=horizon, **{"potential": "score", "discount": GAMMA, **how})
    fields = {"purpose": Purpose.IMAGINED, "branch": branch, "group_id": "", "task": task}
    return run(Script(*answers), env, config, **fields)


def shaping(trajectory):
    return [step.reward.shaping for step in trajectory.steps]


class Wanders:
    """Does what the expert does, or at random; asked the same again it gives the same answer."""

    def __init__(self, env, agent, rng) -> None:
        self.env, self.agent, self.rng, self.said = env, agent, rng, {}

    def act(self, messages, images, sampling, prefix):
        if messages not in self.said:
            action = self.env.expert_action() if self.rng.random() < 0.7 else random_action(self.rng)
            screen = Observation(image="", width=1, height=1, elements=self.env.elements())
            self.said[messages] = self.agent.format(action, screen)
        return Completion(text=self.said[messages], token_ids=(1,), logprobs=(-1.0,), weight_versions=(1,))


@pytest.mark.parametrize("suite", ["quickstart", "general"])
def test_a_branch_starts_from_the_real_state_exactly_and_goes_on_as_reality_did(suite) -> None:
    """On simulated phones: the same prompts, screens and outcome where the policy answers the same."""
    agent, rng = ElementsAgent(), random.Random(0)
    config = WorkerConfig(screenshot_format="none")

    for task in [task for task in load_suite(suite) if task.split == "train"][::97][:4]:
        env = PhoneEnv()
        runner = EpisodeRunner(env, agent, Wanders(env, agent, rng), config)
        real, _ = runner.run(Lease(id="real", task=task))
        for step in range(len(real.steps)):
            branch = Branch.of(real, step, horizon=100)
            found, _ = runner.run(Lease(id="b", task=task, purpose=Purpose.IMAGINED, branch=branch))
            assert [one.observation for one in found.steps] == [one.observation for one in real.steps[step:]]
            assert [one.chats for one in found.steps] == [one.chats for one in real.steps[step:]]
            assert (found.final, found.outcome, found.success) == (real.final, real.outcome, real.success)
        assert set(drawn(found)) == {found.steps[0].observation.image, found.final.image}


def test_at_its_horizon_a_branch_is_cut_without_an_outcome_and_knows_the_next_prompt() -> None:
    found, images = imagine(1, TAP, TAP, horizon=2)
    assert (found.outcome, found.truncated, found.success) == (Outcome.UNJUDGED, True, 0.0)
    assert [step.action.kind for step in found.steps] == ["tap", "tap"]
    assert found.steps[-1].done
    assert found.steps[0].chats[0].messages == REAL.steps[1].chats[0].messages
    assert found.next_prompt == REAL.steps[3].chats[0].messages
    assert found.final == REAL.steps[3].observation
    assert set(images) == set(found.image_digests)
    assert (found.purpose, len(found.branch.past)) == (Purpose.IMAGINED, 1)


def test_the_step_limit_is_that_of_the_real_episode() -> None:
    found, _ = imagine(2, BACK, task=counting_task(max_steps=3))
    assert (found.outcome, found.truncated, len(found.steps)) == (Outcome.STEP_LIMIT, True, 1)


def test_repetition_is_counted_from_the_real_steps_on() -> None:
    """Three times BACK on the screen of zero: two of them are real."""
    real, _ = run(Script(BACK, BACK, COMPLETE))
    found, _ = imagine(2, BACK, real=real, horizon=1)
    assert found.steps[0].reward.repetition == pytest.approx(-2 * WorkerConfig().rewards.repetition)


@pytest.mark.parametrize(
    ("answers", "rewards"),
    [
        # The third tap does the task, COMPLETE brings what the screen has promised.
        ((TAP, COMPLETE), [GAMMA, 0.0]),
        # A fourth one undoes it, and COMPLETE then is as bad as before.
        ((TAP, TAP, COMPLETE), [GAMMA, -1.0, 0.0]),
        ((COMPLETE,), [0.0]),
        ((TAP, BACK), [GAMMA, -1.0]),
    ],
)
def test_rewards_are_differences_of_the_score(answers, rewards) -> None:
    found, _ = imagine(2, *answers, horizon=len(answers))
    assert shaping(found) == pytest.approx(rewards)


@pytest.mark.parametrize("potential", ["score", "distance"])
@pytest.mark.parametrize(
    "answers", [(TAP, COMPLETE), (COMPLETE,), (BACK, TAP, TAP, COMPLETE), (TAP, BACK, BACK)]
)
def test_rewards_telescope_so_that_no_way_to_an_outcome_pays_more(answers, potential) -> None:
    """Σ γ^t r̂_t = γ^T outcome − M(o_0), and at a cut γ^{T+1} M(o_{T+1}) − M(o_0)."""

    class Measured(CountingEnv):
        def distance(self):
            return 3 - self.count if self.count <= 3 else None

    found, _ = imagine(2, *answers, env=Measured(), horizon=len(answers), potential=potential)
    total = sum(GAMMA**t * reward for t, reward in enumerate(shaping(found)))
    first, last = len(answers) - 1, {"score": 0.0, "distance": GAMMA**3}[potential]
    ending = GAMMA**first * found.success
    if found.outcome is Outcome.UNJUDGED:
        ending = GAMMA ** (first + 1) * last  # BACK leads to zero
    assert total == pytest.approx(ending - {"score": 0.0, "distance": GAMMA}[potential])


def test_without_a_potential_only_the_outcome_is_paid() -> None:
    found, _ = imagine(2, TAP, COMPLETE, potential="none")
    assert (shaping(found), found.total_reward) == ([0.0, 0.0], 1.0)


class Foresees:
    """A policy of one answer. Asked as the model of the world, it gives the next of `follows`."""

    def __init__(self, *follows: str, answer: str = "4") -> None:
        self.follows, self.asked, self.answer = list(follows), [], answer

    def act(self, messages, images, sampling, prefix):
        text = text_of(messages)
        self.asked.append(text)
        said = self.follows.pop(0) if "\nAnswer: " in text else self.answer
        return Completion(text=said, token_ids=(1,), logprobs=(-1.0,), weight_versions=(1,))


def foresee(*follows: str, horizon=5, past=0, max_steps=15, max_actions=None):
    agent, task = ArmAgent(chunk=1, axes=1, bins=5), REAL.task.model_copy(update={"max_steps": max_steps})
    steps = tuple(PastStep(action=ActionRecord(kind="wait")) for _ in range(past))
    branch = Branch(trajectory="real", past=steps, horizon=horizon, start=said("Task: Lift\nState: 0.1000"))
    policy = Foresees(*follows)
    lease = Lease(id="b", task=task, purpose=Purpose.IMAGINED, branch=branch)
    env = CountingEnv()
    if max_actions is not None:
        env.max_actions = {agent.chunk: max_actions}.__getitem__
    found, images = EpisodeRunner(env, agent, policy, WorkerConfig()).run(lease)
    assert {step.observation.image for step in found.steps} <= images.keys()
    return found, policy.asked


def test_in_a_learned_model_prompts_follow_answers_until_it_says_success() -> None:
    second = "Task: Lift\nState: 0.2000"
    found, asked = foresee(second, SUCCESS)
    assert asked == [
        "Task: Lift\nState: 0.1000",
        "Task: Lift\nState: 0.1000\nAnswer: 4",
        second,
        f"{second}\nAnswer: 4",
    ]
    assert (found.outcome, found.success, found.truncated) == (Outcome.SUCCESS, 1.0, False)
    assert [step.reward.outcome for step in found.steps] == [0.0, 1.0]
    assert [step.action.motion for step in found.steps] == [((1.0,),)] * 2
    assert len({step.observation.image for step in found.steps}) == 2, "other prompts are other screens"
    assert found.next_prompt == ()


@pytest.mark.parametrize(
    ("follows", "limits", "num_steps", "outcome"),
    [
        (["Unsure\nTask: Lift\nState: 0.9000"], {}, 1, Outcome.UNJUDGED),
        (["Unsure\nTask: Lift\nState: 0.9000"], {"past": 3, "max_steps": 4}, 1, Outcome.UNJUDGED),
        (["Task: Lift\nState: 0.9000"] * 2, {"horizon": 2}, 2, Outcome.UNJUDGED),
        (["Task: Lift\nState: 0.9000"] * 2, {"past": 3, "max_steps": 5}, 2, Outcome.STEP_LIMIT),
        (["Task: Lift\nState: 0.9000"] * 2, {"past": 3, "max_actions": 5}, 2, Outcome.STEP_LIMIT),
    ],
)
def test_a_learned_model_s_branch_ends_in_doubt_at_its_horizon_and_at_the_limits(
    follows, limits, num_steps, outcome
) -> None:
    found, _ = foresee(*follows, **limits)
    assert (len(found.steps), found.outcome, found.truncated) == (num_steps, outcome, True)
    assert found.steps[-1].done
    assert found.next_prompt == said("Task: Lift\nState: 0.9000")


@pytest.mark.parametrize(
    ("answer", "follows", "outcome", "success"),
    [
        ("complete", SUCCESS, Outcome.SUCCESS, 1.0),
        ("complete", "Goal: Lift", Outcome.FAILURE, 0.0),
        ("impossible", "Unsure\nGoal: Lift", Outcome.IMPOSSIBLE_CLAIMED, 0.0),
    ],
)
def test_complete_and_impossible_end_a_learned_model_s_branch_as_in_reality(
    answer, follows, outcome, success
) -> None:
    branch = Branch(trajectory="real", horizon=5, start=said("Goal: Lift"))
    lease = Lease(id="b", task=REAL.task, purpose=Purpose.IMAGINED, branch=branch)
    policy = Foresees(follows, answer=answer)
    found, _ = EpisodeRunner(CountingEnv(), ElementsAgent(), policy, WorkerConfig()).run(lease)
    assert (found.outcome, found.success, found.truncated, len(found.steps)) == (outcome, success, False, 1)
    assert (found.total_reward, found.next_prompt) == (success, ())
