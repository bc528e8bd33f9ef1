"""The suites of Meta-World: which tasks, seeds and sentences are in which split."""

from __future__ import annotations

from collections import Counter
from importlib import import_module

import pytest

from distrl.evaluator.suites import load_suite
from distrl.evaluator.suites.metaworld import COUNTS, ML45_UNSEEN, TEN, TEN_UNSEEN, sentences, vocabulary
from distrl.workers.envs.metaworld import load


@pytest.mark.parametrize(("suite", "num_trained"), [("metaworld", 45), ("metaworld_ten", 10)])
def test_no_seed_and_no_sentence_of_training_is_measured_on(suite: str, num_trained: int) -> None:
    tasks = load_suite(suite)
    assert len({task.id for task in tasks}) == len(tasks)
    assert Counter(task.split for task in tasks) == {
        split: count * (5 if split == "unseen_template" else num_trained) for split, count in COUNTS.items()
    }
    trained = [task for task in tasks if task.split == "train"]
    measured = [task for task in tasks if task.split != "train"]
    assert not {task.seed for task in trained} & {task.seed for task in measured}
    assert not {task.goal for task in trained} & {task.goal for task in measured}
    unseen = {task.template for task in tasks if task.split == "unseen_template"}
    assert len(unseen) == 5
    assert not unseen & {task.template for task in trained}


def test_every_task_has_several_sentences_and_no_two_tasks_share_one() -> None:
    assert len(sentences()) == 50
    assert all(len(trained) >= 3 and measured for trained, measured in sentences().values())
    texts = [text for both in sentences().values() for among in both for text in among]
    assert len(set(texts)) == len(texts)
    assert {*TEN, *TEN_UNSEEN, *ML45_UNSEEN} <= set(sentences())


def test_the_words_are_those_of_training() -> None:
    words = set(vocabulary())
    assert {"drawer", "faucet"} <= words
    assert "safe" not in words, "it is in a measured sentence only"
    assert all(word == word.lower() for word in words)


@pytest.mark.needs("metaworld")
def test_they_are_the_tasks_of_the_package_and_those_that_ml45_holds_out() -> None:
    load()  # before anything imports mujoco
    names = import_module("metaworld.env_dict")
    assert {f"{name}-v3" for name in sentences()} == set(names.ALL_V3_ENVIRONMENTS)
    assert {f"{name}-v3" for name in ML45_UNSEEN} == set(names.ML45_V3["test"])
