"""What an answer says, and what several of them say together."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_STATUS = re.compile(
    r"^[\s*_>#`-]*status[\s*_`]*[:=][\s*_`\"]*(\w+)[\s*_`.\"]*$", re.IGNORECASE | re.MULTILINE
)
_FENCE = re.compile(r"^```(?:json)?\s*(.*?)\s*```$", re.DOTALL)
_ANYWHERE = re.compile(r"status[\s*_`]*[:=][\s*_`\"]*(success|failure)\b", re.IGNORECASE)
_MEANS = {"success": True, "failure": False}


def read_status(text: str) -> bool | None:
    """Whether an answer says success; None if it says neither, or both.

    It does so in a line of its own, "Status: success" or "Status: failure", or as a JSON object with that in
    `status`. Nothing is guessed from other words, but a line is not believed if "status: " stands with the
    opposite anywhere else.
    """
    stripped = text.strip()
    fenced = _FENCE.match(stripped)
    try:
        data = json.loads(fenced[1] if fenced else stripped, object_pairs_hook=_every_value)
    except (ValueError, RecursionError):
        said = {word.lower() for word in _STATUS.findall(text)}
        said |= {word.lower() for word in _ANYWHERE.findall(text)} if said else set()
    else:
        found = data.get("status", []) if isinstance(data, dict) else []
        said = {one.strip().lower() if isinstance(one, str) else "" for one in found}
    return _MEANS.get(said.pop()) if len(said) == 1 else None


def _every_value(pairs: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    """A JSON object with all values of a key that is there twice."""
    found: dict[str, list[Any]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


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
