"""Demonstrations that were collected before: `learner.demonstrations.dataset`."""

from __future__ import annotations

import logging
from itertools import islice
from pathlib import Path
from threading import Event

from distrl.core.demonstrations import STORE_FILE, check_dataset
from distrl.core.store import TrajectoryStore
from distrl.core.types import Purpose
from distrl.learner.parts import Parts

_log = logging.getLogger(__name__)


def take_dataset(parts: Parts, stop: Event) -> None:
    """Takes the run's demonstrations from its dataset, if it has one, as if they had just come in.

    The first `episodes` of the dataset are copied to the run's own store: what a run has learnt from stays
    with it. Those that are there already, from before an interruption, are not taken twice.

    Raises:
        ConfigError: The dataset has too few, or is in another agent's notation.
        RunDirectoryError: There is no dataset.
        StoreError: It cannot be read.
    """
    config = parts.config.learner.demonstrations
    if config.dataset is None or parts.scheduler.accounted(Purpose.DEMO) >= config.episodes:
        return
    path = Path(config.dataset).expanduser()
    check_dataset(path, parts.config.agent.model_dump(mode="json"), config.episodes)
    source = TrajectoryStore(path / STORE_FILE)
    try:
        _log.info("taking %d demonstrations from %s", config.episodes, path)
        for trajectory in islice(source.iterate(Purpose.DEMO), config.episodes):
            if stop.is_set():
                return
            if parts.store.add(trajectory, source.images(trajectory.image_digests)):
                parts.ingest.take(trajectory)
            parts.tend()
    finally:
        source.close()
