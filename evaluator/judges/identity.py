"""What a judge's verdicts hang on: two judges of the same kind that differ in it are two judges."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from distrl.configs.judge import JudgeConfig

_ASKED = {
    *("api", "url", "model", "screenshots", "max_pixels"),
    *("examples", "votes", "agreement", "temperature", "max_tokens"),
}


def identity(config: JudgeConfig) -> dict[str, Any]:
    """The keys that change verdicts, and digests of the files that they name.

    Deadlines, prices and quotas are not among them: with others an interrupted session goes on.
    """
    common = config.model_dump(mode="json", include={"kind", "import_path", "options", "when"})
    if config.import_path is not None:
        return common
    if config.kind == "vlm":
        asked = config.vlm.model_dump(mode="json", include=_ASKED)
        return {**common, **asked, "files": _digest(config.vlm.examples)}
    if config.kind == "rules":
        return {**common, **config.rules.model_dump(mode="json"), "files": _digest(config.rules.path)}
    if config.kind == "local":
        local = config.local.model_dump(mode="json", include={"path", "min_confidence"})
        weights = Path(config.local.path).expanduser() / "judge.safetensors"
        return {**common, **local, "files": _digest(str(weights))}
    return common


def _digest(path: str | None) -> str:
    """The digest of a file's bytes; "" if it is none."""
    file = Path(path).expanduser() if path else None
    if file is None or not file.is_file():
        return ""
    return hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()
