"""A small policy behind a real inference server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from policy_fakes import WORDS

from distrl.configs.schema import Config, InferenceConfig
from distrl.core.sockets import Wire

if TYPE_CHECKING:
    from distrl.workers.inference.engine import Engine
    from distrl.workers.inference.server import InferenceServer

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


@pytest.fixture
def serve(wire: Wire) -> Iterator[Callable[..., InferenceServer]]:
    """Starts servers, which end with the test."""
    from distrl.workers.inference.server import InferenceServer

    with ExitStack() as stack:

        def start(
            engine: Engine,
            version: int = 3,
            endpoint: str = "tcp://127.0.0.1:*",
            max_wait_ms: float = 4.0,
            **options: object,
        ) -> InferenceServer:
            engine.version = version
            how = {"engine": {"kind": "hf", "max_wait_ms": max_wait_ms}, **options}
            server = InferenceServer(wire, endpoint, engine, InferenceConfig.model_validate(how), "a")
            stack.callback(server.close)
            server.start()
            return server

        yield start
