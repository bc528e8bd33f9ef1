"""The sections `worker.rewards` and `judge`: what a step earns, and what decides on an episode's success."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from distrl.configs.section import Count, NonNegative, Positive, Section, one_of

if TYPE_CHECKING:
    from distrl.configs.schema import Config


class RewardConfig(Section):
    """Parts of the reward besides the outcome. `repetition` is κ: −κ, −2κ, … while an action repeats on an
    unchanged screen. `require_complete`: success counts only if the agent said that it is done. `source`: who
    says whether it is a success, the environment's own check or the section `judge`."""

    source: Literal["environment", "judge"] = "environment"
    repetition: NonNegative = 0.05
    invalid: NonNegative = 0.1
    require_complete: bool = True


class JudgeConfig(Section):
    """Common keys of judges, for `worker.rewards.source: judge` and for `distrl evaluate --judge`.

    `when` end: one verdict on the finished episode. steps: on every screen of it, in order; the first success
    ends the episode there, and later steps are dropped (DistRL's evaluator).

    Finished episodes wait in a queue on disk, at most `max_waiting` of them (then a worker starts no more),
    and are judged by `threads`. An episode without a verdict is judged again after `retry_s`, twice that, …
    up to ten minutes; after `patience_s` it is submitted unjudged.
    """

    when: Literal["end", "steps"] = "end"
    threads: Count = 1
    max_waiting: Count = 256
    retry_s: Positive = 5.0
    patience_s: Positive = 1800.0

    @property
    def name(self) -> str:
        """As verdicts and files name the judge."""
        import_path = getattr(self, "import_path", None)
        return str(import_path.rpartition(":")[2] if import_path else getattr(self, "kind", ""))


class GroundTruthConfig(JudgeConfig):
    """The environment's own check, to compare with."""

    kind: Literal["ground_truth"] = "ground_truth"


class VlmConfig(JudgeConfig):
    """A vision-language model behind an HTTP endpoint, asked as in DistRL, appendix A.2.

    `url` is the base of an OpenAI-compatible API, such as https://HOST/v1, or of Gemini's; empty: the
    provider's own. The key is read from the environment variable `key_env`, and nowhere else; an empty
    `key_env` sends none.

    The model sees the last `screenshots` screens, at most `max_pixels` wide or high, and `examples`: a YAML
    file of solved questions with pictures, "builtin" for those of this package, null for none. It is asked
    `votes` times at `temperature`; a verdict needs the same answer from more than half of the votes, and from
    `agreement` of them; else the episode is unjudged.

    An answer that is none, or an error that another try may mend, is tried `attempts` times, with a pause
    that doubles from `backoff_s` (or is what the endpoint asks for, up to a minute). `calls_per_minute` is
    kept by waiting. After `max_calls`, or `max_cost` by the prices, nothing more is asked: what comes then is
    unjudged. Both count per process. Answers are kept in `cache`, a folder, under the digest of model,
    question and pictures, apart for each task; null keeps none.
    """

    kind: Literal["vlm"] = "vlm"
    api: Literal["openai", "gemini"] = "openai"
    url: str = ""
    model: str = ""
    key_env: str = "DISTRL_JUDGE_KEY"
    screenshots: Annotated[int, Field(ge=1, le=16)] = 2
    max_pixels: Annotated[int, Field(ge=64)] = 1024
    examples: str | None = "builtin"
    votes: Annotated[int, Field(ge=1, le=15)] = 1
    agreement: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    temperature: NonNegative = 0.0
    max_tokens: Count = 512
    timeout_s: Positive = 60.0
    attempts: Count = 4
    backoff_s: Positive = 1.0
    calls_per_minute: Positive | None = None
    max_calls: Count | None = None
    max_cost: Positive | None = None
    price_input: NonNegative = 0.0
    price_output: NonNegative = 0.0
    cache: str | None = None

    @model_validator(mode="after")
    def _votes_differ_only_by_chance(self) -> VlmConfig:
        if self.votes > 1 and not self.temperature:
            raise ValueError(
                f"votes={self.votes} at temperature 0 are one answer {self.votes} times; "
                "set temperature above 0, or votes to 1"
            )
        if self.max_cost is not None and not (self.price_input or self.price_output):
            raise ValueError("max_cost needs prices; set price_input and price_output, per million tokens")
        return self


class LocalJudgeConfig(JudgeConfig):
    """A judge that `distrl train-judge` has fitted. `path` is its directory.

    An episode whose verdict is less sure than `min_confidence` (0.5: any will do) is unjudged.
    """

    kind: Literal["local"] = "local"
    path: str = ""
    min_confidence: Annotated[float, Field(ge=0.5, lt=1.0)] = 0.5


class Rule(Section):
    """A rule of the judge `rules`, for the tasks that it fits; empty fields ask for nothing.

    For which tasks: `task` is a pattern of task ids (as in file names: *), `template` and `goal` regular
    expressions; named groups of `goal` can be used in the others, as in {name}, and so can the task's params.

    What must be there at the end: `app` in front (pattern), regular expressions that all (`text`) or none
    (`not_text`) of the screen's texts fit, `typed` and `tapped`: what the agent has typed, and where it has
    tapped, as [left, top, right, bottom] in shares of the screen; `last`: the kinds of its last actions;
    `max_steps`.
    """

    task: str = "*"
    template: str = ""
    goal: str = ""
    app: str = ""
    text: list[str] = []
    not_text: list[str] = []
    typed: list[str] = []
    tapped: list[Annotated[list[float], Field(min_length=4, max_length=4)]] = []
    last: list[str] = []
    max_steps: Count | None = None


class RulesConfig(JudgeConfig):
    """Rules that a user writes: here in `rules`, or in the YAML file `path`, or both, these first."""

    kind: Literal["rules"] = "rules"
    path: str = ""
    rules: list[Rule] = []


class CustomJudgeConfig(JudgeConfig):
    """A judge of your own: `import_path` names its class, which is made with `options`."""

    kind: Literal["custom"] = "custom"
    import_path: str
    options: dict[str, Any] = {}


AnyJudge = Annotated[
    GroundTruthConfig | RulesConfig | VlmConfig | LocalJudgeConfig | CustomJudgeConfig | None,
    Field(discriminator="kind"),
    one_of("ground_truth"),
]


def check_judge(config: Config) -> None:
    """Refuses rewards of a judge that there is not, or that could not be asked.

    Raises:
        ValueError: Names the key, its value and what to set.
    """
    judge, rewards = config.judge, config.worker.rewards
    if judge is not None and judge.when == "steps" and rewards.require_complete:
        raise ValueError(
            "judge.when 'steps' ends an episode where the judge sees success, whether the agent says so or "
            "not; set worker.rewards.require_complete to false"
        )
    if rewards.source != "judge":
        return
    if judge is None:
        raise ValueError("worker.rewards.source 'judge' needs a judge; set judge.kind")
    if judge.kind == "ground_truth":
        raise ValueError(
            "judge.kind 'ground_truth' repeats the environment; set worker.rewards.source to 'environment'"
        )
