"""Commands that change the shell itself: cd, export, set, read, exit, eval, …"""

from __future__ import annotations

import asyncio
import re

from distrl.simulator.adb.shell import arithmetic
from distrl.simulator.adb.shell.call import Call, Command, Failure, decode
from distrl.simulator.adb.shell.control import UNSUPPORTED, Leave
from distrl.simulator.adb.shell.lexer import is_name

NO_JOB_STATUS, TERMINATED_STATUS = 127, 143
"""What `wait` gives for a process that is no child, and for one that was ended: 128 + SIGTERM."""


async def cd(call: Call) -> int:
    """cd [DIR | -]"""
    shell = call.shell
    args = [arg for arg in call.args if arg not in ("-P", "-L", "--")]
    target = args[0] if args else shell.variables.get("HOME", "/")
    if target == "-":
        target = shell.variables.get("OLDPWD", shell.cwd)
        await call.line(target)
    try:
        path = call.files.real(call.path(target))
        found = call.files.stat(path)
    except OSError as error:
        raise Failure(f"{target}: {error.strerror}", 2) from error
    if not found.is_dir:
        raise Failure(f"{target}: Not a directory", 2)
    # The shell remembers the path as it was written, links and all.
    parts: list[str] = []
    for part in call.path(target).split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    shell.variables["OLDPWD"] = shell.cwd
    shell.cwd = shell.variables["PWD"] = "/" + "/".join(parts)
    return 0


async def pwd(call: Call) -> int:
    """pwd [-P]"""
    await call.line(call.files.real(call.shell.cwd) if "-P" in call.args else call.shell.cwd)
    return 0


async def export(call: Call) -> int:
    """export [NAME[=VALUE]]…"""
    shell = call.shell
    names = [arg for arg in call.args if not arg.startswith("-")]
    if not names:
        await call.write(
            "".join(f"export {name}={shell.variables.get(name, '')}\n" for name in sorted(shell.exported))
        )
    for arg in names:
        name, equals, value = arg.partition("=")
        if not is_name(name):
            raise Failure(f"{name}: is not an identifier")
        if equals:
            shell.variables[name] = value
        shell.exported.add(name)
    return 0


async def local(call: Call) -> int:
    """local, typeset, readonly NAME[=VALUE]…: sets variables, local and typeset until the function ends."""
    shell = call.shell
    for arg in call.args:
        name, equals, value = arg.partition("=")
        if not is_name(name):
            return await _refused(call, f"{call.name} {arg}")
        outer = None if call.name == "readonly" else shell.outer_values
        if outer is not None and name not in outer:
            outer[name] = shell.variables.pop(name, None)
        if equals:
            shell.variables[name] = value
    return 0


async def unset(call: Call) -> int:
    """unset [-f] NAME…"""
    for name in call.args:
        if "-f" in call.args:
            call.shell.functions.pop(name, None)
        else:
            call.shell.variables.pop(name, None)
            call.shell.exported.discard(name)
    return 0


async def set_(call: Call) -> int:
    """set [-e | +e | -o errexit | +o errexit] [--] [ARG…]; other options are refused."""
    shell = call.shell
    if not call.args:
        await call.write("".join(f"{name}={value}\n" for name, value in sorted(shell.variables.items())))
    args = list(call.args)
    while args and args[0] != "--" and args[0][:1] in ("-", "+") and len(args[0]) > 1:
        sign, letters = args[0][0], args.pop(0)[1:]
        names = [args.pop(0) if args else ""] if letters == "o" else list(letters)
        for name in names:
            if sign == "+":
                shell.options.discard(name[0:1])
            elif name not in ("e", "errexit"):
                return await _refused(call, f"set {sign}{letters} {name if letters == 'o' else ''}".rstrip())
            else:
                shell.options.add("e")
    if args:
        shell.positional = args[args[0] == "--" :]
    return 0


async def shift(call: Call) -> int:
    """shift [N]"""
    count = call.integer(call.args[0]) if call.args else 1
    if not 0 <= count <= len(call.shell.positional):
        raise Failure("nothing to shift")
    del call.shell.positional[:count]
    return 0


async def read(call: Call) -> int:
    """read [-r] [NAME…]: one line of standard input into variables."""
    names = [arg for arg in call.args if not arg.startswith("-")] or ["REPLY"]
    data = bytearray()
    while True:
        byte = await call.stdin.read(1)
        if byte in (b"", b"\n"):
            break
        data += byte
    line = decode(bytes(data))
    if "-r" not in call.args:
        line = re.sub(r"\\(.)", r"\1", line)
    separators = call.shell.variables.get("IFS", " \t\n")
    values = [line.strip(separators) if separators else line]
    if separators:
        values = re.split(f"[{re.escape(separators)}]+", values[0], maxsplit=len(names) - 1)
    for place, name in enumerate(names):
        call.shell.variables[name] = values[place] if place < len(values) else ""
    return 0 if byte or data else 1


def _status(call: Call) -> int:
    return call.integer(call.args[0]) if call.args else call.shell.status


async def exit_(call: Call) -> int:
    """exit [STATUS]"""
    raise Leave("exit", _status(call))


async def return_(call: Call) -> int:
    """return [STATUS]"""
    raise Leave("return", _status(call))


async def break_(call: Call) -> int:
    """break [LOOPS]"""
    raise Leave("break", call.integer(call.args[0]) if call.args else 1)


async def continue_(call: Call) -> int:
    """continue [LOOPS]"""
    raise Leave("continue", call.integer(call.args[0]) if call.args else 1)


async def eval_(call: Call) -> int:
    """eval [WORD…]"""
    return await call.shell.evaluate(" ".join(call.args))


async def source(call: Call) -> int:
    """. FILE"""
    if not call.args:
        raise Failure("missing argument")
    return await call.shell.evaluate(decode(call.files.read(call.path(call.args[0]))))


async def exec_(call: Call) -> int:
    """exec COMMAND [ARG…]: runs it in place of the shell."""
    raise Leave("exit", await call.shell.call(call.args))


async def command(call: Call) -> int:
    """command [-v | -V] NAME [ARG…]"""
    if call.args[:1] not in (["-v"], ["-V"]):
        return await call.shell.call(call.args) if call.args else 0
    status = 0
    for name in call.args[1:]:
        where = call.shell.where(name)
        status = status if where else 1
        if where:
            await call.line(f"{name} is {where}" if call.args[0] == "-V" else where)
    return status


async def type_(call: Call) -> int:
    """type NAME…"""
    status = 0
    for name in call.args:
        where = call.shell.where(name)
        kind = "a function" if name in call.shell.functions else "a shell builtin" if where == name else where
        status = status if where else 1
        await call.line(f"{name} is {kind}" if where else f"{name} not found")
    return status


async def wait(call: Call) -> int:
    """wait [PROCESS…]: until the commands in the background have ended; 0, or the last named one's status."""
    jobs, status = call.shell.jobs, 0
    for pid in [call.integer(arg) for arg in call.args] or list(jobs):
        status = await _waited(jobs.pop(pid)) if pid in jobs else NO_JOB_STATUS
    return status if call.args else 0


async def _waited(job: asyncio.Task[int]) -> int:
    (outcome,) = await asyncio.gather(job, return_exceptions=True)
    return outcome if isinstance(outcome, int) else TERMINATED_STATUS


async def let(call: Call) -> int:
    """let EXPRESSION…"""
    value = 0
    for arg in call.args:
        try:
            value = arithmetic.evaluate(arg, call.shell.variables)
        except arithmetic.ArithmeticFailure as error:
            raise Failure(f"{arg}: {error}") from error
    return int(not value)


async def nothing(call: Call) -> int:
    """:, hash: accepted, without effect."""
    return 0


async def unsupported(call: Call) -> int:
    """alias, trap, umask: an error that ends a script, which would go wrong without them."""
    return await _refused(call, call.name)


async def _refused(call: Call, what: str) -> int:
    await call.shell.complain(f"{what}: {UNSUPPORTED}")
    raise Leave("error", 2)


BUILTINS: dict[str, Command] = {
    ".": source,
    ":": nothing,
    "alias": unsupported,
    "break": break_,
    "cd": cd,
    "command": command,
    "continue": continue_,
    "eval": eval_,
    "exec": exec_,
    "exit": exit_,
    "export": export,
    "hash": nothing,
    "let": let,
    "local": local,
    "pwd": pwd,
    "read": read,
    "readonly": local,
    "return": return_,
    "set": set_,
    "shift": shift,
    "source": source,
    "trap": unsupported,
    "type": type_,
    "typeset": local,
    "umask": unsupported,
    "unset": unset,
    "wait": wait,
}
