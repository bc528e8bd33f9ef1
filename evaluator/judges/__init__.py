"""Judges by name, and how one is built. Add a judge as one file and one line here, or set `import_path`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from distrl.configs.judge import (
    CustomJudgeConfig,
    GroundTruthConfig,
    JudgeConfig,
    LocalJudgeConfig,
    RulesConfig,
    VlmConfig,
)
from distrl.core.errors import ConfigError
from distrl.core.importing import choose, import_object
from distrl.core.user_errors import build
from distrl.evaluator.judges.base import Judge

JUDGES: dict[str, str] = {
    "ground_truth": "distrl.evaluator.judges.ground_truth:GroundTruthJudge",
    "rules": "distrl.evaluator.judges.rules:RulesJudge",
    "vlm": "distrl.evaluator.judges.vlm.judge:VlmJudge",
    "local": "distrl.evaluator.judges.local.judge:LocalJudge",
}


def build_judge(config: JudgeConfig | None) -> Judge:
    """The judge.

    Raises:
        ConfigError: There is no such judge, or a setting such as its key is missing.
        JudgeError: Its files cannot be read.
        MissingDependency: It needs a package that is not installed.
    """
    if config is None:
        raise ConfigError("No judge is configured.", f"Set judge.kind to one of {', '.join(JUDGES)}.")
    if isinstance(config, CustomJudgeConfig):
        judge: Judge = build(import_object(config.import_path), config.options, "judge")
        return judge
    found = choose(JUDGES, config.name)
    judge = found() if isinstance(config, GroundTruthConfig) else found(config)
    return judge


_KEYS = {
    "kind",
    "import_path",
    "options",
    "when",
    "path",
    "rules",
    "min_confidence",
    "url",
    "model",
    "screenshots",
    "examples",
    "votes",
    "temperature",
    "max_tokens",
}


def identity(config: JudgeConfig) -> dict[str, Any]:
    """The settings that change verdicts, and digests of the files that they name.

    Two judges of the same kind that differ in them are two judges. Deadlines, prices and quotas are not
    included: an interrupted session can continue with others.
    """
    found = config.model_dump(mode="json", include=_KEYS)
    if isinstance(config, VlmConfig):
        found["files"] = _digest(config.examples)
    if isinstance(config, RulesConfig):
        found["files"] = _digest(config.path)
    if isinstance(config, LocalJudgeConfig):
        found["files"] = _digest(str(Path(config.path).expanduser() / "judge.safetensors"))
    return found


def _digest(path: str | None) -> str:
    """The digest of a file's bytes; "" if there is no such file."""
    file = Path(path).expanduser() if path else None
    if file is None or not file.is_file():
        return ""
    return hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()
