"""What one run needs: its environment, its tasks and its model, by the checks that the run itself makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from distrl.cli.health.machine import Finding, Need, bad, good
from distrl.cli.run_kind import run_kind
from distrl.core.errors import ConfigError, DistrlError, MissingDependency
from distrl.core.hub_files import cached, has_weights, hub_cache, is_hub_id
from distrl.core.user_errors import user_error

if TYPE_CHECKING:
    from distrl.configs.schema import Config


def needs(config: Config | None, is_worker: bool) -> frozenset[Need]:
    """What must be there, for any process and for this run.

    Args:
        is_worker: Only workers run on this machine.
    """
    found = {Need.BASE}
    if config is None:
        return frozenset(found)
    found.add(Need.RUN)
    found |= {Need[name] for name in run_kind(config).needs}
    if is_worker or config.local.workers:
        found |= _environment_needs(config)
    return frozenset(found if is_worker else found | _central_needs(config))


def _environment_needs(config: Config) -> set[Need]:
    """What only machines with environments need."""
    found: set[Need] = set()
    kinds = {members.kind for members in config.devices.pool}
    if kinds & {"adb", "avd", "phone"}:
        found.add(Need.ADB)
    if "avd" in kinds:
        found.add(Need.EMULATOR)
    if _env_kind(config) == "android_world":
        found.add(Need.ANDROID_WORLD)
    if _env_kind(config) == "browser":
        found.add(Need.BROWSER)
        if config.env.options.get("site", "miniwob") == "miniwob":
            found.add(Need.MINIWOB)
    return found


def _central_needs(config: Config) -> set[Need]:
    """What only machines with a learner or inference servers need."""
    found = {Need.TRAINING, Need.REPORTS}
    if config.inference.engine.kind == "vllm":
        found.add(Need.VLLM)
    if config.learner.engine == "deepspeed":
        found.add(Need.DEEPSPEED)
    if any(device.startswith("cuda") for device in (config.policy.device, config.learner.device)):
        found.add(Need.CUDA)
    return found


def look(config: Config, is_worker: bool) -> Iterator[Finding]:
    """Findings about what the configuration names.

    Args:
        is_worker: Only workers run on this machine, which are sent their tasks and have no model.
    """
    kind = run_kind(config)
    if is_worker or config.local.workers:
        yield _checked(
            "env", f"{config.env.import_path or config.env.kind} is known.", kind.check_environment
        )
    if is_worker:
        return
    from distrl.cli.train import check_demonstrations

    warnings: list[str] = []
    yield _checked("tasks", kind.tasks, lambda: warnings.extend(kind.check_tasks()))
    for warning in warnings:
        yield bad("tasks", warning, "", Need.NOTHING)
    if config.learner.demonstrations.dataset is not None:
        said = f"{config.learner.demonstrations.dataset} fits."
        yield _checked("demonstrations", said, lambda: check_demonstrations(config))
    policy = config.policy
    for key in ("model", "image_features"):
        if name := getattr(policy, key, None):
            yield _model(f"policy.{key}", name)


def _env_kind(config: Config) -> str | None:
    return config.env.kind if config.env.import_path is None else None


def check_environment(config: Config) -> None:
    """Checks the environment and the agent as far as possible without starting the environment.

    Raises:
        ConfigError: One does not exist, or does not take its options.
        MissingDependency: One needs a package that is not installed.
    """
    from distrl.core.importing import choose
    from distrl.core.user_errors import check_options, read_fields
    from distrl.workers.agents import build_agent
    from distrl.workers.envs import ENVS

    environment = choose(ENVS, config.env.kind, config.env.import_path)
    if not config.devices.pool:
        check_options(environment, config.env.options, "env")
    if _env_kind(config) in ("phone", "browser", "two_screens"):
        _try_options(config)
    build_agent(config.agent)
    if _env_kind(config) == "android_world":
        from distrl.workers.envs.android_world import AndroidWorldOptions, find_adb

        find_adb(read_fields(AndroidWorldOptions, config.env.options, "env.options").adb_path)


def _try_options(config: Config) -> None:
    """Makes an environment whose constructor starts nothing, on a simulated phone if there is a pool."""
    from distrl.configs.devices import SimMembers
    from distrl.core.importing import import_object
    from distrl.workers.envs import build_env
    from distrl.workers.envs.phone import SIMULATED_DEVICE

    pool, phone = config.devices.pool, import_object(SIMULATED_DEVICE)
    for part in pool:
        if isinstance(part, SimMembers):
            phone(part.width, part.height).close()  # refuses impossible screens
    try:
        build_env(config.env, phone() if pool else None).close()
    except TypeError as error:
        raise ConfigError(f"env.options {config.env.options}: {error}.", "Correct the value.") from error


def check_installed(config: Config, is_worker: bool) -> None:
    """Makes sure that the programs and packages that only some configurations need are there.

    Args:
        is_worker: Only workers run on this machine.

    Raises:
        MissingDependency: One is not installed.
        ConfigError: The pool of devices cannot be made.
    """
    from distrl.cli.health import packages

    needed = needs(config, is_worker) - {Need.BASE, Need.TRAINING, Need.REPORTS}
    for finding in packages.look(config.env.options if _env_kind(config) == "browser" else None):
        if finding.level(needed) == "fail":
            raise MissingDependency(f"{finding.about}: {finding.said}", finding.remedy)
    if config.devices.pool and (is_worker or config.local.workers):
        from distrl.workers.devices.sources import make_pool

        make_pool(config, limit=1)


def _checked(about: str, said: str, check: Callable[[], object]) -> Finding:
    try:
        check()
    except Exception as error:
        told = error if isinstance(error, DistrlError) else user_error(error)
        if told is None:
            raise
        return bad(about, told.message, told.remedy, Need.RUN)
    return good(about, said, Need.RUN)


def _model(key: str, model: str) -> Finding:
    """Where its files are. One that only the hub has is no failure: loading asks it."""
    about, directory = "model", Path(model)
    if directory.is_dir():
        if (directory / "config.json").is_file() and has_weights(directory):
            return good(about, f"{key} {model} is a directory with weights.", Need.RUN)
        said = f"{key} {model} has no config.json, or not all of its weights."
        return bad(about, said, "Copy all of the model's files there.", Need.RUN)
    if not is_hub_id(model):
        said = f"{key} {model} is neither a directory nor a model id."
        return bad(about, said, "Set it to an existing directory, or to OWNER/NAME on the hub.", Need.RUN)
    snapshot = cached(model)
    if snapshot is not None and has_weights(snapshot):
        return good(about, f"{key} {model} is in the hub's cache {hub_cache()}.", Need.RUN)
    said = f"{key} {model} is not, or not wholly, in the hub's cache {hub_cache()}: the run will ask the hub."
    return bad(about, said, f"Run `hf download {model}` before.", Need.NOTHING)
