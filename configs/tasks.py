"""The section `tasks`: which tasks are trained and measured on, and whether they change midway."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from distrl.configs.section import Fraction, Section


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
