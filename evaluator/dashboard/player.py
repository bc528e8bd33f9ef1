"""An episode as the page's player gets it: what report.html shows of it, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from distrl.core.store import TrajectoryStore
from distrl.core.types import Observation, Trajectory
from distrl.evaluator.report.episodes import Call, StepView, episode_view
from distrl.evaluator.results import episode_result, verdict_on
from distrl.evaluator.stores import Found

MAX_TEXT = 20_000
"""Characters of one text; models' prompts can be longer."""

TRAINED = ("ratio", "advantage", "value")


def episode_json(
    trajectory: Trajectory, store: TrajectoryStore, trained: Mapping[str, Any]
) -> dict[str, Any]:
    """Steps, screens by digest, tokens and the verdict of a stored episode, without its row.

    Args:
        trained: What the newest update made of its steps, by name; see `RunFiles.trained`.
    """
    has_tokens = any(chat.completion.token_ids for step in trajectory.steps for chat in step.chats)
    view = episode_view(
        trajectory,
        {},  # pictures are named, not embedded
        verdict_on(trajectory),
        max_width=1,
        token_names=Found(trajectory, episode_result(trajectory), store).token_names()
        if has_tokens
        else None,
    )
    columns = {name: trained.get(name, ()) for name in TRAINED}
    steps = []
    for place, step in enumerate(view.steps):
        values = {name: one[place] if place < len(one) else None for name, one in columns.items()}
        steps.append({**_step(step, trajectory.id), **values})
    return {
        "reason": view.reason[:MAX_TEXT],
        "tone": view.tone,
        "judged": [[name, text[:MAX_TEXT]] for name, text in view.judged],
        "final": None if trajectory.final is None else _shot(trajectory.final, trajectory.id),
        "trained": trained.get("update"),
        "steps": steps,
    }


def _shot(seen: Observation, trajectory_id: str) -> dict[str, Any]:
    image = f"/api/image/{seen.shown}?episode={trajectory_id}"
    return {"image": image, "width": seen.width, "height": seen.height}


def _step(view: StepView, trajectory_id: str) -> dict[str, Any]:
    step = view.step
    return {
        "number": view.number,
        "shot": _shot(step.observation, trajectory_id),
        "mark": asdict(view.mark),
        "action": view.action[:MAX_TEXT],
        "detail": view.detail[:MAX_TEXT],
        "touched": view.touched,
        "probability": view.probability,
        "versions": view.versions,
        "rewards": view.rewards,
        "reward": step.reward.total,
        "app": step.observation.app,
        "seconds": {
            name.removesuffix("_s"): seconds for name, seconds in step.timing if name != "started_at"
        },
        "elements": [
            {"number": number, "text": one.label, "class": one.class_name, "flags": list(one.flags)}
            for number, one in enumerate(step.observation.elements or ())
        ],
        "calls": [_call(call) for call in view.calls],
    }


def _call(call: Call) -> dict[str, Any]:
    prompt, answer = call.prompt[:MAX_TEXT], call.chat.completion.text[:MAX_TEXT]
    tokens = [asdict(token) for token in call.tokens]
    return {"prompt": prompt, "answer": answer, "logprob": call.logprob, "tokens": tokens}
