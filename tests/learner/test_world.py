"""A learned model of the world in the learner: its lessons, its training, and where it goes on from."""

from __future__ import annotations

import copy

import torch

from distrl.configs.learner import LearnerConfig
from distrl.configs.policy import ArmConfig
from distrl.configs.world import WorldConfig
from distrl.core.policies import build_critic, build_policy
from distrl.core.types import (
    ActionRecord,
    Chat,
    Completion,
    Observation,
    Outcome,
    Purpose,
    RewardParts,
    Sampling,
    Task,
    TimeStep,
    Trajectory,
)
from distrl.core.world import SUCCESS, question, said
from distrl.learner.algorithms import build_algorithm
from distrl.learner.batching import Batcher, ImageCache
from distrl.learner.episodes import compile_episode
from distrl.learner.task_sampling import BranchSource
from distrl.learner.train_step import TrainStep

ARM = ArmConfig(
    device="cpu",
    channels=8,
    d_model=16,
    chunk=1,
    axes=2,
    bins=5,
    picture=False,
    world=2,
    max_prompt_tokens=200,
)
TASK = Task(id="t", suite="s", template="lift", split="train", goal="Lift")
PROMPTS = [said(f"Task: Lift\nState: 0.{number}000 0.5000") for number in range(3)]


def policy(**changes):
    return build_policy(ARM.model_copy(update=changes), ["Lift"], 0)


def played(success: float, purpose: Purpose = Purpose.TRAIN) -> Trajectory:
    """Three steps of the motion "4 0"."""
    tokens = (4, 0 + 5)
    completion = Completion(
        text="4 0",
        prompt_token_ids=(),
        token_ids=tokens,
        logprobs=(-1.0, -1.0),
        weight_versions=(1, 1),
        sampling=Sampling(),
    )
    steps = []
    for number, prompt in enumerate(PROMPTS):
        ids = tuple(policy().prompt_ids(prompt))
        steps.append(
            TimeStep(
                observation=Observation(image="0" * 32, width=8, height=8),
                chats=(
                    Chat(messages=prompt, completion=completion.model_copy(update={"prompt_token_ids": ids})),
                ),
                action=ActionRecord(kind="wait"),
                reward=RewardParts(outcome=success if number == 2 else 0.0),
                done=number == 2,
            )
        )
    outcome = Outcome.SUCCESS if success else Outcome.STEP_LIMIT
    return Trajectory(
        id="e", task=TASK, purpose=purpose, steps=tuple(steps), outcome=outcome, success=success
    )


def test_each_step_is_a_lesson_but_a_last_one_that_failed() -> None:
    model = policy()
    won, lost = (compile_episode(played(success), model) for success in (1.0, 0.0))
    expected = [(question(prompt, "4 0"), PROMPTS[number + 1]) for number, prompt in enumerate(PROMPTS[:2])]
    for lesson, (asked, after) in zip(won.lessons, expected, strict=False):
        assert lesson.prompt == tuple(model.prompt_ids(asked))
        assert model.text(lesson.tokens, lesson.prompt) == after[0].parts[0].text
    assert len(won.lessons) == 3
    assert model.text(won.lessons[-1].tokens, won.lessons[-1].prompt) == SUCCESS
    assert won.lessons[:2] == lost.lessons
    assert compile_episode(played(1.0, Purpose.DEMO), model).lessons == won.lessons
    other = played(1.0, Purpose.DEMO)
    steps = [
        step.model_copy(update={"chats": (step.chats[0].model_copy(update={"executed": False}),)})
        for step in other.steps[1:]
    ]
    noisy = compile_episode(other.model_copy(update={"steps": (other.steps[0], *steps)}), model)
    assert noisy.lessons == won.lessons[:1], "what follows another action teaches nothing of the expert's"
    assert compile_episode(played(1.0, Purpose.IMAGINED), model).lessons == ()
    assert compile_episode(played(1.0), policy(world=0)).lessons == ()


def train_step(model) -> TrainStep:
    config = LearnerConfig()
    return TrainStep(model, build_critic(model, 0), build_algorithm(config), config)


def test_it_learns_apart_from_the_policy_and_resumes() -> None:
    model = policy()
    engine, batcher = train_step(model), Batcher(model, ImageCache(model.image, lambda digests: {}))
    lessons = compile_episode(played(1.0), model).lessons
    before = {name: one.clone() for name, one in model.named_parameters()}
    losses = [engine.learn_world(batcher.steps(lessons), 0.01) for _ in range(30)]
    assert losses[-1] < losses[0] - 1
    changed = {name for name, one in model.named_parameters() if not torch.equal(one, before[name])}
    assert changed == {name for name in before if name.startswith("foresight.")}
    weights = {name: one.clone() for name, one in model.state_dict().items()}

    other = policy()
    other.load_state_dict(weights)
    resumed = train_step(other)
    resumed.load_state_dict(copy.deepcopy(engine.state_dict()))
    pair = [one.learn_world(batcher.steps(lessons), 0.01) for one in (engine, resumed)]
    assert pair[0] == pair[1]
    assert all(torch.equal(one, other.state_dict()[name]) for name, one in model.state_dict().items())

    batch = batcher.trajectories([compile_episode(played(1.0), model)])
    kept = {name: one.clone() for name, one in model.foresight.named_parameters()}
    assert engine.update(batch) is not None
    assert all(torch.equal(one, kept[name]) for name, one in model.foresight.named_parameters())


def test_imagined_episodes_start_from_the_prompts_of_real_ones() -> None:
    def starts(model: str):
        source = BranchSource(WorldConfig(model=model), LearnerConfig(), 0)
        source.add(played(1.0))
        return [source.draw()[1] for _ in range(20)]

    learned = starts("learned")
    assert {one.start for one in learned} == set(PROMPTS)
    assert all(one.start == PROMPTS[len(one.past)] for one in learned)
    oracle = starts("oracle")
    assert {one.start for one in oracle} == {()}
    assert [one.past for one in oracle] == [one.past for one in learned]
