"""How often, and for how much, an endpoint may be asked by this process."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from distrl.configs.judge import VlmConfig
from distrl.core.errors import JudgeError, QuotaUsed
from distrl.core.verdicts import Spent

MINUTE_S = 60.0
PER_TOKENS = 1_000_000
_log = logging.getLogger(__name__)


class BudgetSpent(JudgeError):
    """Nothing more may be asked: what comes now is unjudged."""


class Budget:
    """The quota of one judge. Any thread may call it.

    Args:
        config: `calls_per_minute`, `max_calls`, `max_cost` and the prices.
        clock: Seconds that only grow.
    """

    def __init__(self, config: VlmConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._lock = threading.Lock()
        self._recent: deque[float] = deque()
        self._num_calls = 0
        self._cost = 0.0
        self._has_warned = False

    def take(self) -> None:
        """Counts a call that is about to be made.

        Raises:
            BudgetSpent: There were enough.
            QuotaUsed: The minute has had its calls; it says when there is room again.
        """
        config = self._config
        with self._lock:
            if config.max_calls is not None and self._num_calls >= config.max_calls:
                raise BudgetSpent(f"judge.vlm.max_calls={config.max_calls} are spent.", "Raise it to go on.")
            if config.max_cost is not None and self._cost >= config.max_cost:
                raise BudgetSpent(f"judge.vlm.max_cost={config.max_cost:g} is spent.", "Raise it to go on.")
            self._keep_pace()
            self._num_calls += 1

    def _keep_pace(self) -> None:
        if self._config.calls_per_minute is None:
            return
        now = self._clock()
        # Fewer than one a minute is one in so many minutes.
        window_s = MINUTE_S * max(1.0, 1.0 / self._config.calls_per_minute)
        while self._recent and now - self._recent[0] >= window_s:
            self._recent.popleft()
        if len(self._recent) >= max(1.0, self._config.calls_per_minute):
            wait_s = self._recent[0] + window_s - now
            raise QuotaUsed(
                f"judge.vlm.calls_per_minute={self._config.calls_per_minute:g} are used up.",
                retry_after_s=wait_s,
            )
        self._recent.append(now)

    def pay(self, input_tokens: int, output_tokens: int) -> Spent:
        """Counts what a reply to a call cost, and returns it. One that tells no tokens is told once."""
        spent = priced(input_tokens, output_tokens, self._config.price_input, self._config.price_output)
        with self._lock:
            self._cost += spent.cost
            is_unknown = self._config.max_cost is not None and not (input_tokens or output_tokens)
            is_news, self._has_warned = is_unknown and not self._has_warned, self._has_warned or is_unknown
        if is_news:
            _log.warning(
                "the judge's endpoint does not tell how many tokens a reply took, so judge.vlm.max_cost=%g "
                "cannot be kept for such replies; set judge.vlm.max_calls too",
                self._config.max_cost,
            )
        return spent


def priced(input_tokens: int, output_tokens: int, price_input: float, price_output: float) -> Spent:
    """One call, by prices per million tokens."""
    cost = (input_tokens * price_input + output_tokens * price_output) / PER_TOKENS
    return Spent(calls=1, input_tokens=input_tokens, output_tokens=output_tokens, cost=cost)
