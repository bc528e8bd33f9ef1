"""Published models by name: which agent reads what they write, and how they write points."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class AgentOptions(Protocol):
    """What is needed of a `distrl.configs.schema.AgentConfig`; core does not depend on configs."""

    kind: str
    import_path: str | None
    options: dict[str, Any]


@dataclass(frozen=True)
class Published:
    """A published model, whose repository's name has the pattern `name`.

    Attributes:
        agent, options: The agent that reads what it writes.
        coordinates: How it writes points, whatever the type of the model that it was made from.
    """

    name: str
    coordinates: str
    agent: str
    options: Mapping[str, Any]


def _versions(agent: str, *rows: tuple[str, str, str]) -> list[Published]:
    return [Published(name, writes, agent, {"version": version}) for name, writes, version in rows]


def _qwen(name: str, writes: str, reasoning: str) -> Published:
    return Published(name, writes, "mobile-use", {"coordinates": writes, "reasoning": reasoning})


PUBLISHED: Sequence[Published] = (
    *_versions("ui-tars", (r"ui-tars-1\.5", "absolute", "1.5"), (r"ui-tars-\d+b", "relative", "1")),
    *_versions("ui-tars", (r"ui-tars-2\b", "relative", "2")),
    *_versions("autoglm", ("autoglm-phone", "relative", "1")),
    *_versions("mai-ui", ("mai-ui", "relative", "1")),
    *_versions("gui-owl", (r"gui-owl-1\.5", "relative", "1.5"), (r"gui-owl-\d+b", "absolute", "1")),
    *_versions("holo", (r"holo-?3\b", "relative", "3"), (r"holo-?1\b", "absolute", "1")),
    *_versions("ui-venus", (r"ui-venus-2\b", "relative", "2"), (r"ui-venus-1\.5", "relative", "1.5")),
    *_versions("ui-venus", ("ui-venus-navi", "absolute", "1")),
    _qwen(r"qwen2\.5-vl", "absolute", "conclusion"),
    _qwen("qwen(2-vl|3-vl|3\\.[56])", "relative", "action"),
    Published(r"glm-4\.[156]v", "relative", "androidworld", {}),
)


def published(model: str) -> Published | None:
    """The published model that a hub id or a directory names, by its last part that names one."""
    parts = reversed(model.lower().replace("--", "/").split("/"))
    return next((row for part in parts for row in PUBLISHED if re.search(row.name, part)), None)


def coordinates_of(agent: AgentOptions) -> str | None:
    """How the agent reads points: "relative", "absolute", or "scale", which its prompt explains.

    None of an agent of which nothing is known.
    """
    if agent.import_path is None and agent.kind == "androidworld":
        return "scale" if isinstance(agent.options.get("coordinates", 1000), int) else None
    if agent.import_path is not None:
        return None
    if agent.kind == "mobile-use":
        return str(agent.options.get("coordinates", "relative"))
    rows = [row for row in PUBLISHED if row.agent == agent.kind and "version" in row.options]
    version = str(agent.options.get("version") or (rows[0].options["version"] if rows else ""))
    own = next((row.coordinates for row in rows if row.options["version"] == version), None)
    own = own or ("relative" if rows else None)
    return str(agent.options.get("coordinates") or own) if own else None
