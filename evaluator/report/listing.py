"""A page of chosen episodes, of a run or an evaluation: a table of all of them, and each one step by step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from distrl.core.files import write_atomically
from distrl.evaluator.report.episodes import episode_view
from distrl.evaluator.report.explorer import explorer
from distrl.evaluator.report.page import render
from distrl.evaluator.report.viewer import MAX_BYTES, SHOT_WIDTH, Example, Viewer, verdict_of
from distrl.evaluator.results import SPEC_FILE, read_spec
from distrl.evaluator.stores import Found
from distrl.evaluator.token_names import find_token_names, places_of


def write_listing(
    file: Path, place: Path, found: Sequence[Found], words: str, max_bytes: int = MAX_BYTES
) -> None:
    """Writes the page.

    Args:
        file: Where to.
        place: The run or the evaluation, as `distrl inspect` was given it.
        found: The episodes.
        words: How they were chosen.
        max_bytes: Of embedded screenshots; what is beyond it is in the table only.

    Raises:
        MissingDependency: If jinja2 is not installed.
    """
    examples: list[Example] = []
    left_bytes = max_bytes
    for one in found:
        example = _example(one)
        left_bytes -= example.size_bytes
        if left_bytes < 0:
            break
        examples.append(example)
    viewer = Viewer(tuple(examples), len(found) - len(examples))
    table = explorer({"": [one.result for one in found]}, viewer.anchors, {"": str(place)})
    html = render(
        "listing.html",
        title=f"{place} · distrl",
        kind="episodes",
        place=str(place),
        words=words,
        viewer=viewer,
        explorer=table,
    )
    write_atomically(file, html)


def _example(found: Found) -> Example:
    trajectory, result, store = found.trajectory, found.result, found.store
    home = store.path.parent
    judge = read_spec(home).judge if (home / SPEC_FILE).is_file() else "ground_truth"
    images = store.images(store.known_images(trajectory.image_digests))
    has_tokens = any(chat.completion.token_ids for step in trajectory.steps for chat in step.chats)
    names = find_token_names(places_of(store.path)) if has_tokens else None
    verdict = verdict_of(result, trajectory, judge)
    view = episode_view(trajectory, images, verdict, SHOT_WIDTH, token_names=names, mode=result.mode)
    return Example(view.goal, view.split, view.template, "", view.tone, (("", view),))
