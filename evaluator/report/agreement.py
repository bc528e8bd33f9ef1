"""A judge against ground truth as one HTML file: numbers, confusion matrix, templates, its worst errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.core.files import write_atomically
from distrl.core.types import Trajectory
from distrl.core.verdicts import Verdict
from distrl.evaluator.agreement import AgreementReport, Judged, describe, disagreements
from distrl.evaluator.report.episodes import EpisodeView, episode_view
from distrl.evaluator.report.page import render

SHOT_WIDTH = 300
SHOWN = 24
"""At most so many errors are shown with their screenshots."""

Episode = tuple[Trajectory, Mapping[str, bytes]]


@dataclass(frozen=True)
class Disagreement:
    """An error of the judge: what it said of the episode, and what is true."""

    judged: Judged
    said: str
    truth: str
    view: EpisodeView


def write_agreement_page(
    file: Path, report: AgreementReport, judged: Sequence[Judged], episodes: Iterator[tuple[Judged, Episode]]
) -> None:
    """Writes the page.

    Args:
        file: Where to.
        report: The numbers.
        judged: All verdicts.
        episodes: The episodes of the errors that are shown, worst first; see `worst`.

    Raises:
        MissingDependency: If jinja2 is not installed.
    """
    html = render(
        "agreement.html",
        title=f"{report.judge} against ground truth · distrl",
        kind="judge",
        r=report,
        describe=describe,
        shown=[_disagreement(one, *episode) for one, episode in episodes],
        num_wrong=len(disagreements(judged)),
    )
    write_atomically(file, html)


def worst(judged: Sequence[Judged]) -> list[Judged]:
    """The errors that a page shows."""
    return disagreements(judged)[:SHOWN]


def _disagreement(judged: Judged, trajectory: Trajectory, images: Mapping[str, bytes]) -> Disagreement:
    verdict: Verdict = judged.verdict
    return Disagreement(
        judged=judged,
        said="success" if verdict.success else "failure",
        truth="success" if judged.truth else "failure",
        view=episode_view(trajectory, images, verdict, SHOT_WIDTH),
    )
