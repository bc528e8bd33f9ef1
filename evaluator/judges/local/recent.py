"""What was made lately, kept to be used again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Recent(Generic[Made]):
    """Values by key; the least recently asked for go first. Not for several threads at once.

    Args:
        capacity: The most values to keep.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[Hashable, Made] = OrderedDict()

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """The value of `key`, made unless it is kept."""
        if key not in self._kept:
            self._kept[key] = make()
        self._kept.move_to_end(key)
        value = self._kept[key]
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
        return value
