"""Installing, updating and removing the store's apps: what store, launcher and adb do to the state."""

from __future__ import annotations

from distrl.simulator.phone import state as st
from distrl.simulator.phone.state import State
from distrl.simulator.phone.store_catalog import ENTRIES, Entry


def entry(app: str) -> Entry | None:
    """What the store says about an app; None for one that it does not have."""
    return ENTRIES.get(app)


def is_busy(state: State) -> bool:
    """Whether something is being downloaded."""
    return "store" in state["apps"] and bool(state["apps"]["store"]["downloads"])


def begin(state: State, app: str) -> None:
    """Starts the download of an app, or of its update."""
    state["apps"]["store"]["downloads"].setdefault(app, state["elapsed_s"])


def cancel(state: State, app: str) -> None:
    """Gives a download up."""
    state["apps"]["store"]["downloads"].pop(app, None)


def progress(state: State, app: str) -> float:
    """How much of a download is there, in [0, 1]."""
    since: int = state["apps"]["store"]["downloads"][app]
    elapsed: int = state["elapsed_s"]
    return min(1.0, (elapsed - since) / ENTRIES[app].download_s)


def advance(state: State) -> None:
    """Installs what has been downloaded by now."""
    if not is_busy(state):
        return
    store = state["apps"]["store"]
    for app in [app for app in store["downloads"] if progress(state, app) >= 1]:
        del store["downloads"][app]
        is_update = app in state["installed"]
        if is_update:
            store["updates"] = [name for name in store["updates"] if name != app]
        else:
            install(state, app)
        st.notify(state, "store", ENTRIES[app].label, "Updated" if is_update else "Installed")


def install(state: State, app: str) -> None:
    """Puts an app of the store onto the phone at once."""
    if app not in state["installed"]:
        state["installed"].append(app)
        state["stacks"][app] = [["root"]]
        state["apps"][app] = ENTRIES[app].data()


def uninstall(state: State, app: str) -> bool:
    """Removes an app with all that it has stored. Returns False for one that came with the phone."""
    if app not in ENTRIES or app not in state["installed"]:
        return False
    state["installed"].remove(app)
    for part in ("stacks", "apps"):
        del state[part][app]
    for part in ("fields", "scrolls"):
        state[part] = {key: value for key, value in state[part].items() if not key.startswith(app + ".")}
    state["permissions"].pop(app, None)
    if "store" in state["apps"]:
        store = state["apps"]["store"]
        store["updates"] = [name for name in store["updates"] if name != app]
        cancel(state, app)
    if state["focus"].startswith(app + "."):
        st.blur(state)
    if state["front"] == app:
        st.show(state, "launcher")
    return True
