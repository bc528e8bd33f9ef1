"""Whether the devices of a configuration know its tasks and can teach by them, before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from distrl.configs.devices import SimMembers
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, TaskError
from distrl.core.importing import import_object
from distrl.core.types import Task

TEMPLATES = "distrl.simulator.tasks.play:TEMPLATES"
CHECK = "distrl.simulator.tasks.play:template"
"""What the simulated phone's tasks are, and whether one has the right parameters."""


def check_playable(config: Config, tasks: Iterable[Task]) -> None:
    """Makes sure that the environment of `config` knows all `tasks`, as far as that is known without it.

    Devices behind adb are not asked: real ones take any task. Nor are classes and sites of the user's own.

    Raises:
        TaskError: There is no such template, or its parameters are others; it names the task.
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
                remedy += " Tasks of your own are for devices of your own: see the preset phones."
            raise TaskError(f"{task.id}: on the simulated phone {error.message}", remedy) from error


def _check_of(config: Config) -> Callable[[Task], object] | None:
    """What refuses tasks that are not the environment's; None for phones and for what is the user's own."""
    kind = config.env.kind if config.env.import_path is None else None
    if kind == "two_screens":
        from distrl.workers.envs.two_screens import arrangement

        return arrangement
    if kind == "android_world":
        from distrl.workers.envs.android_world import named

        return named
    is_miniwob = kind == "browser" and config.env.options.get("site", "miniwob") == "miniwob"
    if is_miniwob and config.local.workers:  # without workers here, its package need not be here
        from distrl.workers.envs.miniwob import MiniWob

        return MiniWob().page_of
    return None


def check_expert(config: Config, tasks: Iterable[Task]) -> None:
    """Makes sure that somebody can show the training tasks, if the run waits for demonstrations of them.

    On devices behind adb it is the simulated phone's tasks alone that have a scripted expert, as simulated
    phones may be there too.

    Raises:
        ConfigError: No expert knows one of them.
    """
    wanted = config.learner.demonstrations
    if not wanted.episodes or wanted.dataset is not None or not _plays_on_others_alone(config):
        return
    for task in tasks:
        if wanted.weights.get(task.template, 1.0) and not _is_simulated(task):
            raise ConfigError(
                f"The run would wait for learner.demonstrations.episodes={wanted.episodes}, and no scripted "
                f"expert knows {task.id}: real devices have none.",
                "Set learner.demonstrations to {episodes: 0, updates: 0, critic_updates: 0}, or its dataset.",
            )


def check_truth(config: Config, split: str, tasks: Sequence[Task]) -> str | None:
    """Makes sure that somebody can say whether tasks that are trained on, or chosen by, were done.

    Args:
        split: Whose tasks they are, for people.

    Returns:
        A warning if some of them can be judged by nobody.

    Raises:
        ConfigError: None of them can.
    """
    has_judge = config.worker.rewards.source == "judge"
    if has_judge or not config.learner.updates_enabled or not _plays_on_others_alone(config):
        return None
    lacking = [task for task in tasks if not _is_simulated(task) and not task.params.get("check")]
    if not lacking:
        return None
    rule = f"no params.check, such as {lacking[0].id}, and worker.rewards.source is 'environment'"
    remedy = "Set worker.rewards.source to judge, and judge (see the preset phones), or give them checks."
    if len(lacking) == len(tasks):
        raise ConfigError(
            f"Nobody can tell whether a task of the split {split!r} is done: they have {rule}. All episodes "
            "would stay unjudged, and nothing would be learnt.",
            remedy,
        )
    which = f"{len(lacking)} of the {len(tasks)} tasks of the split {split!r} have {rule}"
    return f"{which}: their episodes stay unjudged and are not learnt from. {remedy}"


def _is_simulated(task: Task) -> bool:
    return task.template in import_object(TEMPLATES)


def _is_phone(config: Config) -> bool:
    return config.env.kind == "phone" and config.env.import_path is None


def _plays_on_simulated_phones(config: Config) -> bool:
    pool = config.devices.pool
    return _is_phone(config) and (not pool or any(isinstance(members, SimMembers) for members in pool))


def _plays_on_others_alone(config: Config) -> bool:
    return _is_phone(config) and not _plays_on_simulated_phones(config)
