"""Commands about the machine and its clock: date, id, uname, uptime, free, ip, reboot, …"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from distrl.simulator.adb.android_proc import BUILT, CORES, KERNEL, MEMORY_KIB
from distrl.simulator.adb.shell.call import Call, Command, Failure
from distrl.simulator.adb.shell.commands.options import parse

ADDRESS = "10.0.2.16"
"""The phone's address in the emulator's own network."""


async def date(call: Call) -> int:
    """date [-u] [-d @SECONDS] [+FORMAT]: the phone's clock passes by inputs; it cannot be set."""
    options = parse(call, "u", "drD")
    now = datetime.fromtimestamp(0, timezone.utc) + timedelta(seconds=int(call.system.clock()))
    if "d" in options:
        found = re.fullmatch(r"@(\d{1,10})", options["d"])
        if not found:
            raise Failure(f"bad date '{options['d']}'")
        now = datetime.fromtimestamp(int(found.group(1)), timezone.utc)
    elif "r" in options:
        now = datetime.fromtimestamp(call.files.stat(call.path(options["r"])).mtime, timezone.utc)
    if options.rest and not options.rest[0].startswith("+"):
        raise Failure("cannot set date: Operation not permitted")
    form = options.rest[0][1:] if options.rest else "%a %b %e %H:%M:%S %Z %Y"
    await call.line(formatted(now, form))
    return 0


_PARTS = {
    "T": "%H:%M:%S",
    "R": "%H:%M",
    "D": "%m/%d/%y",
    "F": "%Y-%m-%d",
    "n": "\n",
    "t": "\t",
    "r": "%I:%M:%S %p",
    "c": "%a %b %e %H:%M:%S %Y",
    "x": "%m/%d/%y",
    "X": "%H:%M:%S",
    "h": "%b",
}


def formatted(when: datetime, form: str) -> str:
    """A time by a format of `date`, in UTC."""

    def one(found: re.Match[str]) -> str:
        letter = found.group(2)
        if letter in _PARTS:
            return formatted(when, _PARTS[letter])
        if letter == "s":
            return str(int(when.timestamp()))
        if letter == "N":
            return "0" * int(found.group(1) or 9)
        if letter in "elk":
            value = {"e": when.day, "k": when.hour, "l": (when.hour - 1) % 12 + 1}[letter]
            return f"{value:2d}"
        if letter == "Z":
            return "UTC"
        return (
            when.strftime("%" + letter)
            if letter in "aAbBdHIjmMpSuUwWyYz"
            else letter
            if letter == "%"
            else found.group()
        )

    return re.sub(r"%([0-9]?)(.)", one, form)


_GROUPS = (
    "2000(shell),1004(input),1007(log),1011(adb),1015(sdcard_rw),1028(sdcard_r),1078(ext_data_rw),"
    "1079(ext_obb_rw),3001(net_bt_admin),3002(net_bt),3003(inet),3006(net_bw_stats),3009(readproc),3011(uhid)"
)


async def identity(call: Call) -> int:
    """id [-u|-g|-G|-n]; whoami; groups; logname"""
    uid = call.system.uid
    name = "root" if uid == 0 else "shell"
    if call.name in ("whoami", "logname"):
        await call.line(name)
        return 0
    options = parse(call, "ugGnrZ")
    groups = "" if uid == 0 else f" groups={_GROUPS}"
    context = f"u:r:{'su' if uid == 0 else 'shell'}:s0"
    if "Z" in options:
        await call.line(context)
    elif "u" in options or "g" in options:
        await call.line(name if "n" in options else str(uid))
    elif "G" in options or call.name == "groups":
        await call.line(name if "n" in options or call.name == "groups" else str(uid))
    else:
        await call.line(f"uid={uid}({name}) gid={uid}({name}){groups} context={context}")
    return 0


async def uname(call: Call) -> int:
    """uname [-asnrmvo]"""
    options = parse(call, "asnrvmo")
    parts = {"s": "Linux", "n": "localhost", "r": KERNEL, "v": BUILT, "m": "x86_64", "o": "Toybox"}
    chosen = [value for letter, value in parts.items() if letter in options or "a" in options]
    await call.line(" ".join(chosen) or "Linux")
    return 0


async def uptime(call: Call) -> int:
    """uptime"""
    minutes, when = (
        int(call.system.uptime) // 60,
        datetime.fromtimestamp(int(call.system.clock()), timezone.utc),
    )
    await call.line(
        f" {when:%H:%M:%S} up {minutes // 1440} days, {minutes // 60 % 24:2d}:{minutes % 60:02d},  0 users,"
        "  load average: 0.00, 0.00, 0.00"
    )
    return 0


async def free(call: Call) -> int:
    """free [-hkm]"""
    used = MEMORY_KIB - 1_000_000
    rows = (("Mem:", MEMORY_KIB, used, MEMORY_KIB - used), ("Swap:", 1_525_540, 0, 1_525_540))
    scale = 1024 if "-h" not in call.args and "-m" not in call.args and "-k" not in call.args else 1
    await call.line("                total        used        free      shared     buffers")
    for name, total, taken, left in rows:
        await call.line(
            f"{name:<6}" + "".join(f"{value * scale:12d}" for value in (total, taken, left, 0, 4096))
        )
    return 0


async def network(call: Call) -> int:
    """ifconfig, ip, netstat, ping: one interface, and no way out."""
    if call.name == "ping":
        host = next((arg for arg in reversed(call.args) if not arg.startswith("-")), "")
        raise Failure(f"unknown host {host}", 2)
    on = call.system.state["apps"]["settings"]["wifi"]
    if call.name == "ifconfig" and on:
        await call.write(
            "wlan0     Link encap:Ethernet  HWaddr 02:15:b2:00:00:00  Driver mac80211_hwsim\n"
            f"          inet addr:{ADDRESS}  Bcast:10.0.2.255  Mask:255.255.255.0 \n"
            "          UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1\n\n"
        )
    elif call.name == "ip" and on:
        await call.write(
            "14: wlan0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP group default "
            "qlen 1000\n"
            "    link/ether 02:15:b2:00:00:00 brd ff:ff:ff:ff:ff:ff\n"
            f"    inet {ADDRESS}/24 brd 10.0.2.255 scope global wlan0\n"
            "       valid_lft forever preferred_lft forever\n"
        )
    return 0


async def mount(call: Call) -> int:
    """mount"""
    text = call.files.read("/proc/mounts").decode()
    rows = [line.split() for line in text.splitlines()]
    await call.write("".join(f"{row[0]} on {row[1]} type {row[2]} ({row[3]})\n" for row in rows))
    return 0


async def constant(call: Call) -> int:
    """arch, hostname, nproc, tty, getenforce"""
    values = {"arch": "x86_64", "getenforce": "Enforcing", "hostname": "localhost", "nproc": str(CORES)}
    await call.line(values.get(call.name) or ("/dev/pts/0" if call.shell.tty else "not a tty"))
    return 0


async def quiet(call: Call) -> int:
    """clear, setenforce, ulimit, stty, start, stop, renice: accepted, without effect."""
    return 0


async def reboot(call: Call) -> int:
    """reboot [-p]: restarts the phone's system; connections stay, as far as this command can tell."""
    call.system.reboot()
    return 0


COMMANDS: dict[str, Command] = {
    **dict.fromkeys(("arch", "getenforce", "hostname", "nproc", "tty"), constant),
    **dict.fromkeys(("clear", "renice", "setenforce", "start", "stop", "stty", "ulimit"), quiet),
    **dict.fromkeys(("groups", "id", "logname", "whoami"), identity),
    **dict.fromkeys(("ifconfig", "ip", "netstat", "ping"), network),
    "date": date,
    "free": free,
    "mount": mount,
    "reboot": reboot,
    "uname": uname,
    "uptime": uptime,
}
