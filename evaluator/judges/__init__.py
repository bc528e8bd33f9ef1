"""Judges by name, and how one is built. Add a judge as one file and one line here, or set `import_path`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from distrl.configs.judge import JudgeConfig
from distrl.core.errors import ConfigError
from distrl.core.importing import choose
from distrl.core.user_errors import build
from distrl.evaluator.judges.base import Judge

JUDGES: dict[str, str] = {
    "ground_truth": "distrl.evaluator.judges.ground_truth:GroundTruthJudge",
    "rules": "distrl.evaluator.judges.rules:RulesJudge",
    "vlm": "distrl.evaluator.judges.vlm.judge:VlmJudge",
    "local": "distrl.evaluator.judges.local.judge:LocalJudge",
}


def build_judge(config: JudgeConfig) -> Judge:
    """The judge.

    Raises:
        ConfigError: There is no such judge, or a setting such as its key is missing.
        JudgeError: Its files cannot be read.
        MissingDependency: It needs a package that is not installed.
    """
    if not config.is_set:
        raise ConfigError("No judge is configured.", f"Set judge.kind to one of {', '.join(JUDGES)}.")
    found = choose(JUDGES, config.kind, config.import_path)
    if config.import_path is not None:
        judge: Judge = build(found, config.options, "judge")
    elif config.kind == "ground_truth":
        judge = found()
    else:
        judge = found(getattr(config, config.kind))
    return judge


_VLM_KEYS = {
    *("api", "url", "model", "screenshots", "max_pixels"),
    *("examples", "votes", "agreement", "temperature", "max_tokens"),
}


def identity(config: JudgeConfig) -> dict[str, Any]:
    """The settings that change verdicts, and digests of the files that they name.

    Two judges of the same kind that differ in them are two judges. Deadlines, prices and quotas are not
    included: an interrupted session can continue with others.
    """
    common = config.model_dump(mode="json", include={"kind", "import_path", "options", "when"})
    if config.import_path is not None:
        return common
    if config.kind == "vlm":
        asked = config.vlm.model_dump(mode="json", include=_VLM_KEYS)
        return {**common, **asked, "files": _digest(config.vlm.examples)}
    if config.kind == "rules":
        return {**common, **config.rules.model_dump(mode="json"), "files": _digest(config.rules.path)}
    if config.kind == "local":
        local = config.local.model_dump(mode="json", include={"path", "min_confidence"})
        weights = Path(config.local.path).expanduser() / "judge.safetensors"
        return {**common, **local, "files": _digest(str(weights))}
    return common


def _digest(path: str | None) -> str:
    """The digest of a file's bytes; "" if there is no such file."""
    file = Path(path).expanduser() if path else None
    if file is None or not file.is_file():
        return ""
    return hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()
