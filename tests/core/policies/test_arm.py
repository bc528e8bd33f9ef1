"""The policy `arm`: chunks that are drawn at once, their probabilities, and what it reads of a prompt."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch
from policy_fakes import chat, check_agreement, png, swap

from distrl.configs.policy import ArmConfig
from distrl.core import world
from distrl.core.errors import CheckpointError, PolicyError
from distrl.core.policies import build_critic, build_policy, checkpoint_words
from distrl.core.policies.arm import ArmPolicy
from distrl.core.policies.base import PromptBatch
from distrl.core.policies.tokenizer import token_names
from distrl.core.types import ChatMessage, Sampling, TextPart

SMALL = ArmConfig(
    device="cpu",
    image_size=(24, 20),
    channels=8,
    d_model=16,
    chunk=2,
    axes=3,
    bins=5,
    picture=True,
    world=0,
    max_prompt_tokens=200,
)
WORDS = ["Open", "the", "drawer", "door"]
PROMPTS = [
    "Task: Open the drawer\nState: 0.0046 -0.6000 0.2000 1.0000",
    "Task: open the door",
    "Task: \nState: ",
    "Task: Zoë öffnet it",
]
LENGTH = 6


def make(seed: int = 0, words: list[str] = WORDS) -> ArmPolicy:
    policy = build_policy(SMALL, words, seed)
    assert isinstance(policy, ArmPolicy)
    torch.nn.init.normal_(policy.head.weight, 0.0, 0.2, generator=torch.Generator().manual_seed(seed))
    torch.nn.init.normal_(policy.scale.weight, generator=torch.Generator().manual_seed(seed))
    return policy


def batch_of(policy: ArmPolicy, *texts: str, seeds: list[int] | None = None) -> PromptBatch:
    pictures = [[policy.image(png(seed))] for seed in seeds or range(len(texts))]
    return policy.collate([policy.prompt_ids(chat(text)) for text in texts], pictures)


def test_sampled_and_scored_log_probabilities_agree() -> None:
    policy = make()
    batch = batch_of(policy, *PROMPTS)
    temperatures, limits = (1.0, 0.0, 0.6, 2.0), (LENGTH, LENGTH, 32, 4)
    check_agreement(policy, batch, temperatures, limits)
    swap(policy)
    check_agreement(policy, batch, temperatures, limits)


def test_without_pictures_it_reads_the_sentence_and_the_state() -> None:
    policy = build_policy(SMALL.model_copy(update={"picture": False}), WORDS, 0)
    torch.nn.init.normal_(policy.get_submodule("head").weight)  # type: ignore[arg-type]
    chats = [ChatMessage(role="user", parts=(TextPart(text=text),)) for text in (*PROMPTS, PROMPTS[0][:-6])]
    batch = policy.collate([policy.prompt_ids([one]) for one in chats], [[]] * len(chats))
    check_agreement(policy, batch, (1.0, 0.0, 0.6, 2.0, 1.0), (LENGTH,) * 5)
    tokens = torch.tensor([[0, 1, 2, 3, 4, 9]] * len(chats))
    found = policy.score(batch, tokens, torch.ones_like(tokens).bool(), torch.ones(len(chats)))
    assert len(set(found.logprobs.sum(1).tolist())) == len(chats)
    with pytest.raises(PolicyError, match="reads only prompts"):
        policy.prompt_ids(chat(PROMPTS[0]))


def test_all_numbers_of_a_chunk_are_drawn_and_the_last_one_ends_it() -> None:
    policy = make()
    sampling, generator = [Sampling(max_new_tokens=32)] * 200, torch.Generator().manual_seed(0)
    drawn = policy.generate(batch_of(policy, *PROMPTS[:1] * 200, seeds=[0] * 200), sampling, generator)
    assert all(len(one.token_ids) == LENGTH for one in drawn)
    assert all(max(one.token_ids[:-1]) < 5 and 5 <= one.token_ids[-1] < 10 for one in drawn)
    assert {token for one in drawn for token in one.token_ids} == set(range(10))


def test_the_probabilities_of_all_chunks_add_up_to_one() -> None:
    policy = build_policy(SMALL.model_copy(update={"chunk": 1, "axes": 2, "bins": 3}), WORDS, 0)
    torch.nn.init.normal_(policy.get_submodule("head").weight)  # type: ignore[arg-type]
    chunks = torch.tensor([[first, 3 + last] for first in range(3) for last in range(3)])
    batch = policy.collate([policy.prompt_ids(chat(PROMPTS[0]))] * 9, [[policy.image(png(0))]] * 9)
    scores = policy.score(batch, chunks, torch.ones(9, 2).bool(), torch.ones(9))
    assert float(scores.logprobs.sum(1).exp().sum()) == pytest.approx(1.0)
    log_probs = scores.logprobs.sum(1)
    assert float(scores.entropy[0].sum()) == pytest.approx(float(-(log_probs.exp() * log_probs).sum()))


def test_answers_become_tokens_and_texts_again() -> None:
    policy = make()
    ids = policy.completion_ids("0 1 2; 3 4 4")
    assert ids == [0, 1, 2, 3, 4, 4 + 5]
    assert policy.text(ids) == "0 1 2; 3 4 4"
    assert policy.text(ids[:4]) == "0 1 2; 3"
    for text in ("0 1 2", "0 1 2; 3 4 5", "tap 3"):
        with pytest.raises(PolicyError, match="is not a chunk of 6 numbers below 5"):
            policy.completion_ids(text)


def scores_of(policy: ArmPolicy, *texts: str) -> list[float]:
    """log π of one chunk after each prompt, with one picture."""
    batch = batch_of(policy, *texts, seeds=[0] * len(texts))
    tokens = torch.tensor([[0, 1, 2, 3, 4, 9]] * len(texts))
    found = policy.score(batch, tokens, torch.ones_like(tokens).bool(), torch.ones(len(texts)))
    return [round(value, 5) for value in found.logprobs.sum(1).tolist()]


def test_it_reads_words_whatever_their_case_and_place_and_unknown_words_alike() -> None:
    known, shouted, other, foreign, alien = scores_of(
        make(),
        *("Task: Open the drawer", "Task: the DRAWER, open!", "Task: Open the door"),
        *("Task: Open the foo", "Task: Open the bär"),
    )
    assert known == shouted
    assert foreign == alien
    assert len({known, other, foreign}) == 3


def test_it_reads_every_number_of_the_state_and_other_rows_change_nothing() -> None:
    policy = make()
    texts = [f"Task: Open\nState: {state}" for state in ("0.1000 0.2000", "0.1000 0.3000", "0.2000 0.2000")]
    together = scores_of(policy, *texts, "Task: Open the drawer and then the door")
    assert len(set(together)) == 4
    assert [scores_of(policy, text)[0] for text in texts] == pytest.approx(together[:3], abs=1e-4)


def test_a_state_beyond_all_measure_has_finite_scores() -> None:
    (score,) = scores_of(make(), f"Task: Open\nState: {'9' * 100}.0 -{'9' * 2}.0")
    assert math.isfinite(score)


def test_cloning_hides_words_and_nothing_else_does() -> None:
    policy = make()
    plain = scores_of(policy, PROMPTS[0])
    with policy.augmented():
        assert len({scores_of(policy, PROMPTS[0])[0] for _ in range(20)}) > 1
    assert scores_of(policy, PROMPTS[0]) == plain


def test_cloning_learns_where_something_is() -> None:
    """A bright square on grey; its column and row are the answer."""
    policy = build_policy(SMALL.model_copy(update={"chunk": 1, "axes": 2, "bins": 4}), WORDS, 0)
    pictures, answers = [], []
    for column in range(4):
        for row in range(4):
            picture = torch.full((3, 20, 24), 128, dtype=torch.uint8)
            picture[:, 5 * row : 5 * row + 5, 6 * column : 6 * column + 6] = 255
            pictures.append([picture])
            answers.append(policy.completion_ids(f"{column} {row}"))
    batch = policy.collate([policy.prompt_ids(chat("Task: Open the door"))] * 16, pictures)
    tokens = torch.tensor(answers)
    optimiser = torch.optim.Adam(policy.parameters(), 0.01)
    for _ in range(150):
        loss = -policy.score(batch, tokens, torch.ones(16, 2).bool(), torch.ones(16)).logprobs.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    greedy = policy.generate(batch, [Sampling(temperature=0.0)] * 16)
    assert [one.token_ids for one in greedy] == answers


def test_the_critic_reads_one_state_of_each_prompt() -> None:
    policy = make()
    states = policy.states(batch_of(policy, *PROMPTS))
    assert states.hidden.shape == (4, 1, 16)
    values = build_critic(policy, 0).values(states, torch.zeros(4, dtype=torch.int64))
    assert values.shape == (4,)
    assert all(map(math.isfinite, values.tolist()))


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (chat("Open the drawer"), "only prompts of the agent 'arm'"),
        ((ChatMessage(role="user", parts=(TextPart(text="Task: x"),)),), "only prompts of the agent 'arm'"),
        (chat("Task: a") + chat("Task: b"), "only prompts of the agent 'arm'"),
        (chat("Task: " + "a" * 200), "206 bytes, more than policy.max_prompt_tokens 200"),
    ],
)
def test_other_prompts_are_refused(messages: tuple[ChatMessage, ...], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        make().prompt_ids(messages)


def test_tokens_that_are_no_prompt_of_the_agent_can_be_scored() -> None:
    policy = make()
    batch = policy.collate([[255, 0, 7], []], [[policy.image(png(0))]] * 2)
    tokens = torch.tensor([[9, 3, 200, 0, 0, 0]] * 2)
    assert policy.score(batch, tokens, torch.ones(2, 6).bool(), torch.ones(2)).logprobs.isfinite().all()


def test_a_saved_policy_is_the_same_and_belongs_to_its_words(tmp_path: Path) -> None:
    policy, other = make(), make(seed=1)
    policy.save(tmp_path)
    assert scores_of(policy, *PROMPTS) != scores_of(other, *PROMPTS)
    other.load(tmp_path)
    assert scores_of(policy, *PROMPTS) == scores_of(other, *PROMPTS)
    assert checkpoint_words(tmp_path) == policy.words
    names = token_names(tmp_path / "tokenizer.json")
    assert names is not None
    assert names(7) == "7"
    with pytest.raises(CheckpointError, match="vocabulary"):
        make(words=["else"]).load(tmp_path)


def test_a_policy_with_a_model_of_the_world_answers_what_a_motion_does() -> None:
    """The state moves by the motion's first numbers; the task is solved where the first comes above 0.5."""
    policy = build_policy(SMALL.model_copy(update={"picture": False, "world": 3}), WORDS, 0)
    rng, pairs = random.Random(0), []
    for _ in range(400):
        place, bins = [rng.uniform(-0.5, 0.5) for _ in range(3)], [rng.randrange(5) for _ in range(6)]
        after = [x + 0.1 * (number / 2 - 1) for x, number in zip(place, bins[:3], strict=True)]
        prompt = world.said(f"Task: Open the door\nState: {' '.join(f'{x:.4f}' for x in place)}")
        answer = f"Task: Open the door\nState: {' '.join(f'{x:.4f}' for x in after)}"
        pairs.append((world.question(prompt, policy.text([*bins[:-1], bins[-1] + 5])), answer))
        if after[0] > 0.5:
            pairs[-1] = (pairs[-1][0], world.SUCCESS)
    prompts = [policy.prompt_ids(question) for question, _ in pairs]
    answers = [policy.completion_ids(answer, ids) for (_, answer), ids in zip(pairs, prompts, strict=True)]
    for (_, answer), ids, tokens in zip(pairs, prompts, answers, strict=True):
        assert policy.text(tokens, ids) == answer
    length = max(map(len, answers))
    tokens = torch.tensor([[*one, *[0] * (length - len(one))] for one in answers])
    mask = torch.tensor([[place < len(one) for place in range(length)] for one in answers])
    batch = policy.collate(prompts, [[]] * len(prompts))
    assert policy.world is not None
    before = {name: one.clone() for name, one in policy.named_parameters() if "foresight" not in name}
    optimiser, losses = torch.optim.Adam(policy.world.parameters(), 0.003), []
    for _ in range(300):
        loss = -policy.score(batch, tokens, mask, torch.ones(len(tokens))).logprobs.sum(1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss))
    assert losses[-1] < losses[0] - 3
    assert all(torch.equal(before[name], policy.state_dict()[name]) for name in before)

    acting = policy.prompt_ids(world.said("Task: Open the door\nState: 0.1000 0.2000 0.3000"))
    far = policy.prompt_ids(
        world.question(world.said("Task: Open the door\nState: 1.9 -1.9 1.9"), "0 0 0; 0 0 0")
    )
    mixed = policy.collate([acting, *prompts[:40], far], [[]] * 42)
    found = policy.generate(mixed, [Sampling(max_new_tokens=64)] * 42, torch.Generator().manual_seed(0))
    assert len(found[0].token_ids) == LENGTH
    texts = [
        policy.text(one.token_ids, ids) for one, ids in zip(found[1:], [*prompts[:40], far], strict=True)
    ]
    assert texts[-1].startswith(world.UNSURE)
    told = [text.removeprefix(world.UNSURE) for text in texts[:-1]]
    errors = [
        max(abs(a - b) for a, b in zip(numbers(one), numbers(answer), strict=True))
        for one, (_, answer) in zip(told, pairs, strict=False)
        if world.SUCCESS not in (one, answer)
    ]
    assert len(errors) > 30
    assert sum(errors) / len(errors) < 0.02
    with pytest.raises(PolicyError, match="reads only prompts"):
        make().prompt_ids(pairs[0][0])


def numbers(text: str) -> list[float]:
    return [float(word) for word in text.partition("State: ")[2].split()]
