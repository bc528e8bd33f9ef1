"""One run of a peer in `appo.py`: its clock, the rule by which it stops, and what is kept of it.

The peers' programs train in their own way and ask a `Trial` after every iteration whether to go on. So all
are measured by one rule, which is that of `distrl train` with `learner.appo.stop_at_return`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from appo_runs import Outcome, Point, Settings
from numpy.typing import NDArray

from distrl.evaluator.results import write_atomically

CONFIRMED_EPISODES = 100
"""Greedy episodes over which a solution and a final result are measured."""
TOGETHER = 25
"""Environments stepped together in an evaluation, so that the policy sees a batch."""

Floats = NDArray[np.float32]
Act = Callable[[Floats], Floats]
"""Observations [n, d] to the greedy policy's actions [n, k], inside the action space."""


class Trial:
    """A peer's clock and its stop rule.

    Args:
        settings: What is asked for.
        evaluate: The mean return of the greedy policy over episodes of the given seeds.
        clock: Seconds.
    """

    def __init__(
        self,
        settings: Settings,
        evaluate: Callable[[Act, Sequence[int]], float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._evaluate = evaluate or (lambda act, seeds: mean_return(settings.env, act, seeds))
        self._num_evaluations = 0
        self._next_validation, self._next_confirmation = 0, 0
        self._began, self._began_at = clock(), time.time()
        self._last = (0.0, 0)
        self._training: list[Point] = []
        self._validation: list[Point] = []
        self._solved: tuple[float, int] | None = None

    def begin(self) -> None:
        """Starts the clock: from here on the peer trains."""
        self._began, self._began_at = self._clock(), time.time()

    def is_over(self, env_steps: int, train_return: float | None, act: Act) -> bool:
        """Notes an iteration, validates if it is time, and says whether the run ends here.

        Args:
            env_steps: Made so far, over all environments.
            train_return: The mean of the last 100 training episodes; None or NaN before the first.
            act: The greedy policy as it is now.
        """
        elapsed = self._clock() - self._began
        if train_return is None or not math.isfinite(train_return):
            train_return = None
        else:
            self._training.append(Point(elapsed, env_steps, train_return))
        print(f"{elapsed:.0f} s, {env_steps} steps, return {train_return}", file=sys.stderr, flush=True)
        now = elapsed, env_steps
        if self._settings.stop_at is not None and self._is_solution(
            self._settings.stop_at, now, train_return, act
        ):
            self._solved = now
        self._last = self._clock() - self._began, env_steps
        return self._solved is not None or self._last[0] >= 60 * self._settings.minutes

    def _is_solution(
        self, stop_at: float, now: tuple[float, int], train_return: float | None, act: Act
    ) -> bool:
        """Whether the policy is a candidate, and is confirmed. Training waits for it.

        Candidates by their training episodes are confirmed at once, but for a pause after one that failed.
        """
        _, env_steps = now
        is_candidate = train_return is not None and train_return >= stop_at
        if not is_candidate or env_steps < self._next_confirmation:
            if env_steps < self._next_validation:
                return False
            self._next_validation = env_steps + self._settings.eval_every
            if self._validate(now, act, self._settings.eval_episodes) < stop_at:
                return False
        if self._validate(now, act, CONFIRMED_EPISODES) >= stop_at:
            return True
        self._next_confirmation = env_steps + self._settings.eval_every
        return False

    def _validate(self, now: tuple[float, int], act: Act, episodes: int) -> float:
        mean = self._measure(act, episodes)
        self._validation.append(Point(*now, mean))
        return mean

    def _measure(self, act: Act, episodes: int) -> float:
        """The greedy mean return over seeds that nothing was measured on before."""
        self._num_evaluations += 1
        sequence = np.random.SeedSequence([self._settings.seed, self._num_evaluations])
        mean = self._evaluate(act, [int(state) for state in sequence.generate_state(episodes)])
        print(f"greedy return over {episodes} episodes: {mean:.1f}", file=sys.stderr, flush=True)
        return mean

    def finish(self, act: Act, packages: Sequence[str] = ()) -> Outcome:
        """Measures the final policy. The clock has stopped.

        Args:
            act: The greedy policy.
            packages: Whose versions to note.
        """
        solved_s, solved_steps = self._solved or (None, None)
        return Outcome(
            started_at=self._began_at,
            elapsed_s=self._last[0],
            env_steps=self._last[1],
            solved_s=solved_s,
            solved_steps=solved_steps,
            final_return=self._measure(act, CONFIRMED_EPISODES),
            training=tuple(self._training),
            validation=tuple(self._validation),
            versions={name: version(name) for name in packages},
        )


def mean_return(env_id: str, act: Act, seeds: Sequence[int]) -> float:
    """The mean undiscounted return of one episode per seed.

    Every episode counts, however long it takes: taking the first that end would favour short ones.
    """
    returns = [0.0] * len(seeds)
    waiting = deque(range(len(seeds)))
    envs: list[Any] = [gymnasium.make(env_id) for _ in range(min(TOGETHER, len(seeds)))]
    running: dict[int, int] = {}
    observations: dict[int, Any] = {}

    def start(slot: int) -> None:
        running.pop(slot, None)
        if waiting:
            running[slot] = waiting.popleft()
            observations[slot], _ = envs[slot].reset(seed=seeds[running[slot]])

    for slot in range(len(envs)):
        start(slot)
    while running:
        slots = list(running)
        actions = act(np.stack([observations[slot] for slot in slots]).astype(np.float32))
        for slot, action in zip(slots, actions, strict=True):
            observations[slot], reward, terminated, truncated, _ = envs[slot].step(action)
            returns[running[slot]] += float(reward)
            if terminated or truncated:
                start(slot)
    for env in envs:
        env.close()
    return math.fsum(returns) / len(returns)


def run_peer(description: str, train: Callable[[Settings], Outcome]) -> None:
    """A peer's program: reads the settings, trains, writes the outcome."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--settings", required=True, help="appo_runs.Settings as JSON")
    parser.add_argument("--output", required=True, type=Path, help="the JSON file to write at the end")
    args = parser.parse_args()
    outcome = train(Settings(**json.loads(args.settings)))
    write_atomically(args.output, json.dumps(asdict(outcome)) + "\n")
