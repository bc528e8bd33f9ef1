"""Commands that make, cut and count text: echo, printf, cat, head, tail, cut, grep, sort, tr, wc, …"""

from __future__ import annotations

import asyncio
import re

from distrl.simulator.adb.shell.call import Call, Command, Failure, decode, encode
from distrl.simulator.adb.shell.commands.options import Options, inputs, lines_of, parse, split_lines

_BACKSLASH = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "v": "\v",
    "\\": "\\",
}
MAX_TEXT = 1 << 22
"""Most bytes that yes, seq or printf print."""


def unescape(text: str) -> str:
    r"""Decodes \n, \t, \0NNN, \xHH, …; \c is left to the caller."""

    def one(found: re.Match[str]) -> str:
        char = found.group(1)
        if char[0] == "x" and len(char) > 1:
            return decode(bytes([int(char[1:], 16)]))
        if char[0] in "01234567":
            return decode(bytes([int(char, 8) & 255]))
        return _BACKSLASH.get(char, "\\" + char)

    return re.sub(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,4}|.)", one, text, flags=re.S)


async def echo(call: Call) -> int:
    """echo [-neE] [WORD…]"""
    words, newline, escapes = list(call.args), True, False
    while words and re.fullmatch("-[neE]+", words[0]):
        newline = newline and "n" not in words[0]
        escapes = "e" in words[0] or (escapes and "E" not in words[0])
        words.pop(0)
    text = " ".join(words)
    if escapes:
        before, cut, _ = text.partition("\\c")
        text, newline = unescape(before), newline and not cut
    await call.write(text + "\n" if newline else text)
    return 0


async def printf(call: Call) -> int:
    """printf FORMAT [ARGUMENT…]"""
    if not call.args:
        raise Failure("Needs 1 argument")
    format_, rest = call.args[0], call.args[1:]
    out = [_format(format_, rest)]
    while rest and sum(map(len, out)) < MAX_TEXT:
        before = len(rest)
        out.append(_format(format_, rest))
        if len(rest) == before:
            break
    await call.write("".join(out))
    return 0


def _format(format_: str, rest: list[str]) -> str:
    """One round of printf; takes the arguments that it uses from `rest`."""

    def one(found: re.Match[str]) -> str:
        spec, kind = found.group(1), found.group(2)
        if kind == "%":
            return "%"
        value = rest.pop(0) if rest else ""
        if len(re.sub(r"\D", "", spec)) > 5:
            return value
        if kind == "b":
            return unescape(value)
        if kind in "sc":
            return ("%" + spec + "s") % (value[:1] if kind == "c" else value)
        if kind in "eEfgG":
            return ("%" + spec + kind) % (float(value) if re.fullmatch(r"-?\d+(\.\d+)?", value) else 0.0)
        return ("%" + spec + ("d" if kind in "iu" else kind)) % _integer(value)

    parts = re.split(r"(%%|%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z])", format_)
    done = []
    for part in parts:
        found = re.fullmatch(r"%([-+ #0]*\d*(?:\.\d+)?)([%sdiuxXobceEfgG])", part)
        done.append(one(found) if found else unescape(part))
    return "".join(done)


def _integer(text: str) -> int:
    if text[:1] in ("'", '"') and len(text) > 1:
        return ord(text[1])
    try:
        return int(text, 0)
    except ValueError:
        digits = re.match(r"[-+]?\d+", text)
        return int(digits.group()) if digits else 0


async def cat(call: Call) -> int:
    """cat [FILE…]"""
    options = parse(call, "uetAvn")
    status = 0
    for path in options.rest or ["-"]:
        if path == "-":
            async for chunk in call.chunks():
                await call.write(chunk)
            continue
        try:
            await call.write(call.files.read(call.path(path)))
        except OSError as error:
            await call.complain(path, error)
            status = 1
    return status


async def head(call: Call) -> int:
    """head [-n LINES | -c BYTES | -LINES] [FILE…]"""
    options = parse(call, "qv", "nc", digits="n")
    for _, data in await inputs(call, options.rest, stream=False):
        lines = call.integer(options.get("n", "10"))
        if "c" in options:
            await call.write(data[: call.integer(options["c"])])
        else:
            await call.write(b"".join(split_lines(data)[:lines]))
    if not options.rest:
        await _head_stdin(call, options)
    return call.shell.status


async def _head_stdin(call: Call, options: Options) -> None:
    if "c" in options:
        await call.write((await call.read_all())[: call.integer(options["c"])])
        return
    left = call.integer(options.get("n", "10"))
    if left <= 0:
        await call.write(b"".join(split_lines(await call.read_all())[:left]))
        return
    async for line in call.lines():
        await call.write(line + b"\n")
        left -= 1
        if left == 0:
            return


async def tail(call: Call) -> int:
    """tail [-n [+]LINES | -c BYTES | -LINES] [FILE…]"""
    options = parse(call, "fqv", "nc", digits="n")
    for _, data in await inputs(call, options.rest):
        text = options.get("c", options.get("n", "10"))
        count = abs(call.integer(text))
        parts = [data[at : at + 1] for at in range(len(data))] if "c" in options else split_lines(data)
        kept = parts[max(0, count - 1) :] if text.startswith("+") else parts[-count:] if count else []
        await call.write(b"".join(kept))
    return call.shell.status


async def wc(call: Call) -> int:
    """wc [-lwcm] [FILE…]"""
    options = parse(call, "lwcm")
    shown = [letter for letter in "lwmc" if letter in options] or list("lwc")
    total = dict.fromkeys(shown, 0)
    found = await inputs(call, options.rest)
    for name, data in found:
        text = decode(data)
        counts = {"l": data.count(b"\n"), "w": len(data.split()), "c": len(data), "m": len(text)}
        for letter in shown:
            total[letter] += counts[letter]
        await call.line(_counts([counts[letter] for letter in shown], name))
    if len(found) > 1:
        await call.line(_counts(list(total.values()), "total"))
    return call.shell.status


def _counts(numbers: list[int], name: str) -> str:
    text = str(numbers[0]) if len(numbers) == 1 else " ".join(f"{number:7d}" for number in numbers)
    return f"{text} {name}" if name and name != "-" else text


async def cut(call: Call) -> int:
    """cut -c|-b|-f LIST [-d DELIMITER] [-s] [FILE…]"""
    options = parse(call, "sn", "bcfd")
    kind = next((letter for letter in "fcb" if letter in options), "")
    if not kind:
        raise Failure("Needs -fFcCb")
    ranges = _ranges(call, options[kind])
    delimiter = options.get("d", "\t")[:1]
    lines = []
    for _, data in await inputs(call, options.rest):
        for raw in lines_of(data):
            line = decode(raw)
            if kind != "f":
                lines.append("".join(_pick(list(line), ranges)))
            elif delimiter in line:
                lines.append(delimiter.join(_pick(line.split(delimiter), ranges)))
            elif "s" not in options:
                lines.append(line)
    await call.write("".join(f"{line}\n" for line in lines))
    return call.shell.status


def _ranges(call: Call, text: str) -> list[tuple[int, int]]:
    """`2,4-6,8-` as pairs of first and last, from 1."""
    found = []
    for part in re.split("[, ]", text):
        first, dash, last = part.partition("-")
        start = call.integer(first) if first else 1
        found.append((start, (call.integer(last) if last else 1 << 30) if dash else start))
    return found


def _pick(parts: list[str], ranges: list[tuple[int, int]]) -> list[str]:
    return [part for place, part in enumerate(parts, 1) if any(low <= place <= high for low, high in ranges)]


async def tr(call: Call) -> int:
    """tr [-cds] SET [SET]"""
    options = parse(call, "cCds")
    if not options.rest:
        raise Failure("Needs 1 argument")
    first = _characters(options.rest[0])
    second = _characters(options.rest[1]) if len(options.rest) > 1 else ""
    chosen = set(first)
    inverted = "c" in options or "C" in options
    table = dict(zip(first, second.ljust(len(first), second[-1:]) if second else first, strict=False))
    out: list[str] = []
    async for chunk in call.chunks():
        for char in chunk.decode("latin-1"):
            inside = (char in chosen) != inverted
            if inside and "d" in options:
                continue
            new = (second[-1:] or char if inverted else table.get(char, char)) if inside else char
            if "s" in options and out and out[-1] == new and new in (second or first):
                continue
            out.append(new)
    await call.write("".join(out).encode("latin-1"))
    return 0


_CLASSES = {
    "[:lower:]": "abcdefghijklmnopqrstuvwxyz",
    "[:upper:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "[:digit:]": "0123456789",
    "[:space:]": " \t\n\r\v\f",
    "[:alpha:]": "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    "[:alnum:]": "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
    "[:punct:]": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
}


def _characters(text: str) -> str:
    """A set of `tr` as the bytes it stands for."""
    for name, characters in _CLASSES.items():
        text = text.replace(name, characters)
    raw = encode(unescape(text)).decode("latin-1")
    return re.sub(
        r"(.)-(.)",
        lambda found: "".join(map(chr, range(ord(found.group(1)), ord(found.group(2)) + 1))),
        raw,
        flags=re.S,
    )


async def sort(call: Call) -> int:
    """sort [-rnuf] [FILE…]"""
    options = parse(call, "rnufbs", "kt")
    lines = [line for _, data in await inputs(call, options.rest) for line in lines_of(data)]

    def key(line: bytes) -> tuple[float, bytes]:
        field = line
        if "k" in options:
            place = call.integer(options["k"].split(",")[0].rstrip("nr"))
            delimiter = encode(options["t"]) if options.get("t") else None
            parts = line.split(delimiter)
            field = parts[place - 1] if 0 < place <= len(parts) else b""
        number = re.match(rb"\s*(-?\d+(\.\d+)?)", field)
        numeric = "n" in options or options.get("k", "").endswith("n")
        return (float(number.group(1)) if number else 0.0) if numeric else 0.0, field

    lines.sort(key=key, reverse="r" in options)
    if "u" in options:
        lines = list(dict.fromkeys(lines))
    await call.write(b"".join(line + b"\n" for line in lines))
    return call.shell.status


async def uniq(call: Call) -> int:
    """uniq [-cdu] [FILE]"""
    options = parse(call, "cdu")
    groups: list[tuple[bytes, int]] = []
    for _, data in await inputs(call, options.rest[:1]):
        for line in lines_of(data):
            if groups and groups[-1][0] == line:
                groups[-1] = (line, groups[-1][1] + 1)
            else:
                groups.append((line, 1))
    for line, count in groups:
        if ("d" in options and count == 1) or ("u" in options and count > 1):
            continue
        await call.write((f"{count:7d} ".encode() if "c" in options else b"") + line + b"\n")
    return call.shell.status


async def rev(call: Call) -> int:
    """rev [FILE…]"""
    for _, data in await inputs(call, parse(call, "").rest):
        await call.write("".join(decode(line)[::-1] + "\n" for line in lines_of(data)))
    return call.shell.status


async def tee(call: Call) -> int:
    """tee [-a] [FILE…]"""
    options = parse(call, "ai")
    data = await call.read_all()
    await call.write(data)
    for path in options.rest:
        call.files.write(call.path(path), data, append="a" in options)
    return 0


async def seq(call: Call) -> int:
    """seq [FIRST [STEP]] LAST"""
    numbers = [call.integer(arg) for arg in call.args]
    if not 1 <= len(numbers) <= 3:
        raise Failure("Needs 1 argument")
    first = numbers[0] if len(numbers) > 1 else 1
    step = numbers[1] if len(numbers) == 3 else 1
    if step == 0 or abs(numbers[-1] - first) // abs(step) > MAX_TEXT // 4:
        raise Failure("too many numbers")
    await call.write("".join(f"{n}\n" for n in range(first, numbers[-1] + (1 if step > 0 else -1), step)))
    return 0


async def yes(call: Call) -> int:
    """yes [WORD…]: for as long as somebody reads."""
    line = encode((" ".join(call.args) or "y") + "\n")
    while True:
        await call.write(line * max(1, 4096 // len(line)))
        await asyncio.sleep(0)  # whoever reads may take everything at once: let others have their turn


COMMANDS: dict[str, Command] = {
    "cat": cat,
    "cut": cut,
    "echo": echo,
    "head": head,
    "printf": printf,
    "rev": rev,
    "seq": seq,
    "sort": sort,
    "tail": tail,
    "tee": tee,
    "tr": tr,
    "uniq": uniq,
    "wc": wc,
    "yes": yes,
}
