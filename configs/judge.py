"""The sections `worker.rewards` and `judge`: the reward of a step, and the judge of an episode's success."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from distrl.configs.section import Count, NonNegative, Positive, Section, one_of

if TYPE_CHECKING:
    from distrl.configs.schema import Config


class RewardConfig(Section):
    """The parts of the reward, and the definition of success.

    `source` selects whether the environment's own check or the section `judge` decides on success.
    `repetition` is the penalty κ for an action that repeats on an unchanged screen: −κ, −2κ, … while it
    does. `invalid` is the penalty for an invalid action. `require_complete` counts success only if the agent
    reported that it is done, or the environment ended the episode.
    """

    source: Literal["environment", "judge"] = "environment"
    repetition: NonNegative = 0.05
    invalid: NonNegative = 0.1
    require_complete: bool = True


class JudgeConfig(Section):
    """Common keys of judges, for `worker.rewards.source: judge` and for `distrl evaluate --judge`.

    `when` is "end" for one verdict on the finished episode, or "steps" for verdicts on all its screens in
    order: the first success ends the episode there (DistRL's evaluator). `threads` is the number of threads
    that judge finished episodes. `patience_s` is the time after which an episode without a verdict is
    submitted unjudged, in seconds.
    """

    when: Literal["end", "steps"] = "end"
    threads: Count = 1
    patience_s: Positive = 1800.0

    @property
    def name(self) -> str:
        """Name of the judge in verdicts and files."""
        import_path = getattr(self, "import_path", None)
        return str(import_path.rpartition(":")[2] if import_path else getattr(self, "kind", ""))


class GroundTruthConfig(JudgeConfig):
    """The environment's own check, to compare with."""

    kind: Literal["ground_truth"] = "ground_truth"


class VlmConfig(JudgeConfig):
    """A vision-language model behind an HTTP endpoint, prompted as in DistRL, appendix A.2.

    `url` is the base of an OpenAI-compatible API, such as https://HOST/v1, or for Gemini
    https://generativelanguage.googleapis.com/v1beta/openai; empty means OpenAI's own. `model` is the model's
    name there. `key_env` is the environment variable with the API key; empty sends no key.

    `screenshots` is the number of last screens that the model sees. `examples` is a YAML file of solved
    questions with images; "builtin" means those of this package. `votes` is the number of answers to each
    question; more than half must agree, or the episode is unjudged. `temperature` is the sampling
    temperature, and `max_tokens` the limit of an answer.

    `timeout_s` is the longest time for an answer, in seconds. `attempts` is the number of tries, if an
    answer is not valid or an error may be temporary. `max_calls` is the number of calls of a process after
    which episodes stay unjudged. `price_input` and `price_output` are the prices of a million tokens.
    """

    kind: Literal["vlm"] = "vlm"
    url: str = ""
    model: str = ""
    key_env: str = "DISTRL_JUDGE_KEY"
    screenshots: Annotated[int, Field(ge=1, le=16)] = 2
    examples: str | None = "builtin"
    votes: Annotated[int, Field(ge=1, le=15)] = 1
    temperature: NonNegative = 0.0
    max_tokens: Count = 512
    timeout_s: Positive = 60.0
    attempts: Count = 4
    max_calls: Count | None = None
    price_input: NonNegative = 0.0
    price_output: NonNegative = 0.0

    @model_validator(mode="after")
    def _votes_differ_only_by_chance(self) -> VlmConfig:
        if self.votes > 1 and not self.temperature:
            raise ValueError(
                f"votes={self.votes} at temperature 0 gives the same answer {self.votes} times; "
                "set temperature above 0, or votes to 1"
            )
        return self


class LocalJudgeConfig(JudgeConfig):
    """A judge that was fitted by `distrl train-judge`.

    `path` is the directory of the judge. `min_confidence` is the confidence below which an episode is
    unjudged; 0.5 accepts every verdict.
    """

    kind: Literal["local"] = "local"
    path: str = ""
    min_confidence: Annotated[float, Field(ge=0.5, lt=1.0)] = 0.5


NAME = re.compile(r"\{([A-Za-z_]\w*)\}")
"""A placeholder for a named group of the goal or a parameter of the task."""


def _regex(pattern: str) -> str:
    try:
        re.compile(NAME.sub("x", pattern))
    except re.error as error:
        raise ValueError(
            f"{pattern!r} is not a valid regular expression ({error}); escape special characters with \\"
        ) from error
    return pattern


def _box(box: list[float]) -> list[float]:
    if not (len(box) == 4 and 0.0 <= box[0] < box[2] <= 1.0 and 0.0 <= box[1] < box[3] <= 1.0):
        raise ValueError(f"{box} is not [left, top, right, bottom] in shares of the screen, from 0 to 1")
    return box


Regex = Annotated[str, AfterValidator(_regex)]


class Rule(Section):
    """A rule of the judge `rules`, which decides on the tasks that it matches. An empty key is not a
    condition.

    `task` is a pattern of task IDs, with * as in file names. `template` and `goal` are regular expressions
    for the task's template and goal; named groups of the latter can be used in the conditions as {name},
    like the task's params.

    `app` is a regular expression for the app in front at the end. `text`, `not_text` and `typed` list
    regular expressions: each must match a text of the last screen, no text of it, and a text that the agent
    has typed. `tapped` lists areas that the agent must have tapped, as [left, top, right, bottom] in shares
    of the screen. `last` lists the kinds of the last actions, in order. `max_steps` is the largest number of
    steps.
    """

    task: str = "*"
    template: Regex = ""
    goal: Regex = ""
    app: Regex = ""
    text: list[Regex] = []
    not_text: list[Regex] = []
    typed: list[Regex] = []
    tapped: list[Annotated[list[float], AfterValidator(_box)]] = []
    last: list[str] = []
    max_steps: Count | None = None


class RulesConfig(JudgeConfig):
    """Rules that you write. `rules` lists them; they come before those of the YAML file `path`."""

    kind: Literal["rules"] = "rules"
    path: str = ""
    rules: list[Rule] = []


class CustomJudgeConfig(JudgeConfig):
    """A judge of your own. `import_path` is its class as "pkg.mod:Name"; `options` are the keyword
    arguments.
    """

    kind: Literal["custom"] = "custom"
    import_path: str
    options: dict[str, Any] = {}


AnyJudge = Annotated[
    GroundTruthConfig | RulesConfig | VlmConfig | LocalJudgeConfig | CustomJudgeConfig | None,
    Field(discriminator="kind"),
    one_of("ground_truth"),
]


def check_judge(config: Config) -> None:
    """Rejects rewards from a judge that is missing or cannot give them."""
    judge, rewards = config.judge, config.worker.rewards
    if judge is not None and judge.when == "steps" and rewards.require_complete:
        raise ValueError(
            "judge.when 'steps' ends an episode when the judge detects success, even if the agent has not "
            "reported it; set worker.rewards.require_complete to false"
        )
    if rewards.source != "judge":
        return
    if judge is None:
        raise ValueError("worker.rewards.source 'judge' needs a judge; set judge.kind")
    if judge.kind in ("vlm", "local") and config.worker.screenshot_format == "none":
        raise ValueError(
            f"judge.kind {judge.kind!r} looks at screenshots, but worker.screenshot_format is 'none'; set it "
            "to jpeg"
        )
    has_elements = config.agent.kind == "elements" or "observe" in config.agent.options
    has_elements |= config.worker.elements != "none"
    rules = judge.rules if isinstance(judge, RulesConfig) else []
    if not has_elements and any(rule.text or rule.not_text for rule in rules):
        raise ValueError(
            "rules with text or not_text read the elements of the last screen, but worker.elements is "
            "'none'; set it to 'final'"
        )
    if judge.kind == "local" and config.worker.elements != "all":
        raise ValueError(
            f"judge.kind 'local' reads the elements of all screens, but worker.elements is "
            f"{config.worker.elements!r}; set worker.elements to 'all'"
        )
    if judge.kind == "ground_truth":
        raise ValueError(
            "judge.kind 'ground_truth' is the environment's own check; set worker.rewards.source "
            "to 'environment'"
        )
