"""Rank 0's side of a learner of several ranks, and the others': every rank trains on its share of a batch.

Rank 0 cuts each batch into shares of whole trajectories, sends the others theirs together with what to do,
does the same with its own, and puts the answers together. The others wait for commands.

    prepare · learn · measure · values · fit_critic · clone    on a share each; answers are joined
    logprobs                                                   of the same steps, if weights are sharded
    gather · state · load                                      weights and optimisers, of all ranks together
    ping                                                       so that nobody waits for too long
    stop
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from distrl.core.errors import RankError
from distrl.learner.algorithms.base import Evaluation
from distrl.learner.algorithms.values import Values
from distrl.learner.batching import StepBatch, TrajectoryBatch
from distrl.learner.distributed.link import receive, send, translated
from distrl.learner.distributed.shares import join, split
from distrl.learner.trainer import Trainer

Watch = Callable[[RankError | None], None]
"""Raises if a rank is known to have ended; told the error by which its absence was noticed, if it was."""


def unwatched(error: RankError | None) -> None:
    """Nobody knows more than the error says: another host's launcher watches the ranks."""
    if error is not None:
        raise RankError(
            error.message, "See the logs of the other ranks; --resume goes on from the newest checkpoint."
        ) from error


class RankTeam:
    """All ranks as one `Team`.

    Args:
        trainer: This rank's, rank 0's.
        num_ranks: How many there are.
        timeout_s: How long a rank waits for another; a ping goes out in less.
        watch: Who knows when a rank ended.
    """

    def __init__(self, trainer: Trainer, num_ranks: int, timeout_s: float, watch: Watch = unwatched) -> None:
        self._trainer, self._num_ranks, self._watch = trainer, num_ranks, watch
        self._ping_s, self._last_command = timeout_s / 4, time.monotonic()

    def prepare(self, batch: TrajectoryBatch) -> None:
        """See `Team.prepare`."""
        if not self._trainer.algorithm.takes_notes:
            return
        found = self._on_shares("prepare", batch, {}, self._trainer.notes)
        batch.advantage_moments = found[0][1]["moments"]
        if found[0][1]["proximal"] is not None:
            whole = torch.zeros_like(batch.steps.behaviour_logprobs)
            for places, notes in found:
                at = torch.isin(batch.row, places.to(batch.row.device))
                whole[at] = notes["proximal"].to(whole.device, whole.dtype)
            batch.steps.proximal_logprobs = whole

    def learn(self, batch: TrajectoryBatch, lr: float) -> Evaluation | None:
        """See `Team.learn`."""
        found = self._on_shares("learn", batch, {"lr": lr}, lambda share: self._trainer.learn(share, lr))
        if found[0][1] is None:  # on all ranks alike
            return None
        return join(found, len(batch.ids))

    def measure(self, batch: TrajectoryBatch) -> Evaluation:
        """See `Team.measure`."""
        return join(self._on_shares("measure", batch, {}, self._trainer.measure), len(batch.ids))

    def values(self, batch: TrajectoryBatch) -> Values:
        """See `Team.values`."""
        found = self._on_shares("values", batch, {}, self._trainer.values)
        first = found[0][1]
        steps = first.baseline.new_zeros(len(batch.steps))
        whole = Values(steps, steps.clone(), steps.clone(), first.bootstrap.new_zeros(len(batch.ids)))
        for places, values in found:
            at = torch.isin(batch.row, places.to(batch.row.device))
            for name in ("logits", "taken", "baseline"):
                getattr(whole, name)[at] = getattr(values, name).to(steps.device)
            whole.bootstrap[places] = values.bootstrap.to(steps.device)
        return whole

    def logprobs(self, batch: StepBatch, weights: Mapping[str, Tensor] | None = None) -> Tensor:
        """See `Team.logprobs`. With sharded weights all ranks make the same passes, else this one alone."""
        if not self._trainer.is_sharded:
            return self._trainer.logprobs(batch, weights)
        with self._checked():
            for rank in range(1, self._num_ranks):
                self._command(rank, "logprobs", batch, is_lent=weights is not None)
            found = self._trainer.logprobs(batch, weights)
            for rank in range(1, self._num_ranks):
                receive(rank)
        return found

    def fit_critic(self, batch: TrajectoryBatch) -> float:
        """See `Team.fit_critic`."""
        shares = self._on_shares("fit_critic", batch, {}, self._trainer.fit_critic)
        return float(sum(loss for _, loss in shares))

    def clone(self, batch: StepBatch) -> float:
        """See `Team.clone`. Steps are dealt out one by one."""
        shares = []
        for rank in range(self._num_ranks):
            at = torch.arange(rank, len(batch), self._num_ranks)
            shares.append((len(at), batch[at if len(at) else torch.tensor([0])]))
        with self._checked():
            for rank, (count, share) in enumerate(shares[1:], start=1):
                self._command(rank, "clone", share, count=len(batch), is_idle=count == 0)
            loss: float = self._trainer.clone_share(shares[0][1], len(batch))
            return loss + sum(float(receive(rank)) for rank in range(1, self._num_ranks))

    def state_dict(self) -> dict[str, Any]:
        """See `Team.state_dict`."""
        with self._checked():
            self._tell_all("state")
            return self._trainer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Team.load_state_dict`; the networks' weights go to the other ranks as well."""
        with self._checked():
            self._tell_all("load")
            self._trainer.load_everywhere(state)

    def equalise(self) -> None:
        """Gives the other ranks the weights of this one."""
        with self._checked():
            self._tell_all("load")
            self._trainer.load_everywhere(None)

    @contextmanager
    def gathered(self, is_full: bool) -> Iterator[None]:
        """See `Team.gathered`."""
        with self._checked():
            if self._trainer.is_sharded:
                self._tell_all("gather", is_full=is_full)
            with self._trainer.gathered(is_full):
                yield

    def tend(self) -> None:
        """To be called now and then: raises if a rank ended, and lets the others know that this one lives."""
        self._watch(None)
        if time.monotonic() - self._last_command > self._ping_s:
            with self._checked():
                self._tell_all("ping")

    def stop(self) -> None:
        """Lets the other ranks end."""
        with self._checked():
            self._tell_all("stop")

    def _on_shares(
        self,
        name: str,
        batch: TrajectoryBatch,
        numbers: dict[str, float],
        mine: Callable[[TrajectoryBatch], Any],
    ) -> list[tuple[Tensor, Any]]:
        """The answers of all ranks that have a share, with the places of its trajectories."""
        places = split(batch.mask.sum(dim=1).tolist(), self._num_ranks)
        with self._checked():
            for rank in range(1, self._num_ranks):
                self._command(rank, name, batch.share(places[rank]), **numbers)
            answers = [mine(batch.share(places[0]))]
            answers += [receive(rank) for rank in range(1, self._num_ranks)]
        return [(at, answer) for at, answer in zip(places, answers, strict=True) if len(at)]

    def _tell_all(self, name: str, **numbers: Any) -> None:
        for rank in range(1, self._num_ranks):
            self._command(rank, name, None, **numbers)

    def _command(self, rank: int, name: str, share: Any, **numbers: Any) -> None:
        send({"name": name, "share": share, "numbers": numbers}, rank)
        self._last_command = time.monotonic()

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """Says of a rank that is gone what is known of its end."""
        try:
            with translated("a rank"):
                yield
        except RankError as error:
            self._watch(error)
            raise


def follow(trainer: Trainer) -> None:
    """Does what rank 0 says, until it says stop.

    Raises:
        RankError: Rank 0 is gone, or says nothing for longer than the job's timeout.
    """
    while True:
        command = receive(0)
        name, share, numbers = command["name"], command["share"], command["numbers"]
        if name == "stop":
            return
        with translated("a rank"):
            answer = _do(trainer, name, share, numbers)
        if share is not None:
            send(answer, 0)


def _do(trainer: Trainer, name: str, share: Any, numbers: dict[str, Any]) -> Any:
    """Carries a command out. Returns the answer to one that came with a share."""
    match name:
        case "prepare":
            return trainer.notes(share)
        case "learn":
            learnt = trainer.learn(share, numbers["lr"])
            return None if learnt is None else _light(learnt)
        case "measure":
            return _light(trainer.measure(share))
        case "values":
            return trainer.values(share)
        case "logprobs":
            trainer.logprobs_share(share, None, numbers["is_lent"])
        case "fit_critic":
            return trainer.fit_critic(share)
        case "clone":
            return trainer.clone_share(share, numbers["count"], numbers["is_idle"])
        case "state":
            trainer.state_dict()
        case "load":
            trainer.load_everywhere(None)
        case "gather":
            with trainer.gathered(numbers["is_full"]):
                pass
        case "ping":
            pass
        case _:
            raise AssertionError(f"no command {name!r}")
    return None


def _light(result: Evaluation) -> Evaluation:
    critic = None if result.critic_loss is None else result.critic_loss.detach()
    return replace(result, policy_loss=result.policy_loss.detach(), critic_loss=critic)
