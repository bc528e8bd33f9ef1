"""Making the judge that a configuration names."""

from __future__ import annotations

from distrl.configs.judge import JudgeConfig
from distrl.core.errors import ConfigError
from distrl.core.importing import choose
from distrl.evaluator.judges import JUDGES
from distrl.evaluator.judges.base import Judge
from distrl.workers.user_code import build


def build_judge(config: JudgeConfig) -> Judge:
    """The judge.

    Raises:
        ConfigError: There is none of that kind, or it misses something, such as its key.
        JudgeError: Its files cannot be read.
        MissingDependency: It needs a package that is not installed.
    """
    if not config.is_set:
        raise ConfigError("There is no judge.", f"Set judge.kind to one of {', '.join(JUDGES)}.")
    found = choose(JUDGES, config.kind, config.import_path)
    if config.import_path is not None:
        judge: Judge = build(found, config.options, "judge")
    elif config.kind == "ground_truth":
        judge = found()
    else:
        judge = found(getattr(config, config.kind))
    return judge
