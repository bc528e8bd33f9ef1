"""How a lease asks for actions to be drawn."""

from __future__ import annotations

import pytest

from distrl.configs.schema import LearnerConfig
from distrl.core.types import Purpose, Sampling
from distrl.learner.leases import sampling_for


@pytest.mark.parametrize("algorithm", ["aride", "bc"])
def test_sampling_is_untruncated_unless_asked_otherwise(algorithm: str) -> None:
    config = LearnerConfig.model_validate({"algorithm": algorithm, "temperature": 0.7, "max_new_tokens": 9})
    expected = Sampling(temperature=0.7, top_p=1.0, top_k=0, max_new_tokens=9)
    assert sampling_for(config, Purpose.TRAIN) == expected


def test_truncation_reaches_training_and_no_measurement() -> None:
    config = LearnerConfig.model_validate({"algorithm": "bc", "top_p": 0.9, "top_k": 5})
    train, measured = (sampling_for(config, purpose) for purpose in (Purpose.TRAIN, Purpose.EVAL))
    assert (train.top_p, train.top_k) == (0.9, 5)
    assert measured == Sampling(temperature=0.0, max_new_tokens=config.max_new_tokens)
