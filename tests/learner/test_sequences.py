"""Episodes that are one growing token sequence: the same numbers as step by step, by one pass over it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs transformers: not installed")

import torch
from hub_models import FAMILIES
from policy_fakes import png

from distrl.configs.policy import policy_config
from distrl.core.errors import PolicyError
from distrl.core.policies import build_critic, build_policy
from distrl.core.policies.base import Policy, PromptBatch
from distrl.core.types import (
    ActionRecord,
    Chat,
    ChatMessage,
    Completion,
    ImagePart,
    Observation,
    Purpose,
    RewardParts,
    Sampling,
    Task,
    TextPart,
    TimeStep,
    Trajectory,
    image_digest,
)
from distrl.learner.batching import Batcher, ImageCache, pack
from distrl.learner.episodes import compile_episode

SIZES = [(54, 120), (33, 31), (80, 40), (60, 90)]
PIXELS = {image_digest(data): data for data in (png(i, size) for i, size in enumerate(SIZES))}
DIGESTS = list(PIXELS)
TASK = Task(id="t/train/0", suite="t", template="t", split="train", goal="g")


@pytest.fixture(scope="module", params=["llava", "qwen", "qwen3"])
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    directory = tmp_path_factory.mktemp("model")
    FAMILIES[request.param](directory)
    config = {"kind": "hub", "model": str(directory), "device": "cpu", "max_prompt_tokens": 400}
    return build_policy(policy_config(**config), [], 0)


@pytest.fixture
def batcher(policy: Policy) -> Batcher:
    return Batcher(policy, ImageCache(policy.image, lambda digests: {d: PIXELS[d] for d in digests}))


def question(text: str, image: int) -> ChatMessage:
    return ChatMessage(role="user", parts=(ImagePart(digest=DIGESTS[image]), TextPart(text=text)))


def chat(messages: tuple[ChatMessage, ...], prompt: list[int], tokens: list[int], continues: bool) -> Chat:
    return Chat(
        messages=messages,
        completion=Completion(
            text="",
            prompt_token_ids=tuple(prompt),
            token_ids=tuple(tokens),
            logprobs=(-1.0,) * len(tokens),
            weight_versions=(1,) * len(tokens),
            sampling=Sampling(temperature=0.7),
        ),
        continues=continues,
    )


def step(*chats: Chat) -> TimeStep:
    return TimeStep(
        observation=Observation(image=DIGESTS[0], width=54, height=120),
        chats=chats,
        action=ActionRecord(kind="tap"),
        reward=RewardParts(),
    )


def trajectory(name: str, steps: list[TimeStep], truncated: bool = True) -> Trajectory:
    final = Observation(image=DIGESTS[3], width=60, height=90) if truncated else None
    return Trajectory(id=name, task=TASK, steps=tuple(steps), truncated=truncated, final=final)


def both_ways(policy: Policy, name: str, answers: list[str]) -> tuple[Trajectory, Trajectory]:
    """An episode as one growing sequence, and the same with every prompt written out."""
    growing, written, ids, asked = [], [], [], ()
    for number, answer in enumerate(answers):
        message = question(f"step {number}", number)
        new = policy.prompt_ids((message,), [policy.image(PIXELS[DIGESTS[number]])])
        tokens = policy.completion_ids(answer)[: len(answer) + number % 2]  # the end is not always sampled
        asked = (*asked, message)
        growing.append(step(chat((message,), new, tokens, continues=number > 0)))
        written.append(step(chat(asked, [*ids, *new], tokens, continues=False)))
        ids = [*ids, *new, *tokens]
    return trajectory(name, growing), trajectory(name, written)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def scored(policy: Policy, steps: Any) -> Any:
    return policy.score(steps.prompts, steps.completions, steps.token_mask, steps.temperature)


def compiled(policy: Policy, *trajectories: Trajectory) -> list[Any]:
    return [compile_episode(one, policy) for one in trajectories]


def test_one_pass_over_a_sequence_gives_what_its_steps_give_alone(policy: Policy, batcher: Batcher) -> None:
    first, second = both_ways(policy, "a", ["tap", "go back", "x"]), both_ways(policy, "b", ["yes", "no"])
    growing = batcher.trajectories(compiled(policy, first[0], second[0]))
    written = batcher.trajectories(compiled(policy, first[1], second[1]))
    assert growing.steps.prompts.input_ids.shape[0] == 2
    assert len(growing.steps.prompts) == len(written.steps.prompts) == 5
    one, other = scored(policy, growing.steps), scored(policy, written.steps)
    close(one.logprobs, other.logprobs)
    close(one.entropy, other.entropy)
    close(one.states.last, other.states.last)
    critic = build_critic(policy, 0, has_action_values=True)
    with torch.no_grad():
        for parameter in critic.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    for batch, states in ((growing, one.states), (growing, policy.states(growing.steps.prompts))):
        steps = batch.steps
        close(critic.values(states, batch.col), critic.values(other.states, written.col))
        close(
            critic.action_values(states, batch.col, steps.completions, steps.token_mask),
            critic.action_values(other.states, written.col, steps.completions, steps.token_mask),
        )
        last = batch.last
        close(
            critic.values(states[last], batch.col[last]), critic.values(other.states[last], batch.col[last])
        )
    assert growing.final_prompts is not None
    assert written.final_prompts is not None
    for field in fields(PromptBatch):
        if field.name.endswith(("ids", "mask")):
            mine, theirs = (getattr(b.final_prompts, field.name) for b in (growing, written))
            assert torch.equal(mine, theirs)


def test_gradients_are_the_same(policy: Policy, batcher: Batcher) -> None:
    growing, written = both_ways(policy, "a", ["tap", "go back", "x"])
    head = policy.get_submodule("model").get_output_embeddings().weight  # type: ignore[operator]
    gradients = []
    for one in (growing, written):
        policy.zero_grad()
        steps = batcher.trajectories(compiled(policy, one)).steps
        (scored(policy, steps).logprobs.sum(1) * torch.tensor([1.0, -0.5, 0.3])).sum().backward()
        gradients.append(head.grad.clone())
    close(*gradients)
    policy.zero_grad()


def test_parts_hold_what_they_need(policy: Policy, batcher: Batcher) -> None:
    first, second = both_ways(policy, "a", ["tap", "go back", "x"]), both_ways(policy, "b", ["yes", "no"])
    plain = trajectory("c", [both_ways(policy, "c", ["other"])[1].steps[0]], truncated=False)
    batch = batcher.trajectories(compiled(policy, first[0], second[0], plain))
    assert batch.steps.prompts.input_ids.shape[0] == 3, "a step that stands alone is a sequence too"
    whole = scored(policy, batch.steps).logprobs
    part = batch.part(torch.tensor([2, 1]))
    assert part.steps.prompts.input_ids.shape[0] == 2
    length = max(len(one.sequence.ids) for s in compiled(policy, second[0])[0].steps for one in s.spans)
    assert part.steps.prompts.input_ids.shape[1] == length, "padded to its own longest"
    close(scored(policy, part.steps).logprobs, whole[torch.tensor([5, 3, 4])])
    shown = part.steps.prompts.images
    assert len(shown.keys) == len(shown.flat) == 3
    for digest, picture in zip(shown.keys, shown.flat, strict=True):
        assert torch.equal(picture, policy.image(PIXELS[digest]))
    few = batch.steps[torch.tensor([1])]
    close(scored(policy, few).logprobs, whole[1:2])


def test_every_answer_of_a_step_is_trained_on(policy: Policy, batcher: Batcher) -> None:
    """A summary, then an action that is asked for apart: two prompts, one step."""
    summary, action = both_ways(policy, "a", ["seen", "tap"])[1].steps
    two = trajectory("a", [step(summary.chats[0], action.chats[0]), summary], truncated=False)
    episode = compiled(policy, two)[0]
    assert [len(s.spans) for s in episode.steps] == [2, 0]
    assert episode.steps[0].state()[0] == summary.chats[0].completion.prompt_token_ids
    batch = batcher.trajectories([episode])
    assert batch.steps.completions.shape == (2, len(episode.steps[0].tokens))
    found = scored(policy, batch.steps).logprobs
    alone = scored(policy, batcher.trajectories(compiled(policy, trajectory("b", [summary, action]))).steps)
    parts = pack(batch.steps, 1)
    assert sorted(torch.cat(parts).tolist()) == [0, 1]
    assert all(len(part) for part in parts)
    split = len(summary.chats[0].completion.token_ids)
    close(found[0, :split], alone.logprobs[0, :split])
    close(found[0, split:], alone.logprobs[1, : found.shape[1] - split])


def test_demonstrations_go_on_too(policy: Policy) -> None:
    """Each question is tokenised once, after the answer before it, whose end of turn is not repeated."""
    said = [("tap", question("first", 0)), ("go back", question("then", 1))]
    chats = [
        Chat(messages=(message,), completion=Completion(text=text), continues=number > 0)
        for number, (text, message) in enumerate(said)
    ]
    demo = trajectory("d", [step(one) for one in chats], truncated=False)
    demo = demo.model_copy(update={"purpose": Purpose.DEMO})
    pictures = {digest: policy.image(data) for digest, data in PIXELS.items()}
    episode = compile_episode(demo, policy, lambda digests: {d: pictures[d] for d in digests})
    assert episode is not None
    first, second = (one.spans[0] for one in episode.steps)
    ids = first.sequence.ids
    assert second.sequence is first.sequence
    assert [policy.text(one.tokens) for one in episode.steps] == ["tap", "go back"]
    assert list(ids[: first.start]) == policy.prompt_ids(chats[0].messages, [pictures[DIGESTS[0]]])
    new = policy.prompt_ids(chats[1].messages, [pictures[DIGESTS[1]]])
    assert list(ids[first.stop : second.start]) == new, "in this template nothing stands between two turns"
    assert ids[first.stop - 1] == policy.completion_ids("")[-1]


def test_what_cannot_be_put_together(policy: Policy) -> None:
    growing, _ = both_ways(policy, "a", ["tap", "go"])
    assert compile_episode(trajectory("x", list(growing.steps[1:])), policy) is None
    warm = growing.steps[1].chats[0]
    completion = warm.completion.model_copy(update={"sampling": Sampling(temperature=0.1)})
    mixed = step(growing.steps[0].chats[0], warm.model_copy(update={"completion": completion}))
    with pytest.raises(PolicyError, match=r"temperatures \[0.1, 0.7\]"):
        compile_episode(trajectory("x", [mixed]), policy)


def test_policies_of_one_prompt_refuse_sequences(policy: Policy) -> None:
    growing, _ = both_ways(policy, "a", ["tap", "go"])
    tiny = build_policy(policy_config(d_model=32, num_heads=2, d_ff=48, device="cpu"), [], 0)
    with pytest.raises(PolicyError, match="'tiny' reads one prompt at a time"):
        compile_episode(growing, tiny)
