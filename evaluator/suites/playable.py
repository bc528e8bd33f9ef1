"""Checks before the start that an environment can play, demonstrate and judge a configuration's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from distrl.configs.devices import SimMembers
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, TaskError
from distrl.core.importing import import_object
from distrl.core.types import Task

TEMPLATES = "distrl.simulator.tasks.play:TEMPLATES"
CHECK = "distrl.simulator.tasks.play:template"
"""The templates of the simulated phone, and the check of a task's parameters."""
_LIBERO = "LIBERO has"


def check_playable(config: Config, tasks: Iterable[Task]) -> None:
    """Raises TaskError if the environment of `config` is known to lack one of `tasks`.

    Devices behind adb accept any task. Users' classes and sites are not checked.
    """
    if (check := _check_of(config)) is not None:
        for task in tasks:
            check(task)
        return
    if not _plays_on_simulated_phones(config):
        return
    check_template = import_object(CHECK)
    for task in tasks:
        try:
            check_template(task.template, task.params)
        except TaskError as error:
            remedy = error.remedy
            if not _is_simulated(task):
                remedy += " Run your own tasks on your own devices: see the preset phones."
            raise TaskError(f"{task.id}: on the simulated phone {error.message}", remedy) from error


def _check_of(config: Config) -> Callable[[Task], object] | None:
    """The check that rejects tasks of other environments; None for phones and for users' environments."""
    kind = config.env.kind if config.env.import_path is None else None
    if kind == "two_screens":
        from distrl.workers.envs.two_screens import arrangement

        return arrangement
    if kind == "metaworld":
        from distrl.evaluator.suites.metaworld import known

        return known
    if kind == "libero":
        from distrl.workers.envs.libero import task_file

        return task_file
    if kind == "android_world":
        from distrl.workers.envs.android_world import named

        return named
    if _is_miniwob(config) and config.local.workers:  # without local workers, its package may be absent
        from distrl.workers.envs.miniwob import MiniWob

        return MiniWob().page_of
    return None


def check_expert(config: Config, tasks: Iterable[Task]) -> None:
    """Raises ConfigError if a run would wait for demonstrations of a task that has no scripted expert.

    With devices behind adb only the simulated phone's tasks have one, because simulated phones may be among
    the devices.
    """
    wanted = config.learner.demonstrations
    who, has_expert = "real devices have", _is_simulated
    if _is_miniwob(config):
        from distrl.workers.envs.miniwob import EXPERT_PAGES

        who, has_expert = "MiniWoB pages have", lambda task: task.params.get("env") in EXPERT_PAGES
    elif config.env.kind == "libero" and config.env.import_path is None:
        who, has_expert = _LIBERO, lambda task: "recording" in task.params
    elif not _plays_on_others_alone(config):
        return
    if not wanted.episodes or wanted.dataset is not None:
        return
    for task in tasks:
        if wanted.weights.get(task.template, 1.0) and not has_expert(task):
            raise ConfigError(
                f"The run would wait forever for learner.demonstrations.episodes={wanted.episodes}: {who} "
                f"no scripted expert for {task.id}.",
                f"Set learner.demonstrations.weights to {{{task.template}: 0}}, or learner.demonstrations to "
                "{episodes: 0, updates: 0, critic_updates: 0} or a dataset.",
            )
    if who == _LIBERO and (wanted.noise or wanted.dagger):
        raise ConfigError(
            "LIBERO's demonstrations are recordings, which cannot correct random actions or a policy.",
            "Set learner.demonstrations.noise and learner.demonstrations.dagger to 0.",
        )


def check_truth(config: Config, split: str, tasks: Sequence[Task]) -> str | None:
    """Checks that tasks for training or validation have ground truth or a judge.

    Returns a warning if some of them have neither; raises ConfigError if none of them has either.
    """
    has_judge = config.worker.rewards.source == "judge"
    if has_judge or not _plays_on_others_alone(config):
        return None
    lacking = [task for task in tasks if not _is_simulated(task) and not task.params.get("check")]
    if not lacking:
        return None
    rule = f"no params.check, such as {lacking[0].id}, and worker.rewards.source is 'environment'"
    remedy = (
        "Set worker.rewards.source to judge and configure judge (see the preset phones), or add params.check."
    )
    if len(lacking) == len(tasks):
        raise ConfigError(
            f"The tasks of the split {split!r} cannot be judged: they have {rule}. All episodes would stay "
            "unjudged, so nothing could be learned.",
            remedy,
        )
    which = f"{len(lacking)} of the {len(tasks)} tasks of the split {split!r} have {rule}"
    return f"{which}: their episodes stay unjudged and are not used for training. {remedy}"


def _is_simulated(task: Task) -> bool:
    return task.template in import_object(TEMPLATES)


def _is_miniwob(config: Config) -> bool:
    is_browser = config.env.kind == "browser" and config.env.import_path is None
    return is_browser and config.env.options.get("site", "miniwob") == "miniwob"


def _is_phone(config: Config) -> bool:
    return config.env.kind == "phone" and config.env.import_path is None


def _plays_on_simulated_phones(config: Config) -> bool:
    pool = config.devices.pool
    return _is_phone(config) and (not pool or any(isinstance(members, SimMembers) for members in pool))


def _plays_on_others_alone(config: Config) -> bool:
    return _is_phone(config) and not _plays_on_simulated_phones(config)
