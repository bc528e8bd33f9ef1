"""The simulated phone's system properties, as a freshly booted emulator has them."""

from __future__ import annotations

MAX_VALUE = 91
"""Most bytes in the value of a property that is not read-only (PROP_VALUE_MAX - 1)."""
RELEASES = {28: "9", 29: "10", 30: "11", 31: "12", 32: "12", 33: "13", 34: "14", 35: "15", 36: "16"}
"""Android releases by API level."""
PATCHES = {28: "2019-12-05", 29: "2020-12-05", 30: "2021-12-05", 31: "2022-02-05", 32: "2022-08-05"}


def boot(serial: str, api_level: int, density: int) -> dict[str, str]:
    """The properties after a boot.

    Args:
        serial: The device's serial, e.g. "emulator-5554".
        api_level: Android API level.
        density: Dots per inch.
    """
    release = RELEASES.get(api_level, str(api_level - 20))
    build = f"SP{api_level}.250603.001"
    fingerprint = f"distrl/sdk_simphone_x86_64/simphone:{release}/{build}/9410603:userdebug/test-keys"
    values = {
        "dalvik.vm.heapsize": "512m",
        "debug.force_rtl": "false",
        "dev.bootcomplete": "1",
        "gsm.operator.alpha": "T-Mobile",
        "gsm.operator.numeric": "310260",
        "gsm.sim.state": "LOADED",
        "init.svc.adbd": "running",
        "init.svc.bootanim": "stopped",
        "init.svc.surfaceflinger": "running",
        "init.svc.zygote": "running",
        "net.bt.name": "Android",
        "persist.sys.locale": "en-US",
        "persist.sys.timezone": "UTC",
        "persist.sys.usb.config": "adb",
        "qemu.hw.mainkeys": "0",
        "ro.adb.secure": "0",
        "ro.boot.hardware": "ranchu",
        "ro.boot.qemu": "1",
        "ro.boot.serialno": serial,
        "ro.bootloader": "unknown",
        "ro.build.characteristics": "emulator",
        "ro.build.date": "Tue Jun  3 00:00:00 UTC 2025",
        "ro.build.date.utc": "1748908800",
        "ro.build.display.id": f"sdk_simphone_x86_64-userdebug {release} {build} 9410603 test-keys",
        "ro.build.fingerprint": fingerprint,
        "ro.build.flavor": "sdk_simphone_x86_64-userdebug",
        "ro.build.id": build,
        "ro.build.product": "simphone",
        "ro.build.tags": "test-keys",
        "ro.build.type": "userdebug",
        "ro.build.version.codename": "REL",
        "ro.build.version.incremental": "9410603",
        "ro.build.version.release": release,
        "ro.build.version.sdk": str(api_level),
        "ro.build.version.security_patch": PATCHES.get(api_level, "2025-05-05"),
        "ro.crypto.state": "encrypted",
        "ro.debuggable": "1",
        "ro.distrl.simphone": "1",
        "ro.hardware": "ranchu",
        "ro.kernel.qemu": "1",
        "ro.opengles.version": "196609",
        "ro.product.board": "goldfish_x86_64",
        "ro.product.brand": "distrl",
        "ro.product.cpu.abi": "x86_64",
        "ro.product.cpu.abilist": "x86_64,arm64-v8a",
        "ro.product.cpu.abilist64": "x86_64,arm64-v8a",
        "ro.product.cpu.abilist32": "",
        "ro.product.device": "simphone",
        "ro.product.first_api_level": str(api_level),
        "ro.product.locale": "en-US",
        "ro.product.manufacturer": "distrl",
        "ro.product.model": "Simphone One",
        "ro.product.name": "sdk_simphone_x86_64",
        "ro.secure": "1",
        "ro.serialno": serial,
        "ro.sf.lcd_density": str(density),
        "ro.zygote": "zygote64",
        "service.adb.root": "0",
        "sys.boot_completed": "1",
        "sys.usb.state": "adb",
        "vold.decrypt": "trigger_restart_framework",
    }
    return values
