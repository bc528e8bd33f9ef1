"""One trajectory as one HTML file: every step with its screenshot, mark, prompt, tokens and reward."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from distrl.core.files import write_atomically
from distrl.core.types import Trajectory
from distrl.evaluator.failure_modes import FailureMode
from distrl.evaluator.judges.base import Verdict
from distrl.evaluator.report.episodes import TokenNames, episode_view
from distrl.evaluator.report.page import render

SHOT_WIDTH = 540


def write_trajectory_page(
    file: Path,
    trajectory: Trajectory,
    images: Mapping[str, bytes],
    verdict: Verdict,
    token_names: TokenNames | None = None,
    mode: FailureMode | None = None,
) -> None:
    """Writes the page.

    Args:
        file: Where to.
        trajectory: The episode.
        images: Its encoded screenshots by digest; missing ones show as empty frames.
        verdict: What the judge says.
        token_names: From token id to text; ids are shown without it.
        mode: Why it failed, if it did.

    Raises:
        MissingDependency: If jinja2 is not installed.
    """
    view = episode_view(
        trajectory, images, verdict, SHOT_WIDTH, fold=False, token_names=token_names, mode=mode
    )
    html = render(
        "trajectory.html",
        title=f"{trajectory.task.id} · distrl",
        kind="trajectory",
        e=view,
        max_steps=trajectory.task.max_steps,
    )
    write_atomically(file, html)
