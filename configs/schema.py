"""The configuration: one model per process, every key documented by its type, unknown keys refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import yaml
from pydantic import Field, field_validator, model_validator

from distrl.configs.agents import AgentConfig, PromptedConfig, check_agent, settle_agent
from distrl.configs.algorithms import GrpoConfig
from distrl.configs.appo import AppoConfig, check_appo
from distrl.configs.devices import DevicesConfig
from distrl.configs.goal import Goal, goal_of
from distrl.configs.judge import AnyJudge, RewardConfig, check_judge
from distrl.configs.learner import LearnerConfig
from distrl.configs.placement import PlacementConfig
from distrl.configs.policy import (
    AutoUIConfig,
    ChatPolicy,
    GaussianConfig,
    HubConfig,
    PolicyConfig,
    TinyConfig,
)
from distrl.configs.section import Count, CountOrAuto, Fraction, NonNegative, Positive, Section, one_of
from distrl.configs.simulate import SimulateConfig
from distrl.configs.world import WorldConfig, check_world

_PORT = r"\*|[0-5]?\d{1,4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5]"
_ADDRESS = re.compile(rf"tcp://(\[[^\]\s]+\]|[^:\s]+):({_PORT})|(ipc|inproc)://\S.*")


class DriftConfig(Section):
    """A change of the interfaces during training, after which training tasks come from another split.

    `split` is the split that supplies tasks after the change. `after` is the share of the run (of its
    episodes or its time, whichever is further on) at which it happens. `share` is the share of training
    tasks that come from that split then.
    """

    split: str
    after: Fraction = 0.5
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0


class TasksConfig(Section):
    """The tasks for training and measurement.

    `suite` is the name of a suite, a YAML or JSONL file, or your own suite as "pkg.mod:Name". `train` is the
    split for training episodes and demonstrations, and `validation` that for measurements during training.
    `test` lists the splits that are measured after training and by `distrl evaluate`. `leave_out` lists
    templates (of MiniWoB++: pages) whose tasks are left out of every split.
    """

    suite: str = "quickstart"
    train: str = "train"
    validation: str = "val"
    test: Annotated[list[str], Field(min_length=1)] = ["test"]
    leave_out: list[str] = []
    drift: DriftConfig | None = None

    @model_validator(mode="after")
    def _a_drift_is_not_measured_on(self) -> TasksConfig:
        if self.drift is not None and self.drift.split in (self.train, self.validation, *self.test):
            raise ValueError(
                f"drift.split {self.drift.split!r} is also the split for training, validation or test; "
                "set it to a different split"
            )
        return self


class EnvConfig(Section):
    """The environment, in which episodes run.

    `kind` is the name of a built-in environment: phone, android_world, browser, metaworld, libero,
    two_screens or gym (docs/environments.md). `import_path` is your own class instead, as "pkg.mod:Name".
    `options` are the keyword arguments of the class.
    """

    kind: str = "phone"
    import_path: str | None = None
    options: dict[str, Any] = {}

    @property
    def timeless(self) -> EnvConfig:
        """The same environment without the latency that simulates a device's."""
        options = {name: value for name, value in self.options.items() if name != "latency"}
        return self.model_copy(update={"options": options})


class LearnerAddresses(NamedTuple):
    """What processes connect to: the learner's addresses, or references to its rendezvous."""

    control: str
    broadcast: str
    weights: str


class NetworkConfig(Section):
    """Addresses and keys of the processes.

    The learner binds `control` for leases and trajectories, `broadcast` for announcements of its status, and
    `weights` for downloads of weights. `act` is the address that each inference server binds; port `*` means
    any free port. `advertise` is the address under which other processes reach an inference server, if it is
    not the bound one; port `*` stands for the bound port.

    `rendezvous` is where the learner publishes its addresses, and where all others look for them, also
    when the connection is lost: `file:PATH` in a shared folder, or `env:NAME`, an environment variable that
    is set beforehand. Null means that the three addresses are known to all. `distrl launch` sets it.

    `keys_dir` is the directory with the CURVE keys (see `distrl keys`), which encrypt and authenticate
    connections; it is required as soon as an address is not local. `key_name` is the name of the client key
    that this machine uses.
    """

    control: str = "tcp://127.0.0.1:5700"
    broadcast: str = "tcp://127.0.0.1:5701"
    weights: str = "tcp://127.0.0.1:5702"
    act: str = "tcp://127.0.0.1:*"
    advertise: str | None = None
    rendezvous: Annotated[str, Field(pattern=r"^(file|env):\S.*$")] | None = None
    keys_dir: str | None = None
    key_name: str = "client"

    @field_validator("control", "broadcast", "weights", "act", "advertise")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is not None and not _ADDRESS.fullmatch(value):
            raise ValueError(
                f"{value!r} is not a valid address: use tcp://HOST:PORT (port up to 65535) or ipc:///PATH"
            )
        return value

    @property
    def learner(self) -> LearnerAddresses:
        """What other processes connect to."""
        if self.rendezvous is None:
            return LearnerAddresses(self.control, self.broadcast, self.weights)
        return LearnerAddresses(*(f"{self.rendezvous}#{name}" for name in LearnerAddresses._fields))

    @property
    def keys_path(self) -> Path | None:
        """Where the keys are, if there are any."""
        return Path(self.keys_dir).expanduser() if self.keys_dir else None


class WorkerConfig(Section):
    """A worker process, with a thread for each environment.

    `slots` is the number of environments; with `devices.pool` it is the largest number of devices in use
    at a time. `screenshot_format` is the image format in which screenshots are sent and stored. `none` is
    for agents that show the policy no pictures: episodes on simulated phones are then replayed to draw
    screens on demand, and other simulated screens are drawn in evaluations only. `act_timeout_s` is the
    longest time to wait for an action, in seconds, over all inference servers.
    `barrier` makes each slot wait after its episode until all slots have finished theirs, as in
    synchronous collection; demonstrations are exempt. `elements` records the elements on the last screen
    (`final`, for the judge `rules`) or on all screens (`all`, for the judge `local`): their texts, places
    and states. On a real phone each record costs a call of uiautomator.
    """

    slots: Count = 8
    rewards: RewardConfig = RewardConfig()
    screenshot_format: Literal["jpeg", "png", "none"] = "jpeg"
    act_timeout_s: Positive = 30.0
    barrier: bool = False
    elements: Literal["none", "final", "all"] = "none"


class HfConfig(Section):
    """The engine transformers, which runs requests in batches.

    `max_wait_ms` is the longest time that a request waits for others, in milliseconds: a batch runs when
    `inference.max_batch` requests wait or the oldest has waited this long.
    """

    kind: Literal["hf"] = "hf"
    max_wait_ms: NonNegative = 4.0


class VllmConfig(Section):
    """The engine vLLM (see docs/models.md), which runs requests as they arrive, at most
    `inference.max_batch` at a time.

    `max_model_len` is the largest number of tokens in a sequence with its answer; an episode whose sequence
    is full ends as at its step limit. Null for `max_model_len` means `policy.max_context_tokens` where an
    episode is one sequence (agents with mode `incremental`), elsewhere `policy.max_prompt_tokens` +
    `learner.max_new_tokens` if that is less, and never more than the model has positions for.
    `images_per_prompt` is the largest number of images in a sequence; null means 32 where an episode is one
    sequence, elsewhere 1.

    `gpu_memory_utilization` is the share of each GPU's memory that vLLM uses. `kv_cache_gb` is the size of
    the cache of keys and values in GiB; null means what that share leaves, and 1 GiB on CPUs.
    `enforce_eager` runs the model without compiling it; null means only on CPUs. `tensor_parallel_size` is
    the number of GPUs that the model is split over. `max_adapters` is the number of versions of an adapter
    that are held at a time; null means learner.max_staleness + 2. `options` are passed to vLLM's
    AsyncEngineArgs unchanged.
    """

    kind: Literal["vllm"] = "vllm"
    max_model_len: Count | None = None
    images_per_prompt: Count | None = None
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, le=1.0)] = 0.85
    kv_cache_gb: Positive | None = None
    enforce_eager: bool | None = None
    tensor_parallel_size: Count = 1
    max_adapters: Annotated[int, Field(ge=2)] | None = None
    options: dict[str, Any] = {}


class AutoEngineConfig(Section):
    """The engine vLLM for a hub model that it can serve, where it is installed and there is a GPU; elsewhere
    transformers.
    """

    kind: Literal["auto"] = "auto"


EngineConfig = Annotated[HfConfig | VllmConfig | AutoEngineConfig, Field(discriminator="kind"), one_of("hf")]


class InferenceConfig(Section):
    """An inference server. `max_batch` is the largest number of requests that run at a time; with `auto`
    `distrl train` chooses it by the number of slots and the memory of its GPUs, and elsewhere it is 16.
    `threads` is the number of the model's CPU threads.
    """

    engine: EngineConfig = HfConfig()
    max_batch: CountOrAuto = 16
    threads: Count = 1

    @property
    def num_rows(self) -> int:
        """The largest number of requests that run at a time."""
        return 16 if self.max_batch == "auto" else self.max_batch

    @property
    def vllm(self) -> VllmConfig:
        """The engine's keys, if it is vLLM."""
        assert isinstance(self.engine, VllmConfig)
        return self.engine


class StoreConfig(Section):
    """The learner's store of trajectories on disk.

    `max_bytes` is its largest size; the oldest trajectories that replay no longer needs are deleted first.
    """

    max_bytes: Count = 4 * 2**30


class MetricsConfig(Section):
    """Where metrics go besides the run's metrics.jsonl (see docs/operations.md).

    `trackers` lists any of `tensorboard`, `trackio`, `wandb` and `mlflow`, each of which needs the package of
    that name. They keep everything on this machine unless their own environment variables name a server.
    `project` is the name of the project (in MLflow: the experiment) that the run belongs to.
    """

    trackers: list[Literal["tensorboard", "trackio", "wandb", "mlflow"]] = ["tensorboard"]
    project: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "distrl"


class EvaluateConfig(Section):
    """A measurement. Actions have at most `learner.max_new_tokens` tokens, as in training.

    `episodes` is the largest number of episodes of a split; null means all. `temperature` is the sampling
    temperature; 0 means greedy. `slots` is the number of episodes that run at a time. `retries` is the
    number of times that a faulted episode is repeated, before it is reported and left out. `distance`
    records with each screen how many steps the scripted expert would still need, where the environment can
    find this out without changing anything.
    """

    episodes: Annotated[int, Field(ge=1)] | None = None
    temperature: NonNegative = 0.0
    slots: Count = 8
    retries: Annotated[int, Field(ge=0)] = 2
    distance: bool = True
    prompted: PromptedConfig = PromptedConfig()


class LocalConfig(Section):
    """The processes that `distrl train` starts on this machine.

    `workers` is the number of worker processes; 0 means that all workers run on other machines (see
    docs/operations.md), and nothing is measured here at the end. `inference_servers` is the number of
    inference servers; with `auto` they share the GPUs with the learner so that neither waits for the other,
    and without a GPU there is one. `learner.algorithm: appo` needs none. Learner and inference servers get
    GPUs of their own as far as there are several, unless `learner.device` or `policy.device` names one.
    `gpus` set to `colocated` lets one vLLM server and the learner take turns on one GPU: vLLM's memory is
    free while the learner computes.
    """

    workers: Annotated[int, Field(ge=0)] = 2
    inference_servers: CountOrAuto = 1
    gpus: Literal["split", "colocated"] = "split"


class Config(Section):
    """A whole run. Every process reads the same file and uses its own sections.

    `name` is the name of the run and of its directory, which is in `runs_dir`. `modules_dir` is the
    directory with the modules of `import_path` and of a suite "module:name", if they are neither installed
    nor in the current directory; a relative path starts at the directory of the configuration file, which is
    also the default. `seed` is the seed of the initial weights and of all random generators.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = "run"
    runs_dir: Annotated[str, Field(min_length=1)] = "runs"
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
    metrics: MetricsConfig = MetricsConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    devices: DevicesConfig = DevicesConfig()
    local: LocalConfig = LocalConfig()
    placement: PlacementConfig = PlacementConfig()
    simulate: SimulateConfig = SimulateConfig()
    world: WorldConfig = WorldConfig()

    @model_validator(mode="after")
    def _the_sections_fit(self) -> Config:
        engine, policy = self.inference.engine.kind, self.policy
        if engine == "vllm" and not isinstance(policy, HubConfig):
            raise ValueError(
                f"inference.engine 'vllm' serves only hub models, but policy.kind is {policy.kind!r}; "
                "set policy.kind to 'hub' and policy.model, or inference.engine to 'hf'"
            )
        if isinstance(policy, HubConfig) and engine == "vllm" and policy.lora:
            places = {"vision": "the vision tower", "experts": "the experts"}
            for key, place in places.items():
                if getattr(policy.lora, key):
                    raise ValueError(
                        f"policy.lora.{key} puts adapters into {place}, which vLLM does not serve; set it to "
                        "false or inference.engine to 'hf'"
                    )
        algorithm = self.learner.algorithm
        keeps_base = getattr(policy, "lora", None) is not None and not isinstance(policy, AutoUIConfig)
        if isinstance(algorithm, GrpoConfig) and algorithm.kl and not keeps_base:
            raise ValueError(
                "learner.algorithm.kl compares the policy with its base model, which only an adapter keeps; "
                "set policy.kind to 'hub' and policy.lora, or learner.algorithm.kl to 0"
            )
        self._check_gpus()
        is_nf4 = isinstance(policy, HubConfig) and policy.quantization == "nf4"
        named = "learner.compile" if self.learner.compile else "policy.quantization" if is_nf4 else ""
        if named and not (isinstance(policy, HubConfig) and self.learner.engine == "torch"):
            raise ValueError(
                f"{named} works for hub models with learner.engine 'torch', which keeps them whole; remove "
                f"{named}, or set learner.engine to 'torch' and policy.kind to 'hub'"
            )
        if self.worker.barrier and self.devices.pool:
            raise ValueError(
                "worker.barrier does not work with devices.pool, because all slots would wait for the "
                "slowest device; set worker.barrier to false"
            )
        check_appo(self)
        check_judge(self)
        settle_agent(self)
        check_agent(self)
        check_world(self)
        return self

    def _check_gpus(self) -> None:
        """Raises ValueError if `learner.transfer` or `local.gpus` asks for what cannot work."""
        engine, learner, is_colocated = self.inference.engine, self.learner, self.local.gpus == "colocated"
        is_vllm, is_full = self.engine_for(True).kind == "vllm", getattr(self.policy, "lora", None) is None
        fits_nccl = is_vllm and is_full and not is_colocated and not learner.policy_lag
        if learner.transfer == "nccl" and not fits_nccl:
            raise ValueError(
                "learner.transfer 'nccl' sends the newest full weights of a hub model to vLLM on other GPUs; "
                "set inference.engine to 'vllm', policy.lora to null, learner.policy_lag to 0 and local.gpus "
                "to 'split', or learner.transfer to 'chunks'"
            )
        width = engine.tensor_parallel_size if isinstance(engine, VllmConfig) else 1
        is_single = {learner.num_ranks, self.num_servers, width} == {1}
        if is_colocated and not (is_vllm and is_single and not learner.demonstrations.dagger):
            raise ValueError(
                "local.gpus 'colocated' is for one GPU with one rank of the learner and one vLLM server, "
                "which sleeps during a warm start; set inference.engine to 'vllm', learner.num_processes "
                "and local.inference_servers to 1 and learner.demonstrations.dagger to 0, or local.gpus to "
                "'split'"
            )

    @property
    def goal(self) -> Goal:
        """The end of the run, and the metric that runs are compared by."""
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
        given = self.local.inference_servers
        if isinstance(self.learner.algorithm, AppoConfig):
            return 0
        return 1 if given == "auto" else given

    def engine_for(self, has_vllm: bool) -> HfConfig | VllmConfig:
        """The engine, in place of `auto` vLLM if it is there, or must be, and can serve the policy."""
        policy, engine = self.policy, self.inference.engine
        if not isinstance(engine, AutoEngineConfig):
            return engine
        lora = getattr(policy, "lora", None)
        is_served = isinstance(policy, HubConfig) and not (lora and (lora.vision or lora.experts))
        has_vllm |= self.local.gpus == "colocated"
        return VllmConfig() if has_vllm and is_served and policy.device != "cpu" else HfConfig()

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
