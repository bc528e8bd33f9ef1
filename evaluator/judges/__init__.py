"""Judges by name, and how one is built. Add a judge as one file and one line here, or set `import_path`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from distrl.configs.judge import CustomJudgeConfig, GroundTruthConfig, JudgeConfig
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


_NOT_IDENTITY = {
    *("threads", "patience_s", "timeout_s", "attempts", "max_calls"),
    *("key_env", "price_input", "price_output"),
}


def identity(config: JudgeConfig) -> dict[str, Any]:
    """The settings that change verdicts, and digests of the files that they name.

    Two judges of the same kind that differ in them are two judges. Deadlines and prices are not included: an
    interrupted session can continue with others.
    """
    found = config.model_dump(mode="json", exclude=_NOT_IDENTITY)
    for name in ("path", "examples"):
        file = Path(found.get(name) or "").expanduser()
        file = file / "judge.safetensors" if file.is_dir() else file
        if file.is_file():
            found["files"] = hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()
    return found
