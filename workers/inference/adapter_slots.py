"""Versions of an adapter beside each other: requests keep the one that they began with.

    add ──► newest: new requests take it ──► retired, when a newer one comes ──► last request ends ──► dropped

An engine has room for so many versions; with none left the next one waits until an old one is dropped, while
requests continue. Each lies in a PEFT directory (adapter_config.json, adapter_model.safetensors) for as long
as it has its slot.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from distrl.core.policies import weights_io
from distrl.core.policies.adapters import ADAPTER_FILE, CONFIG_FILE


@dataclass(eq=False)
class Adapter:
    """One version of the adapter, under an id that is never used twice, and how many requests run with it."""

    id: int
    version: int
    directory: Path
    users: int = 0


class AdapterSlots:
    """The versions that an engine holds, at most `capacity`, with one adapter_config.json. Any thread."""

    def __init__(self, root: Path, config_json: str, capacity: int) -> None:
        self._root, self._capacity = root, capacity
        self._config_json = config_json
        self._lock = threading.Lock()
        self._held: dict[int, Adapter] = {}
        self._newest: Adapter | None = None
        self._num_made = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def has_room(self) -> bool:
        """Whether `add` finds a free slot."""
        return len(self._held) < self._capacity

    def add(self, version: int, state: Mapping[str, Tensor]) -> Adapter:
        """Writes the files of a new version, which has room; no request takes it before `activate`."""
        with self._lock:
            assert self.has_room, "room must be requested before an adapter is added"
            self._num_made += 1
            adapter = Adapter(self._num_made, version, self._root / f"adapter-{self._num_made}")
            self._held[adapter.id] = adapter
        adapter.directory.mkdir()
        (adapter.directory / CONFIG_FILE).write_text(self._config_json, encoding="utf-8")
        weights_io.write(adapter.directory / ADAPTER_FILE, state, is_durable=False)
        return adapter

    def activate(self, adapter: Adapter) -> Adapter | None:
        """Lets new requests take `adapter`. Returns the former one if it is to be unloaded now."""
        with self._lock:
            former, self._newest = self._newest, adapter
            return former if former is not None and former.users == 0 else None

    def acquire(self) -> Adapter | None:
        """The newest, for one request more; None before the first: adapters begin as changing nothing."""
        with self._lock:
            if self._newest is not None:
                self._newest.users += 1
            return self._newest

    def release(self, adapter: Adapter) -> bool:
        """A request has ended. Returns whether its adapter is to be unloaded now."""
        with self._lock:
            adapter.users -= 1
            return adapter is not self._newest and adapter.users == 0

    def drop(self, adapter: Adapter) -> None:
        """Deletes the files of an adapter that the engine has unloaded, and frees its slot."""
        shutil.rmtree(adapter.directory, ignore_errors=True)
        with self._lock:
            self._held.pop(adapter.id, None)
