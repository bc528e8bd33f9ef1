"""What several answers say together."""

from __future__ import annotations

from collections.abc import Sequence


def decide(votes: Sequence[bool], total: int, agreement: float) -> bool | None:
    """What the votes so far say, whatever those to come will be; None while that is open, or never.

    Args:
        votes: The votes so far.
        total: How many there will be.
        agreement: The share of `total` that has to say the same; more than half in any case.
    """
    for says in (True, False):
        count = votes.count(says)
        if 2 * count > total and count >= agreement * total:
            return says
    return None


def is_lost(votes: Sequence[bool], total: int, agreement: float) -> bool:
    """Whether no verdict can come of it any more."""
    left = total - len(votes)
    return all(decide([*votes, *[says] * left], total, agreement) is None for says in (True, False))
