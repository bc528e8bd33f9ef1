"""A learner of several ranks: rank 0 sends every rank its share of a batch and joins their answers.

    rank 0 ── command, share of a batch ──► rank 1 … N−1 ── answer ──► rank 0
             ◄── sums over gradients, statistics, sharded weights: collectives among all ──►

    before_update · step · measure · values · fit_critic · clone    on a share each; answers are joined
    logprobs                                                        of the same steps, if weights are sharded
    gather · state · load                                           weights and optimisers, by all ranks
    ping                                                            keeps the others from timing out
    stop

Screenshots travel as they are stored, not as pixels; a rank decodes those that it has not kept. Messages
between ranks are written by `torch.save` and read with `weights_only`: a message makes tensors and
the records of `KINDS`, and runs no code.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from distrl.configs.learner import LearnerConfig
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, NotStored, PolicyError, RankError
from distrl.core.model_points import check_agent_points
from distrl.core.policies import build_critic, make_policy, resolve_device
from distrl.core.policies.base import Pictures, Policy, PromptBatch
from distrl.core.policies.hub import HubPolicy
from distrl.core.policies.images import IMAGES_SHARE, ImageCache, memory_share
from distrl.learner.algorithms import build_algorithm
from distrl.learner.algorithms.base import Loss
from distrl.learner.batching import StepBatch, TrajectoryBatch, Whole
from distrl.learner.fsdp import FsdpPolicy
from distrl.learner.losses import Moments
from distrl.learner.off_policy import StepStats
from distrl.learner.ranks import RANK_TIMEOUT_S, Place, Watch, num_ranks, open_job, translated, unwatched
from distrl.learner.sharding import ShardedPolicy
from distrl.learner.train_step import TrainStep, merge
from distrl.learner.zero import ZeroPolicy

T = TypeVar("T")
_log = logging.getLogger(__name__)

# ---- messages ----

KINDS: list[Any] = [Loss, Moments, Pictures, PromptBatch, StepBatch, StepStats, TrajectoryBatch, Whole]
"""The records that are made from bytes; others are refused."""


def to_bytes(value: Any) -> bytes:
    """`value`: numbers, texts, None, lists, tuples, maps, tensors and records of `KINDS`.

    A tensor that occurs several times, such as a picture that several steps show, is sent once and is one
    tensor on the other side too.
    """
    data = io.BytesIO()
    torch.save(value, data)
    return data.getvalue()


def from_bytes(data: bytes | bytearray) -> Any:
    """What `to_bytes` was given, on the CPU."""
    try:
        with torch.serialization.safe_globals(KINDS):
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise PolicyError(f"A message between ranks cannot be read: {error}.") from error


def send(value: Any, rank: int) -> None:
    """Sends a message to `rank`; see `to_bytes` for what it may be."""
    data = torch.frombuffer(bytearray(to_bytes(value)), dtype=torch.uint8)
    with translated(f"rank {rank}"):
        distributed.send(torch.tensor([len(data)]), rank)
        distributed.send(data, rank)


def receive(rank: int) -> Any:
    """The next message of `rank`; `RankError` if it takes longer than the job's timeout."""
    size = torch.zeros(1, dtype=torch.int64)
    with translated(f"rank {rank}"):
        distributed.recv(size, rank)
        data = bytearray(int(size))
        distributed.recv(torch.frombuffer(data, dtype=torch.uint8), rank)
    return from_bytes(data)


# ---- pictures in messages ----


def with_pictures(share: Any, change: Callable[[Pictures], Pictures]) -> Any:
    """A batch of steps or trajectories with other pictures; anything else as it is."""
    match share:
        case PromptBatch(images=Pictures() as images) if images.digests is not None:
            return replace(share, images=change(images))
        case StepBatch():
            return replace(share, prompts=with_pictures(share.prompts, change))
        case TrajectoryBatch():
            names = ("steps", "final_prompts", "demonstrated")
            return replace(share, **{n: with_pictures(getattr(share, n), change) for n in names})
    return share


def encoded(pictures: Pictures, load: Callable[[Sequence[str]], Mapping[str, bytes]]) -> Pictures:
    """Pictures with the bytes that they were decoded from, [n] uint8, in place of pixels.

    Those of a trajectory that has left the store meanwhile stay pixels, and so do features.
    """
    digests = pictures.digests
    assert digests is not None
    if not all(picture.dtype == torch.uint8 for picture in pictures.flat):
        return pictures
    try:
        data = load([digest for row in digests for digest in row])
    except NotStored:
        return pictures
    sent = {digest: torch.frombuffer(bytearray(some), dtype=torch.uint8) for digest, some in data.items()}
    return Pictures([[sent[digest] for digest in row] for row in digests], digests)


def decoded(pictures: Pictures, images: ImageCache) -> Pictures:
    """What `encoded` was given."""
    digests, flat = pictures.digests, pictures.flat
    if digests is None or not flat or flat[0].dtype != torch.uint8 or flat[0].dim() > 1:
        return pictures
    names = [digest for row in digests for digest in row]
    data = {digest: bytes(some.numpy()) for digest, some in zip(names, flat, strict=True)}
    found = images.get(names, load=lambda missing: {digest: data[digest] for digest in missing})
    return Pictures([[found[digest] for digest in row] for row in digests], digests)


# ---- shares of a batch ----


def split(lengths: Sequence[int], num_ranks: int) -> list[Tensor]:
    """The places of each rank's trajectories, ascending, [b] int64; about equally many steps for each.

    The longest first, each to the rank that has fewest. With fewer trajectories than ranks, some have none.
    """
    places: list[list[int]] = [[] for _ in range(num_ranks)]
    loads = [0] * num_ranks
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True):
        rank = loads.index(min(loads))
        places[rank].append(index)
        loads[rank] += lengths[index]
    return [torch.tensor(sorted(some), dtype=torch.int64) for some in places]


# ---- rank 0 ----


class RankGroup(TrainStep):
    """The `TrainStep` of rank 0, which makes the other ranks of the job take part."""

    def __init__(self, *own: Any, num_ranks: int, watch: Watch = unwatched) -> None:
        super().__init__(*own)
        self._num_ranks, self._watch = num_ranks, watch
        self._ping_s, self._last_command = RANK_TIMEOUT_S / 4, time.monotonic()

    def before_update(self, batch: TrajectoryBatch) -> None:
        found = self._on_shares("before_update", batch)
        batch.advantage_moments = found[0][1]["moments"]
        for name in ("proximal_logprobs", "reference_logprobs"):
            if found[0][1][name] is not None:
                pieces = [(places, stored[name]) for places, stored in found]
                setattr(batch.steps, name, _by_step(batch, pieces))

    def step(self, batch: TrajectoryBatch, lr: float) -> Loss | None:
        found = self._on_shares("step", batch, lr=lr)
        if found[0][1] is None:  # on all ranks alike
            return None
        return merge(found, len(batch.ids), are_shares=True)

    def measure(self, batch: TrajectoryBatch) -> Loss:
        return merge(self._on_shares("measure", batch), len(batch.ids), are_shares=True)

    def values(self, batch: TrajectoryBatch) -> tuple[Tensor, Tensor]:
        found = self._on_shares("values", batch)
        bootstrap = found[0][1][1].new_zeros(len(batch.ids))
        for places, (_, after) in found:
            bootstrap[places] = after.to(bootstrap.device)
        return _by_step(batch, [(places, values) for places, (values, _) in found]), bootstrap

    def fit_critic(self, batch: TrajectoryBatch) -> float:
        return float(sum(loss for _, loss in self._on_shares("fit_critic", batch)))

    def clone(self, batch: StepBatch, count: int | None = None, is_idle: bool = False) -> float:
        """See `TrainStep.clone`. Steps are dealt out one by one."""
        shares = []
        for rank in range(self._num_ranks):
            at = torch.arange(rank, len(batch), self._num_ranks)
            shares.append((len(at), batch[at if len(at) else torch.tensor([0])]))
        with self._checked():
            for rank, (size, share) in enumerate(shares[1:], start=1):
                self._command(rank, "clone", share, count=len(batch), is_idle=size == 0)
            loss = super().clone(shares[0][1], len(batch))
            return loss + sum(float(receive(rank)) for rank in range(1, self._num_ranks))

    def logprobs(
        self, batch: StepBatch, weights: Mapping[str, Tensor] | None = None, is_lent: bool | None = None
    ) -> Tensor:
        """See `TrainStep.logprobs`. Sharded weights take the same passes on all ranks."""
        if not self.is_sharded:
            return super().logprobs(batch, weights)
        with self._checked():
            for rank in range(1, self._num_ranks):
                self._command(rank, "logprobs", batch, is_lent=weights is not None)
            found = super().logprobs(batch, weights)
            for rank in range(1, self._num_ranks):
                receive(rank)
        return found

    def optimiser_states(self) -> dict[str, Any]:
        return self._together("state", super().optimiser_states)

    def load_optimisers(self, states: Mapping[str, Any]) -> None:
        """See `TrainStep.load_optimisers`; the networks' weights go to the other ranks as well, or alone."""
        self._together("load", lambda: load_everywhere(self, states))

    @contextmanager
    def gathered(self) -> Iterator[None]:
        with self._checked():
            for rank in range(1, self._num_ranks if self.is_sharded else 1):
                self._command(rank, "gather", None)
            with super().gathered():
                yield

    def poll(self) -> None:
        """See `TrainStep.poll`; keeps the other ranks from timing out."""
        self._watch(None)
        if time.monotonic() - self._last_command > self._ping_s:
            self._together("ping", lambda: None)

    def stop(self) -> None:
        """Lets the other ranks end."""
        self._together("stop", lambda: None)

    def _on_shares(self, name: str, batch: TrajectoryBatch, **numbers: float) -> list[tuple[Tensor, Any]]:
        """The answers of all ranks that have a share, with the places of its trajectories."""
        places = split(batch.mask.sum(dim=1).tolist(), self._num_ranks)
        with self._checked():
            for rank in range(1, self._num_ranks):
                self._command(rank, name, batch.share(places[rank]), **numbers)
            answers = [carry_out(super(), name, batch.share(places[0]), numbers)]
            answers += [receive(rank) for rank in range(1, self._num_ranks)]
        return [(at, answer) for at, answer in zip(places, answers, strict=True) if len(at)]

    def _together(self, name: str, own: Callable[[], T]) -> T:
        """What `own` returns, rank 0's part in a command to all ranks."""
        with self._checked():
            for rank in range(1, self._num_ranks):
                self._command(rank, name, None)
            return own()

    def _command(self, rank: int, name: str, share: Any, **numbers: Any) -> None:
        if self.load_images is not None:
            share = with_pictures(share, partial(encoded, load=self.load_images))
        send({"name": name, "share": share, "numbers": numbers}, rank)
        self._last_command = time.monotonic()

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Adds to the error about a lost rank what is known of its end."""
        try:
            with translated("a rank"):
                yield
        except RankError as error:
            self._watch(error)
            raise


def _by_step(batch: TrajectoryBatch, pieces: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """[N, …] what shares have for their steps; each comes with the places of its trajectories."""
    first = pieces[0][1]
    whole = first.new_zeros(len(batch.row), *first.shape[1:]).to(batch.row.device)
    for places, piece in pieces:
        whole[torch.isin(batch.row, places.to(batch.row.device))] = piece.to(whole.device)
    return whole


# ---- the other ranks ----


def follow(train_step: TrainStep) -> None:
    """Carries out the commands of rank 0 until it sends "stop"."""
    share_of_one = memory_share(IMAGES_SHARE / num_ranks())
    decode = partial(decoded, images=ImageCache(train_step.policy.image, max_bytes=share_of_one))
    while True:
        command = receive(0)
        name, numbers = command["name"], command["numbers"]
        share = with_pictures(command["share"], decode)
        if name == "stop":
            return
        with translated("a rank"):
            answer = carry_out(train_step, name, share, numbers)
        if share is not None:
            send(answer, 0)


def carry_out(train_step: Any, name: str, share: Any, numbers: dict[str, Any]) -> Any:
    """Carries out a command on a rank's own `TrainStep`. Returns the answer to one that has a share."""
    match name:
        case "before_update":
            train_step.before_update(share)
            steps = share.steps
            return {
                "moments": share.advantage_moments,
                "proximal_logprobs": steps.proximal_logprobs,
                "reference_logprobs": steps.reference_logprobs,
            }
        case "step" | "measure":
            result = getattr(train_step, name)(share, **numbers)
            if result is None:
                return None
            critic = None if result.critic_loss is None else result.critic_loss.detach()
            return replace(result, policy_loss=result.policy_loss.detach(), critic_loss=critic)
        case "values" | "fit_critic" | "clone":
            return getattr(train_step, name)(share, **numbers)
        case "logprobs":
            train_step.logprobs(share, None, **numbers)
        case "state":
            train_step.optimiser_states()
        case "load":
            load_everywhere(train_step, {})
        case "gather":
            with train_step.gathered():
                pass
        case _:
            assert name == "ping", f"no command {name!r}"
    return None


def load_everywhere(train_step: TrainStep, states: Mapping[str, Any]) -> None:
    """Every rank gets rank 0's weights, and its optimisers' `states` if it has any. All must call it.

    Engines that shard take the policy's moments, and weights that they shard, from rank 0 themselves.
    """
    sharded = train_step.sharded
    assert sharded is None or not sharded.is_started, "weights are loaded before the first update"
    with torch.no_grad():
        for module in (train_step.critic, *([] if train_step.is_sharded else [train_step.policy])):
            for tensor in (*module.parameters(), *module.buffers()):
                whole = tensor.detach().contiguous()
                distributed.broadcast(whole, 0)
                tensor.copy_(whole)
    if distributed.get_rank() > 0:
        states = receive(0)
    else:
        states = {name: states[name] for name in ("actor", "value", "cloner") if name in states}
        others = {
            name: state if sharded is None or name == "value" else _without_tensors(state)
            for name, state in states.items()
        }
        for rank in range(1, distributed.get_world_size()):
            send(others, rank)
    if states:
        TrainStep.load_optimisers(train_step, states)


def _without_tensors(state: Mapping[str, Any]) -> dict[str, Any]:
    """An optimiser's state with None for all tensors but the counts of steps."""
    names = {
        index: {name: value if name == "step" else None for name, value in own.items()}
        for index, own in state["state"].items()
    }
    return {**state, "state": names}


# ---- putting it together ----


def sharded_by(config: LearnerConfig, policy: Policy) -> ShardedPolicy | None:
    """The policy under the configured engine, None for one that keeps all of it on each rank."""
    engines = {"deepspeed": ZeroPolicy, "fsdp": FsdpPolicy}
    return engines[config.engine](policy, config) if config.engine in engines else None


@contextlib.contextmanager
def open_train_step(
    config: Config, words: Sequence[str], place: Place | None = None, watch: Watch = unwatched
) -> Iterator[TrainStep]:
    """The networks of one process, or of one rank that has met the others; for rank 0 those of the group."""
    learner = config.learner
    if place is not None and place.size > 1:  # the configuration knows only of `learner.num_processes`
        has_q = getattr(learner.algorithm, "critic", None) == "q"
        for what, is_on in (
            ("world.model=learned", config.world.model == "learned"),
            ("learner.algorithm.critic 'q' with sharded weights", has_q and learner.zero_stage == 3),
        ):
            if is_on:
                raise ConfigError(f"{what} is trained by one rank, not {place.size}.", "Start one rank.")
    with contextlib.ExitStack() as stack:
        if place is None and learner.engine != "torch":  # the others want a job even of one
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="distrl-ranks-"))
            place = Place(0, 1, 0, f"file://{folder}/meeting")
        if place is not None:
            stack.enter_context(open_job(place, RANK_TIMEOUT_S))
        own = config.chat_policy.model_copy(
            update={"device": learner.device}
        )  # of weights, and of dtype "auto"
        device = resolve_device(learner.device)
        is_sharded = learner.zero_stage == 3
        is_bare = is_sharded and place is not None and place.rank > 0 and own.kind == "hub"
        policy = make_policy(own, words, config.seed, **({"has_weights": False} if is_bare else {}))
        check_agent_points(config.agent, policy)
        if not is_sharded:  # else one layer after the other is brought to the device
            policy.to(device)
        if learner.compile:
            assert isinstance(policy, HubPolicy)
            policy.compile_layers()
        algorithm = build_algorithm(learner)
        critic = build_critic(policy, config.seed, algorithm.draws, config.chat_policy.critic, device)
        parts = (policy, critic, algorithm, learner, sharded_by(learner, policy))
        if place is None or place.size == 1 or place.rank > 0:
            yield TrainStep(*parts)
            return
        group = RankGroup(*parts, num_ranks=place.size, watch=watch)
        group.load_optimisers({})
        _log.info("a learner of %d ranks", place.size)
        yield group
        group.stop()


def follow_learner(config: Config, words: Sequence[str], place: Place) -> None:
    """Runs a rank other than 0: carries out the commands of rank 0 until the end."""
    torch.set_num_threads(config.learner.threads)
    torch.manual_seed(config.seed + place.rank)
    with open_train_step(config, words, place) as train_step:
        _log.info("rank %d of %d, process %d", place.rank, place.size, os.getpid())
        follow(train_step)
