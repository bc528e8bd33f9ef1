"""A small policy behind a real inference server."""

from collections.abc import Callable, Iterator

import pytest
from policy_fakes import WORDS

from distrl.configs.schema import Config
from distrl.core.sockets import Wire

SIZES = {"d_model": 16, "num_heads": 2, "d_ff": 16, "num_layers": 1, "image_size": [24, 40], "device": "cpu"}


@pytest.fixture
def wire() -> Iterator[Wire]:
    with Wire() as made:
        yield made


@pytest.fixture(scope="session")
def words() -> list[str]:
    return WORDS


@pytest.fixture(scope="session")
def make_config() -> Callable[..., Config]:
    def make(policy: dict[str, object] | None = None, **sections: object) -> Config:
        return Config.model_validate({"policy": {**SIZES, **(policy or {})}, **sections})

    return make
