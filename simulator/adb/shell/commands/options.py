"""What commands share: options as getopt reads them, verbs, input from files or standard input."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from distrl.simulator.adb.shell.call import Call, Failure

Verb = Callable[[Call, list[str]], Awaitable[int]]
"""A command's own command: gets the call, and its arguments behind the verb."""


class Options(dict[str, str]):
    """The options of a call by letter or long name; `rest` are the other arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.rest: list[str] = []


def parse(call: Call, flags: str, valued: str = "", digits: str = "", first: bool = False) -> Options:
    """Reads the call's options.

    Args:
        call: The call.
        flags: Letters of options without a value.
        valued: Letters of options with one.
        digits: The option that `-12` is short for, "" for none.
        first: Whether options end at the first other argument.

    Raises:
        Failure: At an unknown option, or one whose value is missing.
    """
    found, args = Options(), list(call.args)
    while args:
        arg = args.pop(0)
        if arg == "--":
            found.rest.extend(args)
            break
        if len(arg) < 2 or arg[0] != "-":
            found.rest.append(arg)
            if first:
                found.rest.extend(args)
                break
        elif arg.startswith("--"):
            name, _, value = arg[2:].partition("=")
            found[name] = value
        elif digits and arg[1:].isdecimal():
            found[digits] = arg[1:]
        else:
            _letters(arg[1:], args, found, flags, valued)
    return found


def _letters(letters: str, args: list[str], found: Options, flags: str, valued: str) -> None:
    for place, letter in enumerate(letters):
        if letter in valued:
            value = letters[place + 1 :]
            if not value:
                if not args:
                    raise Failure(f"Missing argument to {letter}")
                value = args.pop(0)
            found[letter] = value
            return
        if letter not in flags:
            raise Failure(f"Unknown option '{letter}' (see \"toybox help\")")
        found[letter] = ""


def lines_of(data: bytes) -> list[bytes]:
    """Lines without their line ends."""
    found = data.split(b"\n")
    return found if found[-1] else found[:-1]


def split_lines(data: bytes) -> list[bytes]:
    """Lines with their line ends; the last may have none."""
    found = [line + b"\n" for line in lines_of(data)]
    if found and not data.endswith(b"\n"):
        found[-1] = found[-1][:-1]
    return found


async def inputs(call: Call, paths: list[str], stream: bool = True) -> list[tuple[str, bytes]]:
    """The named files with their bytes; standard input when none is named (and for "-").

    A file that cannot be read is named on standard error, and the shell's status becomes 1, which the command
    returns.
    """
    call.shell.status = 0
    found = []
    for path in paths or (["-"] if stream else []):
        if path == "-":
            found.append(("-", await call.read_all()))
            continue
        try:
            found.append((path, call.files.read(call.path(path))))
        except OSError as error:
            await call.complain(path, error)
            call.shell.status = 1
    return found


async def run_verb(call: Call, verbs: Mapping[str, Verb], title: str) -> int:
    """Does what the first argument says, as Android's shell commands (`cmd SERVICE VERB …`) do.

    Args:
        call: The call.
        verbs: What there is to do.
        title: What the command is called in its help.
    """
    if not call.args:
        await call.line(f"{title} commands:\n  help\n    Print this help text.")
        return 255
    work = verbs.get(call.args[0])
    if work is None:
        await call.error(f"Unknown command: {call.args[0]}")
        return 255
    return await work(call, call.args[1:])
