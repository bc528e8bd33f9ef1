"""The configuration: one model per process, every key documented by its type, unknown keys refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, field_validator, model_validator

from distrl.configs.agents import AgentConfig, PromptedConfig, check_agent
from distrl.configs.algorithms import (
    AlgorithmConfig,
    ArideConfig,
    BcConfig,
    CustomConfig,
    DigirlConfig,
    GrpoConfig,
)
from distrl.configs.appo import AppoConfig, check_appo
from distrl.configs.devices import DevicesConfig
from distrl.configs.engines import EngineConfig, HfConfig, VllmConfig
from distrl.configs.goal import Goal, goal_of
from distrl.configs.judge import AnyJudge, RewardConfig, check_judge
from distrl.configs.mismatch import MismatchConfig
from distrl.configs.policy import ChatPolicy, GaussianConfig, HubConfig, PolicyConfig, TinyConfig
from distrl.configs.ranks import RanksConfig
from distrl.configs.section import Count, NonNegative, Positive, Section
from distrl.configs.tasks import TasksConfig
from distrl.configs.training import DemonstrationConfig, OptimConfig, ReplayConfig

_PORT = r"\*|[0-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5]"
_ADDRESS = re.compile(rf"tcp://(\[[^\]\s]+\]|[^:\s]+):({_PORT})|(ipc|inproc)://\S.*")


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


class LearnerConfig(RanksConfig):
    """The learner.

    It stops after `episodes` training episodes, or earlier after `max_minutes` of the online phase if that is
    set. The clock starts when the policy begins to practise: demonstrations, cloning and the critic's warm-up
    do not count, and a run that is resumed continues with the time that is left. `updates_per_episode` bounds
    the replay ratio; `max_staleness` (in versions) bounds, at lease time, how old a trajectory can become; it
    does not count `policy_lag`, so many versions behind the newest workers act, for experiments. With
    `keep_best` the result is the checkpoint with the best validation success, else the last.

    `temperature` is that of training episodes; ratios and gradients are taken at the same one. `top_p` and
    `top_k` truncate it, which only objectives without importance ratios allow. An action has at most
    `max_new_tokens`; one that goes on repeating itself would weigh that many tokens in its gradient. With
    `value_recompute` off, advantages are taken from values as they were when an episode came in.
    `task_sampling` "weighted" tries failing tasks more often, P ∝ 1 − success + floor; "learnable" those that
    sometimes fail, P ∝ 4 success (1 − success) + floor.

    An episode that is older than `max_staleness` when it is trained on is left to the objective's clipping
    (`stale: clip`) or not used (`drop`).

    `micro_batch_tokens` bounds the memory of an update: at most so many tokens, padding included, are in one
    forward pass, and gradients are accumulated over as many passes as that takes. Null: one pass.

    A lease ends `lease_ttl_s` after its last renewal, and after `max_episode_minutes` in any case: whoever
    works longer on one episode hangs. The default leaves a phone's 30 steps a minute each.
    """

    algorithm: AlgorithmConfig = ArideConfig()
    value_recompute: bool = True
    optim: OptimConfig = OptimConfig()
    demonstrations: DemonstrationConfig = DemonstrationConfig()
    replay: ReplayConfig = ReplayConfig()
    mismatch: MismatchConfig = MismatchConfig()
    temperature: Positive = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    max_new_tokens: Count = 32
    task_sampling: Literal["uniform", "weighted", "learnable"] = "uniform"
    task_sampling_floor: Positive = 0.15
    episodes: Count = 2000
    max_minutes: Positive | None = None
    batch_trajectories: Count = 16
    updates_per_episode: Positive = 0.25
    min_replay: Count = 32
    updates_enabled: bool = True
    publish_every: Count = 2
    policy_lag: Annotated[int, Field(ge=0, le=1024)] = 0
    max_staleness: Count = 16
    stale: Literal["clip", "drop"] = "clip"
    checkpoint_every: Count = 100
    keep_checkpoints: Count = 3
    keep_best: bool = True
    eval_every: Annotated[int, Field(ge=0)] = 100
    eval_episodes: Count = 32
    lease_ttl_s: Positive = 120.0
    max_episode_minutes: Positive = 45.0
    micro_batch_tokens: Count | None = None
    device: str = "auto"
    threads: Count = 1

    @property
    def group_size(self) -> int:
        """How many episodes of one task are compared with each other; 1: none."""
        return self.algorithm.group_size if isinstance(self.algorithm, GrpoConfig | CustomConfig) else 1

    @property
    def group_wait_s(self) -> float:
        """How long a group waits for its members after the first one arrived."""
        return self.algorithm.group_wait_s if isinstance(self.algorithm, GrpoConfig | CustomConfig) else 1.0

    @property
    def appo(self) -> AppoConfig:
        """The objective of continuous control."""
        assert isinstance(self.algorithm, AppoConfig)
        return self.algorithm

    @model_validator(mode="after")
    def _ratios_need_untruncated_sampling(self) -> LearnerConfig:
        if self.top_p >= 1.0 and self.top_k == 0:
            return self
        chosen = self.algorithm
        who: str = chosen.kind
        instead = "set learner.algorithm to digirl, bc or filtered-bc, with invalid 0"
        if isinstance(chosen, DigirlConfig | BcConfig):
            if not chosen.invalid:
                return self
            who, instead = f"the validity term of {chosen.kind}", "set learner.algorithm.invalid to 0"
        key = f"top_p={self.top_p:g}" if self.top_p < 1.0 else f"top_k={self.top_k}"
        raise ValueError(
            f"{key} truncates sampling: an action that the behaviour policy can never take has no importance "
            f"ratio, so {who}, which weighs by ratios, would be biased. Set learner.top_p to 1 and "
            f"learner.top_k to 0, or {instead}"
        )

    @model_validator(mode="after")
    def _what_lags_is_not_dropped(self) -> LearnerConfig:
        if self.stale == "drop" and self.policy_lag > self.max_staleness:
            raise ValueError(
                f"policy_lag={self.policy_lag} is more than max_staleness={self.max_staleness}: stale 'drop' "
                "would drop every episode; set learner.stale to 'clip'"
            )
        return self

    @model_validator(mode="after")
    def _expectations_need_the_present_policy(self) -> LearnerConfig:
        chosen = self.algorithm
        if isinstance(chosen, ArideConfig) and chosen.critic == "q" and not self.value_recompute:
            raise ValueError(
                "value_recompute=false keeps values as they were, but those of learner.algorithm.critic 'q' "
                "are expectations under the present policy; set one of the two otherwise"
            )
        return self


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
        data = self.model_dump(mode="json")
        text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110)
        return text
