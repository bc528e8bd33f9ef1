"""What one run needs: its environment, its tasks and its model, by the checks that the run itself makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.cli.health import machine
from distrl.cli.health.machine import Finding, Need, bad, good
from distrl.cli.run_kind import run_kind
from distrl.core.errors import ConfigError, DistrlError, MissingDependency, NetworkError, PolicyError
from distrl.core.hub_files import cached, has_weights, is_hub_id, located
from distrl.core.user_errors import user_error

if TYPE_CHECKING:
    from distrl.configs.schema import Config, NetworkConfig


def needs(config: Config | None, is_worker: bool) -> frozenset[Need]:
    """What must be there, for any process and for this run; `is_worker`: only workers run here."""
    if config is None:
        return frozenset({Need.BASE})
    found = {Need.BASE, Need.RUN}
    if config.learner.algorithm.kind == "appo":
        found |= {Need.GYM, Need.TRAINING}
    if is_worker or config.local.workers:
        kinds = {members.kind for members in config.devices.pool}
        env = config.env.kind if config.env.import_path is None else None
        is_browser = env == "browser"
        is_miniwob = is_browser and config.env.options.get("site", "miniwob") == "miniwob"
        needed = {
            Need.ADB: bool(kinds & {"adb", "avd", "phone"}),
            Need.EMULATOR: "avd" in kinds,
            Need.ANDROID_WORLD: env == "android_world",
            Need.BROWSER: is_browser,
            Need.MINIWOB: is_miniwob,
            Need.VLA: env == "metaworld",
            Need.LIBERO: env == "libero",
        }
        found |= {need for need, is_needed in needed.items() if is_needed}
    if not is_worker:
        found |= {Need.TRAINING, Need.REPORTS}
        if config.inference.engine.kind == "vllm":
            found.add(Need.VLLM)
        if config.learner.engine == "deepspeed":
            found.add(Need.DEEPSPEED)
        if any(device.startswith("cuda") for device in (config.policy.device, config.learner.device)):
            found.add(Need.CUDA)
    return frozenset(found)


def browser_of(config: Config | None) -> dict[str, object]:
    """The options of a browser environment; nothing for another one."""
    return config.env.options if config is not None and config.env.kind == "browser" else {}


def look(config: Config, is_worker: bool) -> Iterator[Finding]:
    """Findings about what the configuration names. Workers are sent their tasks and have no model."""
    kind = run_kind(config)
    if is_worker or config.local.workers:
        named = config.env.import_path or config.env.kind
        yield _checked("env", f"{named} is known.", kind.check_environment)
        if config.worker.rewards.source == "judge":
            yield _checked("judge", "The judge can be built.", lambda: check_judge(config))
    if is_worker:
        network = config.network
        known = "The keys" if network.rendezvous else "The host and the keys"
        said = f"{known} for {network.learner.control} are known."
        yield _checked("network", said, lambda: check_network(network))
        return
    from distrl.learner.trackers import check_trackers

    trackers = config.metrics.trackers
    if trackers:
        said = f"{', '.join(trackers)}: installed."
        yield _checked("trackers", said, lambda: check_trackers(trackers))
    warnings: list[str] = []
    yield _checked("tasks", "All tasks exist.", lambda: warnings.extend(kind.check_tasks()))
    for warning in warnings:
        yield bad("tasks", warning, "", Need.NOTHING)
    for warning in doubtful_rates(config):
        yield bad("learner", warning, "", Need.NOTHING)
    if config.learner.demonstrations.dataset is not None:
        said = f"{config.learner.demonstrations.dataset} fits."
        yield _checked("demonstrations", said, lambda: check_demonstrations(config))
    if models := [name for _, name in _models(config)]:
        yield _checked("model", f"{', '.join(models)}: found.", lambda: check_models(config))


def check_installed(config: Config, is_worker: bool) -> None:
    """Makes sure that the packages, programs and environment that the run needs are there."""
    needed = needs(config, is_worker)
    for finding in machine.packages(browser_of(config)):
        if finding.level(needed) == "fail":
            raise MissingDependency(f"{finding.about}: {finding.said}", finding.remedy)
    if not is_worker:
        from distrl.learner.trackers import check_trackers

        check_trackers(config.metrics.trackers)
    if is_worker or config.local.workers:
        if config.devices.pool:
            from distrl.workers.devices.pool import make_pool

            make_pool(config, limit=1)
        run_kind(config).check_environment()


def check_judge(config: Config) -> None:
    """Makes sure that the judge that gives rewards, if any, can be made; one of the user's is imported."""
    from distrl.configs.judge import CustomJudgeConfig
    from distrl.core.importing import import_object
    from distrl.evaluator.judges import build_judge

    if config.worker.rewards.source != "judge":
        return
    if isinstance(config.judge, CustomJudgeConfig):
        import_object(config.judge.import_path)
    else:
        build_judge(config.judge)


def check_network(network: NetworkConfig) -> None:
    """Makes sure that a worker can try to connect: its keys are here, and the learner's host is known."""
    from distrl.core.security import load_security
    from distrl.core.sockets import Wire, unknown_host

    address = network.learner.control
    with Wire(load_security(network.keys_path, network.key_name)) as wire:
        wire.connect_dealer(address).close()
    if not network.rendezvous and (host := unknown_host(address)):
        said = f"The host {host} is unknown on this machine."
        raise NetworkError(said, "Correct network.control, or /etc/hosts.")


def check_demonstrations(config: Config) -> None:
    """Makes sure that the collected demonstrations that the run starts from, if any, fit."""
    demonstrations = config.learner.demonstrations
    if demonstrations.dataset is not None:
        from distrl.configs.load import wanted_of
        from distrl.core.demonstrations import check_dataset

        path = Path(demonstrations.dataset).expanduser()
        check_dataset(path, wanted_of(config), demonstrations.episodes)


def check_devices(config: Config, sections: Sequence[str] = ("learner", "policy")) -> None:
    """Makes sure that the devices that these sections are to compute on exist."""
    from distrl.cli.local.gpus import visible

    for section in sections:
        key, device = f"{section}.device", getattr(config, section).device
        kind, _, index = device.partition(":")
        if kind == "cuda" and not Path("/dev/kfd").exists():  # only torch knows AMD's GPUs
            gpus = visible()
            if (not index.isdecimal() and index) or int(index or 0) >= len(gpus):
                found = f"CUDA can use {len(gpus)} GPUs here" if gpus else "this machine has no GPU"
                raise ConfigError(f"`{key}` is {device!r}, but {found}.", f"Set {key} to auto or cpu.")
        elif kind not in ("auto", "cpu"):
            from distrl.core.policies import resolve_device

            try:
                resolve_device(device)
            except PolicyError as error:
                said = f"`{key}` is {device!r}, which torch cannot use on this machine."
                raise ConfigError(said, f"Set {key} to auto, cpu or cuda.") from error


def check_models(config: Config) -> None:
    """Makes sure that the models of the policy are there, or that a hub answers that may have them."""
    for key, name in _models(config):
        if Path(name).expanduser().is_dir():
            continue
        if not is_hub_id(name):
            raise ConfigError(
                f"`{key}` is {name!r}, which is neither a directory nor a model id.",
                f"Set {key} to an existing directory, or to OWNER/NAME on the hub.",
            )
        snapshot = cached(name)
        if snapshot is None or not has_weights(snapshot):
            located(key, name)


LEAST_LORA_LR = 5e-6


def doubtful_rates(config: Config) -> list[str]:
    """A warning if the learning rate is one at which adapters stay what they are."""
    learner, rate = config.learner, config.learner.optim.lr
    if getattr(config.policy, "lora", None) is None or rate >= LEAST_LORA_LR or not learner.updates_enabled:
        return []
    updates = math.ceil(learner.episodes * learner.updates_per_episode)
    return [
        f"learner.optim.lr={rate:g} is too low for policy.lora: AdamW moves a weight by about that much in "
        f"an update, so in the {updates} updates of this run by {updates * rate:.1g} at most, and adapters "
        "begin at 0. Set it to 1e-4."
    ]


def _models(config: Config) -> list[tuple[str, str]]:
    named = [(f"policy.{key}", getattr(config.policy, key, None)) for key in ("model", "image_features")]
    return [(key, name) for key, name in named if name]


def _checked(about: str, said: str, check: Callable[[], object]) -> Finding:
    try:
        check()
    except Exception as error:
        known = error if isinstance(error, DistrlError) else user_error(error)
        if known is None:
            raise
        return bad(about, known.message, known.remedy, Need.RUN)
    return good(about, said, Need.RUN)
