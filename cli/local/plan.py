"""How a run on one machine uses its GPUs: what `auto` stands for, and what limits the run. An estimate.

    learner     r ranks of a GPU each: train on as many actions per second as their updates take
    servers     s inference servers of t GPUs each: answer slots / s requests at a time
    With `local.gpus: colocated` one of each takes turns: vLLM has what the learner does not keep.
    devices     slots that act in turn with the servers, if `simulate.latency` says how long they take

Of all r and s with r + s · t GPUs those are taken with which the slower of learner and servers is fastest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from distrl.cli.health.estimate import KEPT, SPARE, Hardware, Line, Subject, estimate, hardware, screen_of
from distrl.cli.health.machine import first_gpu
from distrl.cli.local.gpus import visible, width_of
from distrl.configs.policy import PretrainedConfig
from distrl.configs.schema import AutoEngineConfig, Config, VllmConfig

if TYPE_CHECKING:
    from distrl.core.policies.model_shapes import ModelShape

HEADROOM = 1.5  # requests that vLLM takes for each slot of a server: there are more when another one fails
LEAST_ROWS = 8  # requests that a server needs room for, or it takes more GPUs
UNKNOWN_SLOTS = 64  # of a server, if all workers are elsewhere


@dataclass(frozen=True)
class Plan:
    """A configuration without `auto`, and what to expect of it.

    Attributes:
        update_s: Seconds of an update.
        per_s: Actions per second that "learner", "servers" and "devices" have time for.
        actions_per_s: Those of the run.
        is_shared: Whether learner and servers share GPUs.
        crowd: How many servers share a GPU, or the GPUs of one of them.
        too_large: What does not fit into a GPU, with the bytes that it needs.
    """

    config: Config
    update_s: float
    per_s: dict[str, float]
    actions_per_s: float
    is_shared: bool
    crowd: int
    too_large: dict[str, float]

    def lines(self) -> list[Line]:
        """What `distrl train` prints before it starts."""
        config, inference = self.config, self.config.inference
        shared = "sharing GPUs" if config.local.gpus == "split" else "taking turns on a GPU"
        each, width = shared if self.is_shared else "a GPU each", width_of(config)
        where = f"{width} GPUs each" if width > 1 and not self.is_shared else each
        if self.crowd > 1:
            where = f"{self.crowd} on {'a GPU' if width == 1 else f'{width} GPUs'}"
        engine = f"{where}, {inference.engine.kind}, max_batch {inference.num_rows}"
        found = [
            Line("plan", "ranks of the learner", config.learner.num_ranks, "", each),
            Line("plan", "inference servers", config.num_servers, "", engine),
        ]
        if self.too_large:  # what it would be like otherwise does not matter
            sizes = self.too_large.items()
            return found + [
                Line("plan", f"too large: {name}", size, "B", REMEDIES[name]) for name, size in sizes
            ]
        trained = f"{config.learner.batch_trajectories} trajectories"
        limit = min(self.per_s, key=lambda name: self.per_s[name])
        turns = "learner and servers take turns; " if self.is_shared else ""
        return [
            *found,
            Line("plan", "an update", self.update_s, "s", trained),
            *(Line("plan", f"actions, {name}", rate, "1/s") for name, rate in self.per_s.items()),
            Line("plan", "actions, the run", self.actions_per_s, "1/s", f"{turns}bottleneck: {limit}"),
        ]


REMEDIES = {
    "learner": "shard it over several GPUs (learner.engine fsdp) or lower learner.micro_batch_tokens",
    "servers": "use more GPUs, fewer servers, less of them (gpu_memory_utilization), or a smaller model",
}


def can_plan(config: Config) -> bool:
    """Whether learner and servers of the configuration take the GPUs that they are given, and work hard."""
    devices = {config.learner.device, config.policy.device}
    return devices <= {"auto", "cuda"} and isinstance(config.policy, PretrainedConfig)


def plan_here(config: Config) -> Plan | None:
    """The plan for this machine; None if it has no GPU, or if there is nothing to plan."""
    num_gpus = len(visible())
    if not num_gpus or not can_plan(config):
        return None
    assert isinstance(config.policy, PretrainedConfig)
    from distrl.core.hub_files import fetch_description
    from distrl.evaluator.suites import load_tasks

    for model in (config.policy.model, getattr(config.policy, "image_features", None)):
        if model is not None:
            fetch_description(model)
    gpu, memory = first_gpu()
    if gpu is None:  # one that is not nvidia's
        return None
    steps = max(task.max_steps for task in load_tasks(config.tasks))
    has_vllm = find_spec("vllm") is not None
    return Planner(config, hardware(gpu, 1, memory), num_gpus, steps, has_vllm).plan()


class Planner:
    """Plans for `num_gpus` GPUs like `where`, and episodes of at most `steps` steps."""

    def __init__(
        self,
        config: Config,
        where: Hardware,
        num_gpus: int,
        steps: float,
        has_vllm: bool = True,
        shape: ModelShape | None = None,
    ) -> None:
        self._where, self._num_gpus, self._steps, self._screen = where, num_gpus, steps, screen_of(config)
        self._room = where.memory * (1.0 - SPARE)
        self._one = Subject(config, where.is_gpu, steps, self._screen, shape)
        self._slots = config.local.workers * config.worker.slots
        self._is_colocated = config.local.gpus == "colocated"
        found = self._estimate(config)
        self._weights = found["inference", "weights"]
        self._row = found["inference", "KV cache of a slot"]
        self._is_engine_ours = isinstance(config.inference.engine, AutoEngineConfig)
        self._config = _with(config, "inference", engine=config.engine_for(has_vllm))
        if self._is_engine_ours and self._is_vllm:
            self._config = _with(self._config, "inference", engine=self._vllm(num_gpus))

    @property
    def _is_vllm(self) -> bool:
        return self._config.inference.engine.kind == "vllm"

    def _estimate(self, config: Config) -> dict[tuple[str, str], float]:
        lines = estimate(config, self._where, self._steps, self._screen, self._one.shape)
        return {(line.process, line.what): line.value for line in lines}

    def _vllm(self, num_gpus: int) -> VllmConfig:
        """On as few GPUs as have room for the weights and some requests."""
        engine, rows = VllmConfig(), min(LEAST_ROWS, self._slots or LEAST_ROWS)
        room = engine.gpu_memory_utilization * self._where.memory
        width = 1
        while self._weights + rows * self._row > width * room and 2 * width < num_gpus:
            width *= 2
        return engine.model_copy(update={"tensor_parallel_size": width})

    def plan(self) -> Plan:
        width, most = width_of(self._config), self._slots or self._num_gpus
        ranks, servers = self._config.learner.num_processes, self._config.local.inference_servers
        if self._is_colocated:
            ranks = servers = 1
        candidates = []
        most_ranks = max(1, min(self._num_gpus - 1, self._config.learner.batch_trajectories))
        for rank in range(1, most_ranks + 1) if ranks == "auto" else [ranks]:
            update_s, needed, kept = self._update(rank)
            fitting = max(1, min(most, (self._num_gpus - rank) // width))
            for count in range(1, fitting + 1) if servers == "auto" else [servers]:
                candidates.append(self._candidate(rank, count, update_s, needed, kept))
        return max(candidates, key=_merit)

    def _update(self, ranks: int) -> tuple[float, float, float]:
        """Seconds of an update, bytes that each rank needs for it, and those that it keeps in between."""
        found = self._estimate(_with(self._config, "learner", num_processes=ranks))
        kept = sum(found["learner", what] for what in KEPT)
        return found["speed", "an update"], found["learner", "device memory"], kept

    def _candidate(self, ranks: int, servers: int, update_s: float, needed: float, kept: float) -> Plan:
        """The plan with so many ranks, of which each needs or keeps so many bytes, and so many servers."""
        width, memory = width_of(self._config), self._where.memory
        left = (self._num_gpus - ranks) // width  # places for servers, as `gpus.for_training` has them
        is_shared, blocks = self._is_colocated or left < 1, left if left > 0 else self._num_gpus // width
        num_apart = min(servers, max(1, blocks))
        crowd = math.ceil(servers / num_apart)
        share = math.ceil(self._slots / servers) if self._slots else UNKNOWN_SLOTS
        taken = kept if self._is_colocated else needed
        taken = taken if is_shared else 0.0
        config, room = self._serving(share, taken, crowd)
        config = _with(config, "learner", num_processes=ranks)
        config = _with(config, "local", inference_servers=servers)
        rows = min(share, config.inference.num_rows, max(1, room))
        learner = self._one.episode_steps / (config.learner.updates_per_episode * update_s)
        per_s = {"learner": learner, "servers": num_apart * self._answers(config, rows)}
        both = 1.0 / sum(1.0 / rate for rate in per_s.values())
        if (latency := config.simulate.latency) is not None and self._slots:
            per_s["devices"] = self._slots / (latency.median_s + 1.0 / self._answers(config, 1))
        actions = min([*per_s.values(), both] if is_shared else per_s.values())
        too_large = {"learner": needed} if needed > self._room else {}
        if room < 1:
            too_large["servers"] = self._weights + self._row
        elif self._is_vllm and not config.inference.vllm.kv_cache_gb:
            wanted = crowd * config.inference.vllm.gpu_memory_utilization * memory
            if taken + wanted > memory:
                too_large["servers"] = wanted
        return Plan(config, update_s, per_s, actions, is_shared, crowd, too_large)

    def _serving(self, slots: int, taken: float, crowd: int) -> tuple[Config, int]:
        """The configuration of a server, and for how many requests it has room.

        Args:
            taken: Bytes of a GPU that the learner has.
            crowd: Servers that share the rest.
        """
        config, memory, row = self._config, self._where.memory, self._row
        room = (self._room - taken) / crowd
        if self._is_vllm:
            if self._is_engine_ours and (taken or crowd > 1):
                share = max(0.05, math.floor(100.0 * room / memory) / 100.0)
                own = config.inference.vllm.model_copy(update={"gpu_memory_utilization": share})
                config = _with(config, "inference", engine=own)
            room = min(config.inference.vllm.gpu_memory_utilization * memory, (memory - taken) / crowd)
            slots = math.ceil(HEADROOM * slots)
        else:
            row += self._one.prefill_bytes()
        num_rows = math.floor((width_of(config) * room - self._weights) / row)
        if config.inference.max_batch == "auto":
            config = _with(config, "inference", max_batch=max(1, min(slots, num_rows)))
        return config, num_rows

    def _answers(self, config: Config, rows: int) -> float:
        """Actions per second of a server with so many requests at a time."""
        return self._estimate(_with(config, "inference", max_batch=rows))["speed", "actions"]


def _merit(one: Plan) -> tuple[bool, bool, float, float]:
    rates = [one.per_s["learner"], one.per_s["servers"]]
    return not one.too_large, not one.is_shared, min(rates), max(rates)


def _with(config: Config, section: str, **values: object) -> Config:
    return config.model_copy(update={section: getattr(config, section).model_copy(update=values)})
