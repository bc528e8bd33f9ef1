"""Demonstrations that were collected before: `learner.demonstrations.dataset`."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event

from distrl.configs.demonstrations import wanted_of
from distrl.core.demonstrations import STORE_FILE, check_dataset, draw_number
from distrl.core.store import TrajectoryStore
from distrl.core.types import Purpose
from distrl.learner.parts import Parts

_log = logging.getLogger(__name__)


def take_dataset(parts: Parts, stop: Event) -> None:
    """Takes the run's demonstrations from its dataset, if it has one, as if they had just come in.

    The first `episodes` of the dataset are copied to the run's own store: what a run has learnt from stays
    with it. Those that are there already, from before an interruption, are not taken twice.

    Raises:
        ConfigError: The dataset has too few, or is of other tasks or in another agent's notation.
        RunDirectoryError: There is no dataset.
        StoreError: It cannot be read.
    """
    config = parts.config.learner.demonstrations
    if config.dataset is None or parts.scheduler.accounted(Purpose.DEMO) >= config.episodes:
        return
    path = Path(config.dataset).expanduser()
    check_dataset(path, wanted_of(parts.config), config.episodes)
    source = TrajectoryStore(path / STORE_FILE)
    try:
        _log.info("taking %d demonstrations from %s", config.episodes, path)
        for name in _as_drawn(source)[: config.episodes]:
            if stop.is_set():
                return
            trajectory = source.get(name)
            if parts.store.add(trajectory, source.images(trajectory.image_digests)):
                parts.ingest.take(trajectory)
            parts.tend()
    finally:
        source.close()


def _as_drawn(source: TrajectoryStore) -> list[str]:
    """The ids in the order in which tasks were drawn; the store has them in that in which episodes ended."""
    drawn = {one.id: draw_number(one.lease_id) for one in source.iterate(Purpose.DEMO)}
    return sorted(drawn, key=lambda name: drawn[name])
