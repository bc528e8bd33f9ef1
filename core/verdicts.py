"""What a judge says of an episode, and what asking it took."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from distrl.core.records import Number, Record


class Spent(Record):
    """What asking a model behind an endpoint took, with all calls that failed and answers that were none.

    Attributes:
        calls: Requests that were sent.
        input_tokens, output_tokens: As the endpoint counted them; 0 where it does not say.
        cost: In the currency of the prices that are configured; 0 without prices.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Number = 0.0

    @classmethod
    def total(cls, parts: Iterable[Spent]) -> Spent:
        """The sum of all."""
        found = list(parts)
        return cls(**{name: sum(getattr(one, name) for one in found) for name in cls.model_fields})

    def describe(self) -> str:
        """In a few words; the cost only where there are prices."""
        cost = f", cost {self.cost:.4g}" if self.cost else ""
        return f"{self.calls:,} calls, {self.input_tokens:,} + {self.output_tokens:,} tokens{cost}"


class Verdict(Record):
    """What a judge says of an episode, and how it came to say so.

    Attributes:
        success: Whether the task counts as solved.
        score: Credit in [0, 1]; of a judge that is unsure, how probable success is to it.
        reason: Why, in one sentence for people.
        is_decided: False if the judge came to no verdict: the episode is unjudged, whatever `success` says.
        judge: The judge's name, as in the section `judge` of the configuration.
        model: What judged: a model's name or a trained judge's directory.
        step: The number of steps that were looked at, counted from 1; 0 for all.
        prompt: What a model was asked, without its pictures.
        answers: What it answered, one text per vote.
        calls, input_tokens, output_tokens, cost: What it took to ask, as in `Spent`: votes, garbage, and
            tries that led nowhere.
        is_cached: Whether the answers came from the cache, for nothing.
    """

    success: bool
    score: Number = Field(ge=0.0, le=1.0)
    reason: str
    is_decided: bool = True
    judge: str = ""
    model: str = ""
    step: int = 0
    prompt: str = ""
    answers: tuple[str, ...] = ()
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Number = 0.0
    is_cached: bool = False

    @classmethod
    def none(cls, judge: str, reason: str, asked: Verdict | None = None) -> Verdict:
        """That of a judge that came to no verdict, with what is known of how it was asked."""
        if asked is not None:
            return asked.model_copy(update={"reason": reason, "is_decided": False, "success": False})
        return cls(success=False, score=0.0, reason=reason, is_decided=False, judge=judge)

    @property
    def spent(self) -> Spent:
        """What it took to ask."""
        return Spent(**{name: getattr(self, name) for name in Spent.model_fields})

    def after(self, *earlier: Spent) -> Verdict:
        """The verdict with what was spent before it came."""
        spent = Spent.total([*earlier, self.spent])
        return self.model_copy(update={**dict(spent), "is_cached": self.is_cached and not spent.calls})
