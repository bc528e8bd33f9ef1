"""What an answer says, and what several of them say together."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_STATUS = re.compile(
    r"^[\s*_>#`-]*status[\s*_`]*[:=][\s*_`\"]*(\w+)[\s*_`.\"]*$", re.IGNORECASE | re.MULTILINE
)
_FENCE = re.compile(r"^```(?:json)?\s*(.*?)\s*```$", re.DOTALL)
_MEANS = {"success": True, "failure": False}


def read_status(text: str) -> bool | None:
    """Whether an answer says success; None if it says neither, or both.

    It does so in a line of its own, "Status: success" or "Status: failure", or as a JSON object with that in
    `status`. Nothing is guessed from other words.
    """
    stripped = text.strip()
    fenced = _FENCE.match(stripped)
    try:
        data = json.loads(fenced[1] if fenced else stripped)
    except ValueError:
        said = {word.lower() for word in _STATUS.findall(text)}
    else:
        status = data.get("status") if isinstance(data, dict) else None
        said = {status.strip().lower()} if isinstance(status, str) else set()
    return _MEANS.get(said.pop()) if len(said) == 1 else None


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
