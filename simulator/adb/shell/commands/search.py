"""Commands that look for patterns in text and change what they find: grep, sed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from distrl.simulator.adb.shell import brackets
from distrl.simulator.adb.shell.call import Call, Command, Failure, decode, encode
from distrl.simulator.adb.shell.commands.options import Options, inputs, lines_of, parse

_SWAPPED = "(){}|+?"


def posix(pattern: str, extended: bool) -> str:
    """A POSIX basic or extended regular expression in Python's syntax."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "[":
            end = brackets.end_of(pattern, at, ("^",))
            if end is None:
                return "".join(out) + re.escape(pattern[at:])
            out.append(brackets.in_python(pattern[at:end], ("^",)))
            at = end
            continue
        if char == "\\" and at + 1 < len(pattern):
            at += 1
            out.append(_escaped(pattern[at], extended))
        elif char in _SWAPPED and not extended:
            out.append("\\" + char)
        elif char == "*" and (not out or out[-1] in ("(", "|", "^")):
            out.append(r"\*")
        else:
            out.append(char)
        at += 1
    return "".join(out)


def _escaped(char: str, extended: bool) -> str:
    if char in _SWAPPED and not extended:
        return char
    if char in "<>":
        return r"\b"
    return "\\" + char if char in "wWsSbB123456789" or not char.isalnum() else char


def compiled(pattern: str, extended: bool, flags: int = 0) -> re.Pattern[str]:
    """The pattern, ready to search with. Raises Failure when it is none."""
    try:
        return re.compile(posix(pattern, extended), flags)
    except (re.error, OverflowError) as error:
        raise Failure(f"bad REGEX '{pattern}': {error}") from error


def _matcher(call: Call, options: Options) -> re.Pattern[str]:
    patterns = options["e"].split("\n") if "e" in options else options.rest.pop(0).split("\n")
    if "F" in options:
        made = "|".join(map(re.escape, patterns))
    else:
        extended = "E" in options or call.name == "egrep"
        made = "|".join(f"(?:{compiled(pattern, extended).pattern})" for pattern in patterns)
    if "w" in options:
        made = rf"(?<!\w)(?:{made})(?!\w)"
    if "x" in options:
        made = f"^(?:{made})$"
    return re.compile(made, re.I if "i" in options else 0)


async def grep(call: Call) -> int:
    """grep [-EFivwxcnoqslHhrm NUM] [-A|-B|-C NUM] [-e] PATTERN [FILE…]"""
    if call.name == "fgrep":
        call.args.insert(0, "-F")
    options = parse(call, "EFivwxcnoqslLHhrRaIz", "eABCm")
    if "e" not in options and not options.rest:
        raise Failure("no REGEX", 2)
    matcher = _matcher(call, options)
    if not options.rest and not {"A", "B", "C", "c", "l", "L", "o"} & set(options):
        return await _grep_stream(call, options, matcher)
    paths = _below(call, options.rest) if {"r", "R"} & set(options) else options.rest
    call.shell.status = 0
    named = ("H" in options or len(paths) > 1 or bool({"r", "R"} & set(options))) and "h" not in options
    total = 0
    for path, data in await inputs(call, paths):
        lines = [decode(line) for line in lines_of(data)]
        places = [place for place, line in enumerate(lines) if bool(matcher.search(line)) != ("v" in options)]
        if "m" in options:
            places = places[: call.integer(options["m"])]
        total += len(places)
        await call.write("".join(_report(call, options, matcher, lines, places, path, named)))
    failed = call.shell.status and "s" not in options
    return 2 if failed else int(total == 0)


async def _grep_stream(call: Call, options: Options, matcher: re.Pattern[str]) -> int:
    """Standard input line by line, as it comes: what follows a log sees each line at once."""
    found = number = 0
    limit = call.integer(options["m"]) if "m" in options else 0
    async for raw in call.lines():
        number += 1
        line = decode(raw)
        if bool(matcher.search(line)) == ("v" in options):
            continue
        found += 1
        if "q" in options:
            return 0
        prefix = ("(standard input):" if "H" in options else "") + (f"{number}:" if "n" in options else "")
        await call.line(prefix + line)
        if found == limit:
            break
    return int(found == 0)


def _below(call: Call, paths: list[str]) -> list[str]:
    """The regular files below `paths`."""
    found = []
    for path in paths or ["."]:
        real = call.path(path)
        if call.files.exists(real) and call.files.stat(real).is_dir:
            base = call.files.real(real)
            found += [
                path.rstrip("/") + name[len(base) :]
                for name, node in call.files.tree(base)
                if not (node.is_dir or node.is_link)
            ]
        else:
            found.append(path)
    return found


def _report(
    call: Call,
    options: Options,
    matcher: re.Pattern[str],
    lines: list[str],
    places: list[int],
    path: str,
    named: bool,
) -> Iterator[str]:
    """What grep prints about one file."""
    name = "(standard input)" if path == "-" else path
    prefix = f"{name}:" if named else ""
    if "q" in options:
        return
    if "l" in options or "L" in options:
        if bool(places) == ("l" in options):
            yield f"{name}\n"
        return
    if "c" in options:
        yield f"{prefix}{len(places)}\n"
        return
    before = call.integer(options.get("B", options.get("C", "0")))
    after = call.integer(options.get("A", options.get("C", "0")))
    last, chosen = -1, set(places)
    for place in places:
        for number in range(max(last + 1, place - before), min(len(lines), place + after + 1)):
            if (before or after) and last >= 0 and number > last + 1:
                yield "--\n"
            last = number
            mark = ":" if number in chosen else "-"
            head = (f"{name}{mark}" if named else "") + (f"{number + 1}{mark}" if "n" in options else "")
            if "o" in options:
                yield from (
                    f"{head}{found.group()}\n" for found in matcher.finditer(lines[number]) if found.group()
                )
            else:
                yield f"{head}{lines[number]}\n"


@dataclass(frozen=True)
class _Edit:
    """One command of a sed script.

    Attributes:
        first, last: Whether line number `n` (of `count`) with this text begins and ends the range.
        verb: "s", "d", "p" or "q".
        pattern, text, times, printed: For "s".
    """

    first: Callable[[int, int, str], bool] | None
    last: Callable[[int, int, str], bool] | None
    negated: bool
    verb: str
    pattern: re.Pattern[str] | None = None
    text: str = ""
    times: int = 1
    printed: bool = False


async def sed(call: Call) -> int:
    """sed [-nEri] [-e] SCRIPT [FILE…]: the commands s, d, p and q, with line and pattern addresses."""
    options = parse(call, "nErsi", "e")
    script = options.get("e") or (options.rest.pop(0) if options.rest else "")
    if not script:
        raise Failure("no pattern")
    edits = _script(script, "E" in options or "r" in options)
    found = await inputs(call, options.rest)
    for path, data in found:
        text = _edited(edits, [decode(line) for line in lines_of(data)], "n" not in options)
        if "i" in options and path != "-":
            call.files.write(call.path(path), encode(text))
        else:
            await call.write(text)
    return call.shell.status


def _script(script: str, extended: bool) -> list[_Edit]:
    edits, rest = [], script.strip()
    while rest:
        first, rest = _address(rest, extended)
        last = None
        if rest.startswith(","):
            last, rest = _address(rest[1:], extended)
        rest = rest.lstrip()
        negated = rest.startswith("!")
        rest = rest[negated:].lstrip()
        verb, rest = rest[:1], rest[1:]
        if verb == "s":
            edit, rest = _substitution(first, last, negated, rest, extended)
            edits.append(edit)
        elif verb and verb in "dpq":
            edits.append(_Edit(first, last, negated, verb))
        else:
            raise Failure(f"bad pattern '{script}'@{len(script) - len(rest)}")
        rest = rest.lstrip("; \n")
    return edits


def _address(text: str, extended: bool) -> tuple[Callable[[int, int, str], bool] | None, str]:
    text = text.lstrip()
    number = re.match(r"\d+", text)
    if number:
        wanted = int(number.group()[:9])
        return (lambda n, count, line: n == wanted), text[number.end() :]
    if text.startswith("$"):
        return (lambda n, count, line: n == count), text[1:]
    if text.startswith("/"):
        pattern, rest = _delimited(text[1:], "/")
        matcher = compiled(pattern, extended)
        return (lambda n, count, line: matcher.search(line) is not None), rest
    return None, text


def _delimited(text: str, mark: str) -> tuple[str, str]:
    """What stands before the next unescaped `mark`, and what follows it."""
    out: list[str] = []
    at = 0
    while at < len(text) and text[at] != mark:
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
            out.append(text[at] if text[at] == mark else "\\" + text[at])
        else:
            out.append(text[at])
        at += 1
    if at >= len(text):
        raise Failure(f"unterminated '{text}'")
    return "".join(out), text[at + 1 :]


def _substitution(
    first: Callable[[int, int, str], bool] | None,
    last: Callable[[int, int, str], bool] | None,
    negated: bool,
    text: str,
    extended: bool,
) -> tuple[_Edit, str]:
    if not text:
        raise Failure("bad pattern 's'")
    pattern, rest = _delimited(text[1:], text[0])
    new, rest = _delimited(rest, text[0])
    flags = re.match(r"[gpIi0-9]*", rest)
    assert flags is not None
    letters = flags.group()
    matcher = compiled(pattern, extended, re.I if "i" in letters.lower() else 0)
    times = 0 if "g" in letters else 1
    return _Edit(first, last, negated, "s", matcher, new, times, "p" in letters), rest[flags.end() :]


def _replacement(text: str) -> Callable[[re.Match[str]], str]:
    parts = re.split(r"(\\.|&)", text, flags=re.S)

    def made(found: re.Match[str]) -> str:
        out = []
        for part in parts:
            if part == "&":
                out.append(found.group())
            elif re.fullmatch(r"\\[0-9]", part):
                out.append((found.group(int(part[1])) or "") if int(part[1]) <= found.re.groups else "")
            else:
                out.append({"\\n": "\n", "\\t": "\t"}.get(part, part[1:] if part.startswith("\\") else part))
        return "".join(out)

    return made


def _edited(edits: list[_Edit], lines: list[str], printing: bool) -> str:
    out: list[str] = []
    active: set[int] = set()
    for number, line in enumerate(lines, 1):
        deleted = quitting = False
        for place, edit in enumerate(edits):
            if _chosen(edit, place, active, number, len(lines), line) == edit.negated:
                continue
            if edit.verb == "s" and edit.pattern is not None:
                line, times = edit.pattern.subn(_replacement(edit.text), line, count=edit.times)
                if times and edit.printed:
                    out.append(line)
            elif edit.verb == "p":
                out.append(line)
            elif edit.verb == "d":
                deleted = True
                break
            elif edit.verb == "q":
                quitting = True
                break
        if printing and not deleted:
            out.append(line)
        if quitting:
            break
    return "".join(line + "\n" for line in out)


def _chosen(edit: _Edit, place: int, active: set[int], number: int, count: int, line: str) -> bool:
    """Whether the edit's addresses choose this line; `active` are the ranges that have begun."""
    if edit.first is None:
        return True
    if edit.last is None:
        return edit.first(number, count, line)
    if place in active:
        if edit.last(number, count, line):
            active.discard(place)
        return True
    if edit.first(number, count, line):
        active.add(place)
        return True
    return False


COMMANDS: dict[str, Command] = {"egrep": grep, "fgrep": grep, "grep": grep, "sed": sed}
