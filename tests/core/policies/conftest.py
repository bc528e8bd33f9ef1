"""Small policies and batches for the policy tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hub_models import FAMILIES
from policy_fakes import WORDS, chat, png

from distrl.configs.policy import policy_config
from distrl.core.policies import build_policy

if TYPE_CHECKING:
    from distrl.core.policies.base import Policy, PromptBatch

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def make_policy() -> Callable[..., Policy]:
    def make(seed: int = 0, words: Sequence[str] = WORDS, **options: object) -> Policy:
        sizes = {"d_model": 32, "num_heads": 2, "d_ff": 48, "num_layers": 2, "image_size": (40, 56)}
        return build_policy(policy_config(**{**sizes, "device": "cpu", **options}), words, seed)

    return make


@pytest.fixture
def make_batch() -> Callable[[Policy, Sequence[str]], PromptBatch]:
    def make(policy: Policy, goals: Sequence[str]) -> PromptBatch:
        images = [[policy.image(png(seed))] for seed in range(len(goals))]
        return policy.collate([policy.prompt_ids(chat(goal)) for goal in goals], images)

    return make


@pytest.fixture(scope="session", params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def model_dir(family: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model of the family, as the hub would give it."""
    directory: Path = tmp_path_factory.mktemp(family)
    FAMILIES[family](directory)
    return directory


@pytest.fixture(scope="session")
def make_hub(model_dir: Path) -> Callable[..., Policy]:
    def make(seed: int = 0, **options: object) -> Policy:
        given = {"kind": "hub", "model": str(model_dir), "device": "cpu", **options}
        return build_policy(policy_config(**given), [], seed)

    return make
