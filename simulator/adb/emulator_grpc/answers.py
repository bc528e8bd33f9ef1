"""What a service's method may answer besides a message: a refusal, or something to do once it is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class Rejected(Exception):
    """The call is refused.

    Args:
        code: The name of a gRPC status, e.g. "INVALID_ARGUMENT".
        text: Why.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


@dataclass(frozen=True)
class Then:
    """An answer, and what happens after the client has got it: the end of the phone, for instance.

    Attributes:
        message: The answer.
        action: What follows.
    """

    message: Any
    action: Callable[[], None]


Method = Callable[[Any], Any]
"""From a request to a message or a `Then`; raises `Rejected`."""
