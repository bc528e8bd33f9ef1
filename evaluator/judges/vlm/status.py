"""Reading the status that an answer ends with: only what is said plainly counts, and nothing against it.

A line of its own decides, "Status: success" or "Status: failure". An answer that says another status
anywhere, in whatever words, contradicts itself and says nothing: no reward hangs on what was meant.
"""

from __future__ import annotations

import json
import re
from typing import Any

MAX_STATUSES = 100
"""An answer that names more of them has gone in circles."""

_SUCCESS = r"success|successful|succeeded"
_FAILURE = r"failure|failed|unsuccessful|incomplete"
_MEANS = {**dict.fromkeys(_SUCCESS.split("|"), True), **dict.fromkeys(_FAILURE.split("|"), False)}

_MARKS = re.compile(r"[*_`\"'“”‘’]")
"""Of Markdown and quotes; they change nothing of what is said."""
_FENCE = re.compile(r"^```(?:json)?\s*(.*?)\s*```$", re.DOTALL)

_STATUS = re.compile(
    r"\b(status|verdict|answer|result|outcome|conclusion|correction)\s*"
    r"(?:[:：=]|\s[–—-]\s|\b(?:is|was|should be|remains|becomes)\b:?)\s*",
    re.IGNORECASE,
)
_OWN_LINE = re.compile(r"[\s>#{•\d.)-]*(?:(?:final|overall|task)\s+)?", re.IGNORECASE)
"""What stands before "status" on a line of its own: marks of lists and headings, and which status it is."""
_KEY = re.compile(r"(?:(?:final|overall|task)[\s_-]*)?status", re.IGNORECASE)

_WORD = re.compile(rf"\b(?:{_SUCCESS}|{_FAILURE})\b", re.IGNORECASE)
_LONE = re.compile(rf"^[ \t>#•-]*({_SUCCESS}|{_FAILURE})[ \t.!]*$", re.IGNORECASE | re.MULTILINE)
_YES, _NO = "[✅✓✔☑]", "[❌✗✘✖]"
_TICKED = re.compile(
    rf"\b((?:{_SUCCESS})[.!]*)[ \t]*{_YES}\ufe0f?|\b((?:{_FAILURE})[.!]*)[ \t]*{_NO}\ufe0f?", re.IGNORECASE
)
"""A status and a mark that says the same."""
_PLAIN = re.compile(rf"({_SUCCESS}|{_FAILURE})\b(?:[\s.!}}]*$|\s*[.,;:(–—-]+\s*(.*)$)", re.IGNORECASE)
"""A status, and after a stop why."""
_NOT_DONE = r"\bnot\s+(?:yet\s+|been\s+)*(?:done|complete|met|achieve|fulfil)"
_OF_OUTCOME = re.compile(rf"\b(?:un)?succe|\bfail|\bincomplete\b|\bpartial|{_NOT_DONE}", re.IGNORECASE)
"""What a sentence says of a status that is the task's, and not, say, Wi-Fi's."""
_GUESS = r"\b(?:or|if|unless|maybe|perhaps|possibly|probably|likely|unclear|unsure|unknown|assuming)\b|\?"
_BACK = r"\b(?:wait|actually|correction|second thoughts?|reconsider\w*|mistaken)\b"
_NOT = r"\b(?:not|(?:is|are|was|were|do|does|did|has|have|had|wo|would|should)nt)\b"
"""Apostrophes are gone by then, with the other marks."""
_UNDONE = (
    rf"{_NOT}\s+(?:(?:yet|been|be|fully|quite|really|an?|the)\s+)*(?:all\b|every|both\b|done\b|complet|finish|met\b|"
    r"achiev|fulfil|reach|succe|set\b|save|sent\b|creat|added\b|work|happen|confirm|verif|correct|right\b|sure|"
    r"certain|enough)"
)
_AGREES = {
    True: re.compile(
        rf"\b(?:no|not|without)\s+(?:an?\s+|any\s+)?(?:{_FAILURE})\b"
        r"|\bnothing\s+(?:\w+\s+){0,2}(?:missing|pending|wrong)\b",
        re.IGNORECASE,
    ),
    False: re.compile(rf"\b(?:no|not|without)\s+(?:an?\s+|any\s+)?(?:{_SUCCESS})\b", re.IGNORECASE),
}
"""What agrees with a status, although a word in it alone would not."""
_DOUBT = {
    True: re.compile(
        rf"{_GUESS}|{_BACK}|{_UNDONE}|\b(?:never|yet|but|however|although|though|except|{_FAILURE}|fails?|unable)\b"
        r"|\b(?:can|could)(?:\s*not|n?t)\b|\bpart(?:ly|ial)|\bonly\s+(?:some|half|one\s+of)\b"
        r"|\b(?:almost|nearly|missing|pending|wrong)\b|\b(?:no|without)\s+(?:any\s+)?succe"
        rf"|\bno\s*(?:[.,;:!]|\s[–—-]|$)|{_NO}",
        re.IGNORECASE,
    ),
    False: re.compile(
        rf"{_GUESS}|{_BACK}|\b(?:{_SUCCESS})\b|{_NOT}\s+(?:been\s+|an?\s+)?fail|{_YES}", re.IGNORECASE
    ),
}
"""What the explanation on the line of a status must not say. That something is off, or not there, is no
doubt: it may be what was asked for, and were it one it would cost successes alone."""
_NEGATION = re.compile(rf"{_NOT}|\b(?:no|never|only|without)\b", re.IGNORECASE)
"""What changes a status within a sentence."""
_RETRACTED = {
    True: re.compile(rf"{_BACK}|\b(?:but|however|{_FAILURE})\b|{_NOT_DONE}", re.IGNORECASE),
    False: re.compile(rf"{_BACK}|\b(?:{_SUCCESS})\b", re.IGNORECASE),
}
"""What must not come after that line."""


def read_status(text: str) -> bool | None:
    """Whether an answer says success; None if it says neither, or both, or anything in between.

    What a model thought aloud, up to `</think>`, is not its answer. A JSON object says it in `status`.
    """
    answer = text.rpartition("</think>")[2].strip()
    fenced = _FENCE.match(answer)
    try:
        data = json.loads(fenced[1] if fenced else answer, object_pairs_hook=_every_value)
    except (ValueError, RecursionError):
        said = _said(answer)
    else:
        said = _of_object(data)
    return said.pop() if len(said) == 1 else None


def _said(answer: str) -> set[bool | None]:
    """All statuses in a text, None for one that is not plain; nothing if no line of its own has one."""
    plain = _TICKED.sub(r"\1\2", _MARKS.sub("", answer))
    said: set[bool | None] = {_MEANS[word.lower()] for word in _LONE.findall(plain)}
    rest: str | None = None
    statuses = list(_STATUS.finditer(plain))
    if len(statuses) > MAX_STATUSES:
        return {None}
    for found in statuses:
        before = plain[: found.start()].rpartition("\n")[2]
        value, _, after = plain[found.end() :].partition("\n")
        is_status = found[1].lower() == "status"
        if is_status and found[0].strip()[-1] in ":：=–—-" and _OWN_LINE.fullmatch(before):
            said.add(_of_line(value.strip()))
            rest = after
        elif is_status and _OF_OUTCOME.search(clause := re.split(r"[.,;:(]", value)[0]):
            said.add(_of_clause(clause))
        elif _PLAIN.match(value):
            said.add(_of_line(value.strip()))
    if rest is None:
        return set()
    is_retracted = any(says in said and _RETRACTED[says].search(rest) for says in (True, False))
    return {None} if is_retracted else said


def _of_line(value: str) -> bool | None:
    """A status, alone or with why; None where that casts doubt on it, or it is another word."""
    found = _PLAIN.match(value)
    if found is None:
        return None
    says = _MEANS[found[1].lower()]
    return None if _DOUBT[says].search(_AGREES[says].sub("", found[2] or "")) else says


def _of_clause(clause: str) -> bool | None:
    """What is said of a status within a sentence; None if that is not plain."""
    says = {_MEANS[word.lower()] for word in _WORD.findall(clause)}
    rest = _WORD.sub("", clause)
    is_plain = len(says) == 1 and not any(_DOUBT[one].search(rest) for one in says)
    return says.pop() if is_plain and not _NEGATION.search(rest) else None


def _of_object(data: Any) -> set[bool | None]:
    """All statuses of a JSON object."""
    pairs = data.items() if isinstance(data, dict) else ()
    found = [value for key, values in pairs if _KEY.fullmatch(key.strip()) for value in values]
    return {_MEANS.get(one.strip().lower()) if isinstance(one, str) else None for one in found}


def _every_value(pairs: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    """A JSON object with all values of a key that is there twice."""
    found: dict[str, list[Any]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
