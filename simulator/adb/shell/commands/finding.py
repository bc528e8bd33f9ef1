"""Commands that look through directories: find, du, df."""

from __future__ import annotations

import stat as modes
from collections.abc import Callable

from distrl.simulator.adb.shell import patterns
from distrl.simulator.adb.shell.call import Call, Command, Failure
from distrl.simulator.adb.shell.commands.listing import human
from distrl.simulator.adb.shell.commands.options import parse

Test = Callable[[str, str], bool]


async def find(call: Call) -> int:
    """find [PATH…] [!] [-name|-iname|-path P] [-type f|d|l] [-maxdepth N] [-delete] [-exec CMD {} ;]"""
    args, roots = list(call.args), []
    while args and not args[0].startswith(("-", "!", "(")):
        roots.append(args.pop(0))
    depth, tests, actions = _find_tests(call, args)
    status = 0
    for root in roots or ["."]:
        try:
            found = _find_paths(call, root, depth)
        except OSError as error:
            await call.complain(root, error)
            status = 1
            continue
        chosen = [path for path in found if all(test(path, call.path(path)) for test in tests)]
        if not actions:
            await call.write("".join(f"{path}\n" for path in chosen))
        for path in chosen if actions != ["-delete"] else reversed(chosen):
            if actions == ["-delete"]:
                call.files.remove(call.path(path))
            elif actions:
                await call.shell.call([path if word == "{}" else word for word in actions])
    return status


def _find_paths(call: Call, root: str, depth: tuple[int, int]) -> list[str]:
    call.files.lstat(call.path(root))
    base = call.files.real(call.path(root)).rstrip("/")
    found = [root] if depth[0] <= 0 else []
    for path, _ in call.files.tree(base or "/"):
        below = path[len(base) :]
        if depth[0] <= below.count("/") <= depth[1]:
            found.append(root.rstrip("/") + below)
    return found


def _find_tests(call: Call, args: list[str]) -> tuple[tuple[int, int], list[Test], list[str]]:
    depth, tests, actions = [0, 1 << 30], [], list[str]()
    negated = False
    while args:
        arg = args.pop(0)
        if arg in ("!", "-not"):
            negated = True
            continue
        if arg == "-print":
            continue
        if arg == "-delete":
            actions = ["-delete"]
            continue
        if not args:
            raise Failure(f"bad arg '{arg}'")
        if arg == "-exec":
            end = args.index(";") if ";" in args else len(args)
            actions, args = args[:end], args[end + 1 :]
            continue
        value = args.pop(0)
        if arg in ("-maxdepth", "-mindepth"):
            depth[arg == "-maxdepth"] = call.integer(value)
            continue
        test = _find_test(call, arg, value)
        tests.append((lambda path, full, test=test: not test(path, full)) if negated else test)
        negated = False
    return (depth[0], depth[1]), tests, actions


def _find_test(call: Call, kind: str, value: str) -> Test:
    if kind == "-type":
        letter = {"f": modes.S_IFREG, "d": modes.S_IFDIR, "l": modes.S_IFLNK, "c": modes.S_IFCHR}.get(value)
        if letter is None:
            raise Failure(f"bad -type '{value}'")
        return lambda path, full: modes.S_IFMT(call.files.lstat(full).mode) == letter
    if kind in ("-name", "-path", "-iname"):
        lower = kind == "-iname"
        wanted = [(value.lower() if lower else value, True)]

        def named(path: str, full: str) -> bool:
            text = path if kind == "-path" else path.rstrip("/").rpartition("/")[2]
            return patterns.matches(wanted, text.lower() if lower else text)

        return named
    if kind == "-size" or kind.startswith("-m"):
        raise Failure(f"{kind} is not supported here")
    raise Failure(f"bad arg '{kind}'")


async def du(call: Call) -> int:
    """du [-shkam] [FILE…]"""
    options = parse(call, "shkamcx", "d")
    status = 0
    for path in options.rest or ["."]:
        try:
            base = call.files.real(call.path(path))
            size = sum(node.stat().size for _, node in call.files.tree(base)) + call.files.stat(base).size
        except OSError as error:
            await call.complain(path, error)
            status = 1
            continue
        await call.line(f"{human(size) if 'h' in options else (size + 1023) // 1024}\t{path}")
    return status


TOTAL_KIB = 6_291_456
"""Size of the phone's data partition as `df` shows it."""


async def df(call: Call) -> int:
    """df [-hk] [FILE…]"""
    options = parse(call, "hkHaP")
    used = call.files.used() // 1024 + 1_048_576
    rows = [
        ("tmpfs", 1_017_028, 1_112, "/dev"),
        ("/dev/block/dm-0", 1_011_312, 1_008_240, "/"),
        ("/dev/block/dm-5", TOTAL_KIB, used, "/data"),
        ("/dev/fuse", TOTAL_KIB, used, "/storage/emulated"),
    ]
    if options.rest:
        where = [call.files.real(call.path(path)) for path in options.rest]
        rows = [
            max((row for row in rows if path.startswith(row[3])), key=lambda row: len(row[3]))
            for path in where
        ]
    title = "Size  Used Avail" if "h" in options else "1K-blocks    Used Available"
    lines = [f"{'Filesystem':<16} {title} Use% Mounted on"]
    for name, total, taken, mount in rows:
        percent = f"{taken * 100 // total}%"
        if "h" in options:
            sizes = " ".join(f"{human(kib * 1024):>5}" for kib in (total, taken, total - taken))
        else:
            sizes = f"{total:>9} {taken:>7} {total - taken:>9}"
        lines.append(f"{name:<16} {sizes} {percent:>4} {mount}")
    await call.write("".join(f"{line}\n" for line in lines))
    return 0


COMMANDS: dict[str, Command] = {"df": df, "du": du, "find": find}
