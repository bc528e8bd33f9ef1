"""The policy `reader`: answers by pointers, their probabilities, and words that it has never seen."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from distrl.configs.policy import ReaderConfig
from distrl.core.errors import CheckpointError, ContextFull, PolicyError
from distrl.core.policies import build_policy, checkpoint_words, reader
from distrl.core.policies.base import PromptBatch
from distrl.core.policies.reader import ReaderPolicy
from distrl.core.policies.reader_prompt import MAX_LISTED, read, word_vector
from distrl.core.policies.tokenizer import token_names
from distrl.core.types import ChatMessage, ImagePart, Sampling, TextPart

SMALL = ReaderConfig(d_model=16, num_layers=1, num_heads=2, d_ff=32, device="cpu")
LINES = """Goal: "Type \\"oat milk\\" for Zoë, then 7:15"
Step 3, app notes, the last action changed nothing
Last: tap ViewGroup ("Milk shake") #row_shake
Last: type "abc"
0 RecyclerView [scrollable] at 0 0 1000 900
1 ViewGroup ("Zoë") #row_zoe [clickable] in 0 at 0 100 1000 200
2 EditText "Total 9" #query [editable,focused] in 1 at 0 100 500 200
3 SeekBar at 0 500 1000 600"""
PROMPTS = [LINES, 'Goal: "x"\nStep 1\nThis screen lists no elements.', LINES.replace("7:15", "noon today")]


def make(words: tuple[str, ...] = ("red", "blue"), seed: int = 0) -> ReaderPolicy:
    policy = build_policy(SMALL, words, seed)
    assert isinstance(policy, ReaderPolicy)
    return policy


def ids_of(policy: ReaderPolicy, text: str) -> list[int]:
    return policy.prompt_ids([ChatMessage(role="user", parts=(TextPart(text=text),))])


def batch_of(policy: ReaderPolicy, *texts: str) -> PromptBatch:
    return policy.collate([ids_of(policy, text) for text in texts], [[]] * len(texts))


def scores_of(policy: ReaderPolicy, text: str, answers: list[list[int]]) -> list[float]:
    """log π of each answer to one prompt."""
    length = max(map(len, answers))
    tokens = torch.tensor([answer + [0] * (length - len(answer)) for answer in answers])
    mask = torch.tensor([[n < len(answer) for n in range(length)] for answer in answers])
    found = policy.score(batch_of(policy, *[text] * len(answers)), tokens, mask, torch.ones(len(answers)))
    return found.logprobs.sum(1).tolist()


@pytest.mark.parametrize(
    "text",
    [
        *("tap 3", "double_tap 0", "long_press 1", "swipe up 0", "swipe left", "drag 1 2"),
        *("slide 3 70", "slide 3 15"),  # tenths; a number of the goal
        *("back", "home", "enter", "wait", "complete", "impossible"),
        *('type "oat milk"', 'type "Zoë"', 'type "7:15"', 'type "\\"oat milk\\" for"'),  # of the goal
        *('answer "Total 9"', 'open_app "blue"'),  # of the screen, of the vocabulary
    ],
)
def test_answers_become_tokens_and_texts_again(text: str) -> None:
    policy = make()
    prompt = ids_of(policy, LINES)
    ids = policy.completion_ids(text, prompt)
    assert policy.text(ids, prompt) == text
    assert [token in policy.end_ids for token in ids] == [False] * (len(ids) - 1) + [True]
    policy.verify([*prompt, *ids], [])


@pytest.mark.parametrize(
    "text",
    [
        *("tap 4", "tap", "swipe 1", "drag 1", "jump 1", "tap 1 x", "back 1", f"tap {'9' * 5000}"),
        *('type "Zo"', 'type "milk for Zoë"x', 'type ""', "type Zoë", f"type {'[' * 5000}"),
    ],
)
def test_what_cannot_be_written_is_refused(text: str) -> None:
    policy = make()
    with pytest.raises(PolicyError, match="cannot write"):
        policy.completion_ids(text, ids_of(policy, LINES))


def test_prompts_of_other_agents_are_refused() -> None:
    policy = make()
    with pytest.raises(PolicyError, match="agent 'elements'"):
        ids_of(policy, "step 1 Goal: turn on wi-fi")
    with pytest.raises(PolicyError, match="agent 'elements'"):
        policy.prompt_ids(
            [ChatMessage(role="user", parts=(TextPart(text='Goal: "x"'), ImagePart(digest="d")))]
        )
    with pytest.raises(ContextFull, match="max_prompt_tokens"):
        ids_of(policy, 'Goal: "' + "é" * 40_000)


def test_the_probabilities_of_all_answers_add_up_to_one() -> None:
    """Every answer that can be written to a prompt, by going through all tokens that may follow."""
    policy = make(words=("red",))
    readings = policy._stack(policy._read(batch_of(policy, LINES)))
    with torch.no_grad():
        states, _ = policy._encode(readings)
        answers, unfinished = [], [[]]
        while unfinished:
            written = unfinished.pop()
            before = policy._before(torch.tensor([written], dtype=torch.int64))
            _, allowed = policy._logits(states, readings, before)
            for token in allowed[0, -1].nonzero().flatten().tolist():
                (answers if token in policy.end_ids else unfinished).append([*written, token])
        total = sum(np.exp(scores_of(policy, LINES, answers)))
    assert len({tuple(answer) for answer in answers}) == len(answers) > 100
    assert total == pytest.approx(1.0, abs=1e-4)
    assert max(map(len, answers)) == 3


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_what_is_sampled_is_scored_alike_in_any_batch(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_GROUP", 7)
    policy = make()
    texts = PROMPTS * 10
    batch = batch_of(policy, *texts)
    sampling = [Sampling(temperature=temperature, max_new_tokens=8)] * len(texts)
    found = policy.generate(batch, sampling, torch.Generator().manual_seed(0))
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(1))
    length = max(len(one.token_ids) for one in found)
    tokens = torch.tensor([one.token_ids + [0] * (length - len(one.token_ids)) for one in found])
    mask = torch.tensor([[n < len(one.token_ids) for n in range(length)] for one in found])
    scored = policy.score(batch[order], tokens[order], mask[order], torch.full((len(texts),), temperature))
    for place, row in enumerate(order.tolist()):
        count = len(found[row].token_ids)
        assert scored.logprobs[place, :count].tolist() == pytest.approx(found[row].logprobs, abs=1e-4)
    assert (scored.entropy[mask[order]] > -1e-6).all()
    assert not scored.entropy[~mask[order]].any()
    assert len({tuple(one.token_ids) for one in found}) > (temperature > 0) * 10
    for text, one in zip(texts, found, strict=True):
        assert policy.completion_ids(policy.text(one.token_ids, ids_of(policy, text)), ids_of(policy, text))


def test_a_list_of_a_hundred_elements_is_read_to_its_end() -> None:
    policy = make()
    lines = "\n".join(f'{n} View "day {n}" at {n} 0 {n + 1} 9' for n in range(300))
    prompt = ids_of(policy, f'Goal: "x"\nStep 1\n{lines}')
    assert policy.text(policy.completion_ids("tap 99", prompt), prompt) == "tap 99"
    assert read(bytes(prompt)).labels == tuple(f"day {n}" for n in range(MAX_LISTED))


def test_words_match_themselves_and_those_that_are_alike() -> None:
    def likeness(one: str, other: str) -> float:
        return float(word_vector(one)[1] @ word_vector(other)[1])

    assert likeness("qwzzy", "qwzzy") == pytest.approx(1.0)
    assert likeness("ringing", "ring") > 0.4 > likeness("ringing", "seventy")
    reading = read(LINES.encode())
    words = [reading.goal[start:end] for start, end in reading.pieces]
    assert words == ["Type", '"', "oat", "milk", '"', "for", "Zoë", ",", "then", "7", ":", "15"]
    matched = {(words[g], i - 4) for g, i in zip(*np.nonzero(reading.match > 0.9), strict=True)}
    assert matched == {("milk", -3), ("Zoë", 1)}  # an earlier action, a row


def test_places_of_the_goal_and_of_the_list_are_related_by_their_order() -> None:
    policy = make()
    readings = policy._stack(policy._read(batch_of(policy, LINES)))
    after, before = policy._relations(readings)[0, 3:5]
    wide, place = readings.goal_words.shape[1], readings.place[0]
    assert after[2, 1] == before[1, 2] == pytest.approx(math.exp(-1 / 4))  # the goal's first two words
    assert after[1, 2] == before[2, 1] == after[wide + 1, wide] == after[1, 1] == 0
    # The first element and the last action: there could be three actions between them.
    assert after[place[wide + 5], place[wide + 1]] == pytest.approx(math.exp(-4 / 4))


def test_an_apostrophe_is_no_quotation_mark() -> None:
    quoted = read(b'Goal: "I\'d like \\"oat\\" now"\nStep 1').goal_features[:, 2]
    assert quoted.tolist() == [0, 0, 0, 0, 1, 1, 0, 0]


def test_an_earlier_action_has_the_class_and_the_id_of_what_it_touched() -> None:
    found = read(LINES.encode())
    touched = [found.words[number - 1] for number in found.meta[1] if number]
    assert touched == ["action tap", "class ViewGroup", "id row", "id shake"]


def test_names_and_numbers_share_one_learned_vector() -> None:
    policy = make(words=("Type", "then", "7", ":"))  # "for" is a common word
    batch, numbered = batch_of(policy, LINES), dict[str, int]()
    for word in read(LINES.encode()).words:
        numbered[word] = int(policy._stack(policy._read(batch)).table[len(numbered) + 1])
    shared = numbered["zoë"]
    assert numbered["milk"] == numbered["7"] == numbered["15"] == shared
    own = [numbered[word] for word in ("type", "for", "then", ":", "class EditText", "id query")]
    assert len({*own, shared}) == len(own) + 1


@pytest.mark.parametrize(
    "line",
    [
        *('Goal: "\\x"', 'Last: tap "\\u12"', '4 View "\\x" at 0 0 1 1'),  # not JSON
        *(f"Step {'9' * 5000}", f"4 View in {'9' * 5000} at 0 0 1 1", f"4 View at 0 0 {'9' * 100} 1"),
    ],
)
def test_a_malformed_line_is_skipped(line: str) -> None:
    found, plain = (read(text.encode()) for text in (f"{LINES}\n{line}", LINES))
    assert (found.goal, found.step, found.labels) == (plain.goal, plain.step, plain.labels)


def test_bytes_that_are_no_prompt_are_read_as_an_empty_one() -> None:
    policy = make()
    batch = policy.collate([[255, 0, 34, 1000], ids_of(policy, LINES)], [[], []])
    found = policy.generate(batch, [Sampling()] * 2, torch.Generator().manual_seed(0))
    kinds = {"swipe", "back", "home", "enter", "wait", "complete", "impossible"}
    assert policy.text(found[0].token_ids, [255]).split()[0] in kinds


def test_in_cloning_a_new_word_may_be_read_as_a_known_one() -> None:
    policy = make()
    readings = [read(LINES.encode())]
    plain = policy._stack(readings).table
    torch.manual_seed(0)
    with policy.augmented():
        found = policy._stack(readings).table
    is_changed = found != plain
    assert 0 < int(is_changed.sum()) < int((plain == 1).sum())
    assert set(plain[is_changed].tolist()) == {1}, "the vector that new words share"
    assert torch.equal(policy._stack(readings).table, plain)


def test_a_checkpoint_has_its_own_words(tmp_path: Path) -> None:
    policy, other = make(), make(seed=1)
    policy.save(tmp_path)
    assert checkpoint_words(tmp_path) == ["blue", "red"]
    other.load(tmp_path)
    names, prompt = token_names(tmp_path / "tokenizer.json"), ids_of(policy, LINES)
    assert names is not None
    answers = [
        policy.completion_ids(answer, prompt) for answer in ("slide 3 70", 'type "oat"', 'answer "red"')
    ]
    assert [[names(token) for token in answer] for answer in answers] == [
        ["slide", "element 3", "70%"],
        ["type", "from word 2", "to word 2"],
        ["answer", "red"],
    ]
    answer = [policy.completion_ids("tap 1", ids_of(policy, LINES))]
    assert scores_of(other, LINES, answer) == scores_of(policy, LINES, answer)
    with pytest.raises(CheckpointError, match="vocabulary"):
        make(words=("green",)).load(tmp_path)


def test_states_of_a_prompt_are_the_same_in_any_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_GROUP", 2)
    policy = make()
    states = policy.states(batch_of(policy, *PROMPTS))
    scored = policy.score(
        batch_of(policy, *PROMPTS), torch.ones(3, 1).long(), torch.ones(3, 1) > 0, torch.ones(3)
    )
    for row, text in enumerate(PROMPTS):
        alone = policy.states(batch_of(policy, text))
        for found in (states, scored.states):
            assert found.mask[row].sum() == alone.mask.sum()
            assert torch.allclose(found.hidden[row][found.mask[row]], alone.hidden[0], atol=1e-5)


def test_it_learns_to_find_and_to_type_words_that_it_never_saw() -> None:
    rng = np.random.default_rng(0)

    def draw(count: int) -> list[tuple[str, str]]:
        """Prompts with names of random letters, and their answers: a tap on the name, or the name typed."""
        found = []
        for number in range(count):
            names = ["".join(rng.choice([*"abdeiklmnorstu"], 5)) for _ in range(4)]
            lines = "\n".join(f'{n} TextView "{name}" at 0 {n}00 900 {n}90' for n, name in enumerate(names))
            place = int(rng.integers(4))
            name, is_tap = names[place], number % 2
            goal, answer = (
                (f"Call {name} now", f"tap {place}") if is_tap else (f"Write to {name}", f'type "{name}"')
            )
            found.append((f'Goal: "{goal}"\nStep 1\n{lines}', answer))
        return found

    policy = make()
    optimizer = torch.optim.Adam(policy.parameters(), 0.01)
    for _ in range(80):
        pairs = draw(16)
        ids = [ids_of(policy, text) for text, _ in pairs]
        answers = [policy.completion_ids(pair[1], prompt) for pair, prompt in zip(pairs, ids, strict=True)]
        tokens = torch.tensor([answer + [0] * (3 - len(answer)) for answer in answers])
        scored = policy.score(policy.collate(ids, [[]] * 16), tokens, tokens > 0, torch.ones(16))
        optimizer.zero_grad()
        (-scored.logprobs.sum() / 16).backward()
        optimizer.step()
    pairs = draw(40)
    batch = batch_of(policy, *[text for text, _ in pairs])
    found = policy.generate(batch, [Sampling(temperature=0.0)] * len(pairs))
    texts = [
        policy.text(one.token_ids, ids_of(policy, pair[0])) for one, pair in zip(found, pairs, strict=True)
    ]
    right = [text == pair[1] for text, pair in zip(texts, pairs, strict=True)]
    assert sum(right) >= 38
