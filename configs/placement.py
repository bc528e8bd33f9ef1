"""Section `placement`: what the processes of `distrl launch` need, and how many of them there are."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from distrl.configs.section import Count, NonNegative, Section

Whole = Annotated[int, Field(ge=0)]


def _check_host(host: str) -> str:
    if not re.fullmatch(r"\w[\w.@-]*", host, re.ASCII):  # nothing that ssh would read as an option
        raise ValueError(
            f"{host!r} is not a valid host; use HOST or USER@HOST, where HOST is a name or an IPv4 address "
            "(set its port in ~/.ssh/config)"
        )
    return host


Hosts = list[Annotated[str, AfterValidator(_check_host)]]


class RolePlacement(Section):
    """What one process needs.

    `gpus` and `cpus` are numbers of devices and cores, and `memory_gb` is memory in GiB; null leaves it to
    the cluster. `resources` are amounts of other resources, such as emulators, by the cluster's names for
    them: Ray's custom resources, Kubernetes' extended ones, Slurm's `--gres`. `hosts` are the hosts
    of `--on ssh` for this role, in place of `placement.hosts`. `options` are further options for Slurm's
    sbatch, such as `--partition=gpu`. `image` is the container image with Kubernetes; null means
    `distrl-worker` for workers and `distrl-gpu` for the others, with distrl's version as the tag.
    """

    gpus: Whole = 0
    cpus: Count = 1
    memory_gb: Annotated[float, Field(gt=0.0)] | None = None
    resources: dict[str, NonNegative] = {}
    hosts: Hosts = []
    options: list[str] = []
    image: str | None = None


class LearnerPlacement(RolePlacement):
    """What the learner needs.

    With Ray, `count` is the number of processes that it is divided into, which may be on several nodes. Each
    is one rank and gets `gpus` (0 or 1), `cpus` and `memory_gb`; the first one also gets `resources`.
    """

    count: Count = 1


class InferencePlacement(RolePlacement):
    """What one inference server needs. `count` is the number of servers; null means
    `local.inference_servers`.
    """

    count: Count | None = None


class WorkersPlacement(RolePlacement):
    """What one worker needs.

    `count` is the number of workers at the start; null means `local.workers`. Backends that scale keep
    between `min` and `max` of them, null for `count`.
    """

    count: Count | None = None
    min: Whole | None = None
    max: Count | None = None

    @model_validator(mode="after")
    def _the_bounds_fit(self) -> WorkersPlacement:
        given = [number for number in (self.min, self.count, self.max) if number is not None]
        if given != sorted(given):
            raise ValueError(f"min, count and max must not decrease, but those set are {given}; correct one")
        return self


class PlacementConfig(Section):
    """The processes of `distrl launch` (see docs/placement.md).

    `hosts` are the hosts of `--on ssh`, as `HOST` or `USER@HOST`, under the names by which they also reach
    each other; the learner is placed on the first one. `python` is the Python interpreter there that has
    distrl, and `folder` is the directory for runs there, seen from the home directory. With Slurm, `hours`
    is the time limit of a job; null means the partition's.
    """

    learner: LearnerPlacement = LearnerPlacement()
    inference: InferencePlacement = InferencePlacement()
    workers: WorkersPlacement = WorkersPlacement()
    hosts: Hosts = []
    python: str = "python3"
    folder: Annotated[str, AfterValidator(lambda folder: folder.removeprefix("~/"))] = "distrl-runs"
    hours: Annotated[float, Field(gt=0.0)] | None = None
