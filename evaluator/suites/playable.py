"""Whether a configuration's devices know its tasks: what can be told before anything is started."""

from __future__ import annotations

from collections.abc import Iterable

from distrl.configs.devices import SimMembers
from distrl.configs.schema import Config
from distrl.core.errors import TaskError
from distrl.core.types import Task


def check_playable(config: Config, tasks: Iterable[Task]) -> None:
    """Makes sure that the simulated phones of `config`, if it has any in its processes, know all `tasks`.

    Devices behind adb are not asked: real ones take any task.

    Raises:
        TaskError: There is no such template, or its parameters are others; it names the task.
    """
    if not _plays_on_simulated_phones(config):
        return
    from distrl.workers.simphone.tasks import template

    for task in tasks:
        try:
            template(task.template, task.params)
        except TaskError as error:
            raise TaskError(f"{task.id}: on the simulated phone {error.message}", error.remedy) from error


def _plays_on_simulated_phones(config: Config) -> bool:
    is_phone = config.env.kind == "phone" and config.env.import_path is None
    pool = config.devices.pool
    return is_phone and (not pool or any(isinstance(members, SimMembers) for members in pool))
