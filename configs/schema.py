"""The configuration: one model per process, every key documented by its type, unknown keys refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from distrl.configs.agents import AgentConfig, PromptedConfig, check_agent
from distrl.configs.algorithms import (
    ArideConfig,
)
from distrl.configs.appo import AppoConfig, check_appo
from distrl.configs.devices import DevicesConfig
from distrl.configs.goal import Goal, goal_of
from distrl.configs.judge import AnyJudge, RewardConfig, check_judge
from distrl.configs.learner import LearnerConfig
from distrl.configs.policy import ChatPolicy, GaussianConfig, HubConfig, PolicyConfig, TinyConfig
from distrl.configs.section import Count, Fraction, NonNegative, Positive, Section, one_of

_PORT = r"\*|[0-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5]"
_ADDRESS = re.compile(rf"tcp://(\[[^\]\s]+\]|[^:\s]+):({_PORT})|(ipc|inproc)://\S.*")


class DriftConfig(Section):
    """A change of the interfaces during training: when the share `after` of the run is over (of its episodes
    or its time, whichever is further on), a `share` of the training tasks comes from `split`."""

    split: str
    after: Fraction = 0.5
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0


class TasksConfig(Section):
    """Which tasks are trained and measured on. `suite` is a name, a YAML/JSONL file or "pkg.mod:Name"."""

    suite: str = "quickstart"
    train: str = "train"
    validation: str = "val"
    test: list[str] = ["test"]
    drift: DriftConfig | None = None

    @model_validator(mode="after")
    def _a_drift_is_not_measured_on(self) -> TasksConfig:
        if self.drift is not None and self.drift.split in (self.train, self.validation, *self.test):
            raise ValueError(
                f"drift.split {self.drift.split!r} is also the split of training, validation or test; "
                "name one that is only for the drift"
            )
        return self


class EnvConfig(Section):
    """The environment: a name of `distrl.workers.envs` or an `import_path`, and its keyword arguments."""

    kind: str = "phone"
    import_path: str | None = None
    options: dict[str, Any] = {}


class NetworkConfig(Section):
    """Addresses. The learner binds control, broadcast and weights; each inference server binds `act`.

    `keys_dir` (see `distrl keys`) switches CURVE on; it is required as soon as an address is not local.
    `advertise` is the address under which others reach an inference server, when it is not `act` itself.
    """

    control: str = "tcp://127.0.0.1:5700"
    broadcast: str = "tcp://127.0.0.1:5701"
    weights: str = "tcp://127.0.0.1:5702"
    act: str = "tcp://127.0.0.1:*"
    advertise: str | None = None
    keys_dir: str | None = None
    key_name: str = "client"

    @field_validator("control", "broadcast", "weights", "act", "advertise")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and not _ADDRESS.fullmatch(value):
            raise ValueError(
                f"{value!r} is not an address like tcp://127.0.0.1:5700 (ports up to 65535) or ipc:///PATH"
            )
        return value

    @property
    def keys_path(self) -> Path | None:
        """Where the keys are, if there are any."""
        return Path(self.keys_dir).expanduser() if self.keys_dir else None


class WorkerConfig(Section):
    """A worker process: `slots` environments, each in a thread of its own.

    With `devices.pool` an environment is on whatever device is free, and `slots` is the most at a time. With
    `barrier` each slot waits after its episode until all have ended theirs, as in synchronous collection;
    demonstrations go on without. `texts` keeps what stands on the last screen, or on all, with the episode,
    for the judge `rules`; on a real phone each costs a call of uiautomator.
    """

    slots: Count = 8
    rewards: RewardConfig = RewardConfig()
    screenshot_format: Literal["jpeg", "png"] = "jpeg"
    screenshot_quality: Annotated[int, Field(ge=1, le=95)] = 85
    act_timeout_s: Positive = 30.0
    max_unacked: Count = 64
    barrier: bool = False
    texts: Literal["none", "final", "all"] = "none"


# Set by the engine: log-probabilities, versions and memory depend on them.
_OWN = frozenset(
    {
        "model",
        "dtype",
        "seed",
        "max_model_len",
        "max_num_seqs",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "enforce_eager",
        "tensor_parallel_size",
        "limit_mm_per_prompt",
        "enable_prefix_caching",
        "logprobs_mode",
        "logits_processors",
        "additional_config",
        "generation_config",
        "enable_lora",
        "max_loras",
        "max_cpu_loras",
        "max_lora_rank",
    }
)


class HfConfig(Section):
    """transformers: a batch runs when `inference.max_batch` requests wait or the oldest has waited
    `max_wait_ms`."""

    kind: Literal["hf"] = "hf"
    max_wait_ms: NonNegative = 4.0


class VllmConfig(Section):
    """vLLM (see docs/models.md): requests run as they come.

    At most `inference.max_batch` requests run at a time. A sequence has at most `max_model_len` tokens with
    its answer and shows at most `images_per_prompt` pictures; an episode whose sequence is full ends as at
    its step limit. Null is, where an episode is one sequence (agents in mode incremental),
    policy.max_context_tokens and 32 pictures; elsewhere policy.max_prompt_tokens + learner.max_new_tokens, if
    that is less, and 1. It is never more tokens than the model has positions for.

    On GPUs it takes the share `gpu_memory_utilization` of each one's memory, less if `kv_cache_gb` bounds
    the cache of keys and values; on CPUs the cache has `kv_cache_gb` GiB, 1 when null. `enforce_eager` runs
    the model as it is, null: on CPUs, and compiles it on GPUs. `dtype` "auto" is the learner's,
    policy.dtype, and where that is "auto" too float32 on CPUs and bfloat16 on GPUs.

    So many versions of an adapter are held at a time as `max_adapters` says; null is
    learner.max_staleness + 2. `options` go to vLLM's AsyncEngineArgs as they are.
    """

    kind: Literal["vllm"] = "vllm"
    max_model_len: Count | None = None
    images_per_prompt: Count | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, le=1.0)] = 0.85
    kv_cache_gb: Positive | None = None
    enforce_eager: bool | None = None
    tensor_parallel_size: Count = 1
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    prefix_caching: bool = True
    max_adapters: Annotated[int, Field(ge=2)] | None = None
    options: dict[str, Any] = {}

    @field_validator("options")
    @classmethod
    def _options_are_not_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(_OWN & value.keys()):
            raise ValueError(
                f"{taken} are set from other keys; see inference.engine, inference.max_batch and policy"
            )
        return value


EngineConfig = Annotated[HfConfig | VllmConfig, Field(discriminator="kind"), one_of("hf")]


class InferenceConfig(Section):
    """An inference server: at most `max_batch` requests run at a time, and `max_queue` wait."""

    engine: EngineConfig = HfConfig()
    max_batch: Count = 16
    max_queue: Count = 1024
    threads: Count = 1

    @property
    def vllm(self) -> VllmConfig:
        """The engine's keys, if it is vLLM."""
        assert isinstance(self.engine, VllmConfig)
        return self.engine


class StoreConfig(Section):
    """The learner's trajectory store; the oldest trajectories that replay no longer needs go first."""

    max_bytes: Count = 4 * 2**30


class EvaluateConfig(Section):
    """A measurement: greedy unless `temperature` is set; at most `episodes` per split (all when null).

    Actions have at most `learner.max_new_tokens` tokens, as in training. `distance` records with each screen
    how many steps the scripted expert would still take, where the environment can tell without a trace.
    """

    episodes: Annotated[int, Field(ge=1)] | None = None
    temperature: NonNegative = 0.0
    slots: Count = 8
    examples: Count = 6
    retries: Annotated[int, Field(ge=0)] = 2
    distance: bool = True
    prompted: PromptedConfig = PromptedConfig()


class LocalConfig(Section):
    """The processes that `distrl train` starts on this machine.

    With `workers: 0` environments are elsewhere only (see docs/operations.md): workers come from other
    machines, and nothing is measured here at the end.

    With `gpus: split` learner and inference servers each have GPUs of their own, as far as there are several;
    with `shared` each process sees all of them.
    """

    workers: Annotated[int, Field(ge=0)] = 2
    inference_servers: Count = 1
    gpus: Literal["split", "shared"] = "split"


class Config(Section):
    """A whole run. Every process reads the same file and uses its own sections.

    `modules_dir` is where the modules of `import_path` and of a suite "module:name" are, if they are not
    installed or in the current directory; a relative one as seen from the configuration file; null: beside
    that file.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "run"
    runs_dir: str = "runs"
    modules_dir: str | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    tasks: TasksConfig = TasksConfig()
    env: EnvConfig = EnvConfig()
    agent: AgentConfig = AgentConfig()
    policy: PolicyConfig = TinyConfig()
    network: NetworkConfig = NetworkConfig()
    worker: WorkerConfig = WorkerConfig()
    judge: AnyJudge = None
    inference: InferenceConfig = InferenceConfig()
    learner: LearnerConfig = LearnerConfig()
    store: StoreConfig = StoreConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    devices: DevicesConfig = DevicesConfig()
    local: LocalConfig = LocalConfig()

    @field_validator("runs_dir")
    @classmethod
    def _runs_dir_is_named(cls, value: str) -> str:
        if not value:
            raise ValueError("runs_dir must name a directory")
        return value

    @model_validator(mode="after")
    def _the_best_is_known_only_of_what_acts(self) -> Config:
        if self.learner.policy_lag and self.learner.keep_best:
            raise ValueError(
                "learner.policy_lag lets validation measure older weights than a checkpoint's, so the best "
                "is unknown; set learner.keep_best to false"
            )
        return self

    @model_validator(mode="after")
    def _vllm_serves_models_of_the_hub(self) -> Config:
        if not isinstance(self.inference.engine, VllmConfig):
            return self
        policy = self.policy
        if not isinstance(policy, HubConfig):
            raise ValueError(
                f"inference.engine 'vllm' serves models of a hub only, but policy.kind is {policy.kind!r}; "
                "set policy.kind to 'hub' and policy.model, or inference.engine to 'hf'"
            )
        if policy.slim_vocabulary and policy.lora is None:
            raise ValueError(
                "inference.engine 'vllm' needs the whole output layer, which policy.slim_vocabulary crops; "
                "leave it empty, train with policy.lora, or set inference.engine to 'hf'"
            )
        if policy.lora is not None and policy.lora.vision:
            raise ValueError(
                "policy.lora.vision puts adapters into the vision tower, which vLLM does not serve; set it "
                "to false or inference.engine to 'hf'"
            )
        return self

    @model_validator(mode="after")
    def _a_barrier_needs_environments_of_its_own(self) -> Config:
        if self.worker.barrier and self.devices.pool:
            raise ValueError(
                "worker.barrier makes all slots wait for the slowest device; not with devices.pool"
            )
        return self

    @model_validator(mode="after")
    def _continuous_control_is_of_one_piece(self) -> Config:
        check_appo(self)
        return self

    @model_validator(mode="after")
    def _draws_need_whole_weights(self) -> Config:
        learner = self.learner
        draws = isinstance(learner.algorithm, ArideConfig) and learner.algorithm.critic == "q"
        if draws and learner.zero_stage == 3 and learner.num_processes > 1:
            raise ValueError(
                "learner.algorithm.critic 'q' draws actions, which is not supported with weights sharded "
                "over ranks (ZeRO stage 3); take stage 2, or critic 'v'"
            )
        return self

    @model_validator(mode="after")
    def _somebody_judges(self) -> Config:
        check_judge(self)
        return self

    @model_validator(mode="after")
    def _the_agent_fits_the_policy(self) -> Config:
        check_agent(self)
        return self

    @property
    def goal(self) -> Goal:
        """What ends the run, and what it is compared by."""
        return goal_of(self)

    @property
    def chat_policy(self) -> ChatPolicy:
        """The policy of a run of GUI tasks."""
        assert not isinstance(self.policy, GaussianConfig)
        return self.policy

    @property
    def hub_policy(self) -> HubConfig:
        """The policy, if it is a model of the hub."""
        assert isinstance(self.policy, HubConfig)
        return self.policy

    @property
    def gaussian(self) -> GaussianConfig:
        """The policy of continuous control."""
        assert isinstance(self.policy, GaussianConfig)
        return self.policy

    @property
    def num_servers(self) -> int:
        """Inference servers on this machine: none for APPO, whose workers act themselves."""
        return 0 if isinstance(self.learner.algorithm, AppoConfig) else self.local.inference_servers

    def to_yaml(self) -> str:
        """All keys with their values, as YAML that `load_config` reads back to an equal configuration."""
        data = _kinds_first(self.model_dump(mode="json"))
        text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)
        return text


def _kinds_first(data: Any) -> Any:
    """Plain data with `kind` as the first key of its sections."""
    if isinstance(data, list):
        return [_kinds_first(value) for value in data]
    if not isinstance(data, dict):
        return data
    return {key: _kinds_first(data[key]) for key in sorted(data, key=lambda key: key != "kind")}
