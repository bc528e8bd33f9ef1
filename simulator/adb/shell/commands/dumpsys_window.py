"""`dumpsys` of what is on the screen: window, input, display, SurfaceFlinger, input_method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from distrl.simulator.adb.shell.commands.display import DISPLAY_ID

if TYPE_CHECKING:
    from distrl.simulator.adb.android import AndroidSystem

_FOCUS_IN_WINDOWS = 28
"""The last API level whose `dumpsys window windows` names the focus; later ones do so in `displays`."""


def _focus(system: AndroidSystem) -> str:
    task = system.activities.front
    # A display that is off has no focused window.
    window = task.window if system.screen_on else "null"
    return f"  mCurrentFocus={window}\n  mFocusedApp={task.record}\n"


def _displays(system: AndroidSystem) -> str:
    width, height = system.device.size
    density = system.density
    return (
        "WINDOW MANAGER DISPLAY CONTENTS (dumpsys window displays)\n"
        "  Display: mDisplayId=0 (organized)\n"
        f"    init={width}x{height} {density}dpi cur={width}x{height} app={width}x{height} "
        f"rng={width}x{width}-{height}x{height}\n"
        "    deferred=false mLayoutNeeded=false mTouchExcludeRegion=SkRegion()\n"
        "  mLayoutSeq=42\n"
        f"{_focus(system)}"
        "  DisplayRotation\n"
        "    mCurrentAppOrientation=SCREEN_ORIENTATION_UNSPECIFIED\n"
        "    mLastOrientation=-1\n"
        "    mRotation=ROTATION_0 mDeferredRotationPauseCount=0\n"
        "    mUserRotationMode=USER_ROTATION_LOCKED mUserRotation=ROTATION_0\n"
        f"  DisplayFrames w={width} h={height} r=0\n\n"
    )


def _windows(system: AndroidSystem) -> str:
    width, height = system.device.size
    text = ["WINDOW MANAGER WINDOWS (dumpsys window windows)\n"]
    place = 0
    for name in ("StatusBar", "NavigationBar0"):
        text.append(f"  Window #{place} Window{{{place + 0xABC1000:x} u0 {name}}}:\n")
        text.append("    mDisplayId=0 mOwnerUid=10090 package=com.android.systemui isVisible=true\n")
        place += 1
    if system.ime.shown:
        text.append(
            f"  Window #{place} Window{{{place + 0xABC1000:x} u0 InputMethod}}:\n    isVisible=true\n"
        )
        place += 1
    for order, task in enumerate(system.activities.tasks()):
        shown = str(order == 0 and system.screen_on).lower()
        text.append(
            f"  Window #{place} {task.window}:\n"
            f"    mDisplayId=0 rootTaskId={task.id} mOwnerUid={task.package.uid} showForAllUsers=false "
            f"package={task.package.name} appop=NONE\n"
            f"    Requested w={width} h={height} mLayoutSeq=42\n"
            f"    mActivityRecord={task.record}\n"
            f"    mHasSurface={shown} isReadyForDisplay()={shown} mWindowRemovalAllowed=false\n"
            f"    Frames: parent=[0,0][{width},{height}] display=[0,0][{width},{height}] "
            f"frame=[0,0][{width},{height}]\n"
            f"    isOnScreen={shown}\n    isVisible={shown}\n"
        )
        place += 1
    text.append(
        "\n  mGlobalConfiguration={1.0 310mcc260mnc [en_US] ldltr sw360dp port}\n  mHasPermanentDpad=false\n"
    )
    text.append("  mTopFocusedDisplayId=0\n")
    if system.api_level <= _FOCUS_IN_WINDOWS:
        text.append(_focus(system))
    return "".join(text)


def _policy(system: AndroidSystem) -> str:
    on = str(system.screen_on).lower()
    state = "SCREEN_STATE_ON" if system.screen_on else "SCREEN_STATE_OFF"
    return (
        "WINDOW MANAGER POLICY STATE (dumpsys window policy)\n"
        f"    mSystemReady=true mSystemBooted=true\n    mAwake={on} mScreenOnEarly={on} mScreenOnFully={on}\n"
        f"    mCurrentAppOrientation=SCREEN_ORIENTATION_UNSPECIFIED mCurrentRotation=ROTATION_0\n"
        f"    screenState={state}\n"
        f"    interactiveState=INTERACTIVE_STATE_{'AWAKE' if system.screen_on else 'SLEEP'}\n"
        "    mShowingDream=false mDreamingLockscreen=false mShowingLockscreen=false isKeyguardShowing=false\n"
        "    KeyguardServiceDelegate\n      showing=false\n      mIsShowing=false\n      secure=false\n"
        f"    mTopFullscreenOpaqueWindowState={system.activities.front.window}\n\n"
    )


def window(system: AndroidSystem, args: list[str]) -> str:
    """dumpsys window [windows|displays|policy|tokens]"""
    sections = {
        "d": _displays,
        "displays": _displays,
        "p": _policy,
        "policy": _policy,
        "v": _windows,
        "w": _windows,
        "visible": _windows,
        "windows": _windows,
        "visible-apps": _windows,
    }
    chosen = [arg for arg in args if not arg.startswith("-")]
    if chosen:
        found = sections.get(chosen[0])
        return (
            found(system)
            if found
            else f"Bad window command, or no windows match: {chosen[0]}\nUse -h for help.\n"
        )
    return (
        "WINDOW MANAGER LAST ANR (dumpsys window lastanr)\n  <no ANR has occurred since boot>\n\n"
        + _policy(system)
        + _displays(system)
        + _windows(system)
        + "  mCurrentRotation=ROTATION_0\n"
    )


def input_(system: AndroidSystem, args: list[str]) -> str:
    """dumpsys input"""
    width, height = system.device.size
    task = system.activities.front
    viewport = (
        f"Viewport INTERNAL: displayId=0, uniqueId=local:{DISPLAY_ID}, port=0, orientation=0, "
        f"logicalFrame=[0, 0, {width}, {height}], physicalFrame=[0, 0, {width}, {height}], "
        f"deviceSize=[{width}, {height}], isActive=[1]"
    )
    turned = "SurfaceOrientation" if system.api_level < 33 else "InputDeviceOrientation"
    return (
        "INPUT MANAGER (dumpsys input)\n\nEvent Hub State:\n  Devices:\n    1: virtio_input_multi_touch_1\n\n"
        "Input Reader State (Nums of device: 1):\n  Device 1: virtio_input_multi_touch_1\n"
        "    IsExternal: false\n"
        "    Touch Input Mapper (mode - DIRECT):\n      Parameters:\n        DeviceType: TOUCH_SCREEN\n"
        "        OrientationAware: true\n        Orientation: ORIENTATION_0\n"
        f"      Raw Axes:\n        X: min=0, max={width - 1}\n        Y: min=0, max={height - 1}\n"
        f"      {viewport}\n      RawSurfaceWidth: {width}px\n      RawSurfaceHeight: {height}px\n"
        f"      PhysicalWidth: {width}px\n      PhysicalHeight: {height}px\n"
        f"      SurfaceWidth: {width}px\n      SurfaceHeight: {height}px\n      {turned}: 0\n"
        f"  Configuration:\n    {viewport}\n\n"
        "Input Dispatcher State:\n  DispatchEnabled: true\n  DispatchFrozen: false\n"
        f"  FocusedApplications:\n    displayId=0, name='{task.record}', dispatchingTimeout=5000ms\n"
        f"  FocusedWindows:\n    displayId=0, name='{task.window[7:-1].replace(' u0', '')}'\n"
    )


def display(system: AndroidSystem, args: list[str]) -> str:
    """dumpsys display"""
    width, height = system.device.size
    state, density = ("ON" if system.screen_on else "OFF"), system.density
    brightness = system.state["apps"]["settings"]["brightness"] / 100
    return (
        "DISPLAY MANAGER (dumpsys display)\n  mOnlyCode=false\n"
        "  mViewports=[DisplayViewport{type=INTERNAL, valid=true, "
        f"isActive=true, displayId=0, uniqueId='local:{DISPLAY_ID}', physicalPort=0, orientation=0, "
        f"logicalFrame=Rect(0, 0 - {width}, {height}), physicalFrame=Rect(0, 0 - {width}, {height}), "
        f"deviceWidth={width}, deviceHeight={height}}}]\n"
        f"\nDisplay States: size=1\n  Display Id=0\n  Display State={state}\n"
        f"  Display Brightness={brightness:.2f}\n"
        f"  mScreenState={state}\n  mCurrentOrientation=0\n"
        "\nLogical Displays: size=1\n  Display 0:\n    mDisplayId=0\n"
        f'    mBaseDisplayInfo=DisplayInfo{{"Built-in Screen", displayId 0, real {width} x {height}, '
        f"largest app {width} x {height}, smallest app {width} x {height}, rotation 0, density {density} "
        f"({density}.0 x {density}.0) dpi, state {state}}}\n"
    )


def surface_flinger(system: AndroidSystem, args: list[str]) -> str:
    """dumpsys SurfaceFlinger [--display-id|--list]"""
    task = system.activities.front
    layers = [f"{task.long_name}#{task.id}", "StatusBar#2", "NavigationBar0#3"]
    if "--display-id" in args:
        return f'Display {DISPLAY_ID} (HWC display 0): port=0 pnpId=GGL displayName="EMU_display_0"\n'
    if "--list" in args:
        return "".join(f"{layer}\n" for layer in layers)
    if "--latency" in args:
        return "16666666\n"
    return "Build configuration: [sf HWC]\nVisible layers (count = 3)\n" + "".join(
        f"+ Layer ({each})\n" for each in layers
    )


def input_method(system: AndroidSystem, args: list[str]) -> str:
    """dumpsys input_method"""
    methods, shown = system.ime, str(system.ime.shown).lower()
    names = "".join(f"  InputMethod #{place}:\n    mId={name}\n" for place, name in enumerate(methods.all()))
    front = system.activities.front.package.name
    focus = system.state["focus"]
    return (
        f"Current Input Method Manager state:\n  Input Methods: mMethodMapUpdateCount=1\n{names}"
        f"  mCurMethodId={methods.current}\n"
        f"  mCurId={methods.current} mHaveConnection=true mBoundToMethod=true "
        f"mVisibleBound={shown}\n"
        f"  mCurFocusedWindowClient=ClientState{{mUid={system.activities.front.package.uid}}}\n"
        f"  mShowRequested={shown} mShowExplicitlyRequested=false mShowForced=false mInputShown={shown}\n"
        f"  mSystemReady=true mInteractive={str(system.screen_on).lower()}\n"
        f"  mServedView={'android.widget.EditText{' + focus + '}' if focus else 'null'}\n"
        f"  EditorInfo: packageName={front} inputType=0x{1 if focus else 0:x}\n"
    )
