"""Words of demonstrations that others stand in for."""

from __future__ import annotations

import numpy as np
import pytest

from distrl.configs.policy import policy_config
from distrl.core.errors import ConfigError
from distrl.core.policies.tiny import TinyPolicy
from distrl.learner.episodes import StepData
from distrl.learner.warm_start import Renaming

GOAL = "step 3 last none Goal: write a note milk that says two litres at 17"
WORDS = ["write", "a", "note", "that", "says", "milk", "two", "litres", "at", "rye", "bread", "cut", "hedge"]


@pytest.fixture(scope="module")
def policy() -> TinyPolicy:
    return TinyPolicy(policy_config(kind="tiny"), WORDS, seed=0)


def step_of(policy: TinyPolicy, typed: str) -> StepData:
    action = (
        '"action_type": "TYPE", "touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]", '
        f'"typed_text": "{typed}"'
    )
    return StepData(
        prompt=tuple(policy.tokenizer.encode_prompt(GOAL)),
        images=("screen",),
        tokens=tuple(policy.completion_ids(action)),
        logprobs=(),
        temperature=1.0,
        outcome=0.0,
        penalty=0.0,
        invalid=False,
    )


def test_none_are_renamed_without_a_share(policy: TinyPolicy) -> None:
    step = step_of(policy, "Two litres")
    assert Renaming(policy.word_ids, 0.0, np.random.default_rng(0))(step) is step


@pytest.mark.parametrize("seed", range(20))
def test_a_word_has_the_same_stand_in_in_the_prompt_and_in_the_answer(policy: TinyPolicy, seed: int) -> None:
    step = step_of(policy, "Two litres")
    renamed = Renaming(policy.word_ids, 0.5, np.random.default_rng(seed))(step)
    other = dict(zip(step.prompt, renamed.prompt, strict=True))
    assert len(renamed.prompt) == len(step.prompt)
    assert renamed.tokens == tuple(other.get(token, token) for token in step.tokens)
    assert renamed.images == step.images


def test_words_of_goals_are_renamed_and_neither_numbers_nor_what_stands_around_them(
    policy: TinyPolicy,
) -> None:
    words = policy.tokenizer.vocabulary.words
    step = step_of(policy, "Two litres")
    changed: set[int] = set()
    for seed in range(50):
        renamed = Renaming(policy.word_ids, 1.0, np.random.default_rng(seed))(step)
        changed |= {old for old, new in zip(step.prompt, renamed.prompt, strict=True) if old != new}
    assert {words["note"], words["milk"], words["litres"], words["at"]} <= changed
    assert not changed & {words["step"], words["3"], words["last"], words["goal"], words["17"]}
    assert changed <= set(policy.word_ids)


def test_the_share_is_that_of_the_words(policy: TinyPolicy) -> None:
    step = step_of(policy, "Two litres")
    renaming = Renaming(policy.word_ids, 0.25, np.random.default_rng(0))
    places = [at for at, token in enumerate(step.prompt) if token in set(policy.word_ids)]
    count = sum(
        renamed.prompt[at] != step.prompt[at]
        for renamed in (renaming(step) for _ in range(2000))
        for at in places
    )
    expected = 0.25 * (1 - 1 / len(policy.word_ids))  # a word may stand in for itself
    assert count / (2000 * len(places)) == pytest.approx(expected, abs=0.02)


def test_a_policy_whose_words_have_no_tokens_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rename=0\.2 needs a policy with a token for each word"):
        Renaming((), 0.2, np.random.default_rng(0))
    Renaming((), 0.0, np.random.default_rng(0))
