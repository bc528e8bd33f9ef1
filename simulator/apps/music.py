"""Music: songs, albums and playlists, a player, and what plays next; tasks with songs and playlists."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from distrl.core.actions import Action
from distrl.simulator.apps.base import App, Args, through
from distrl.simulator.names import Names
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node, group, icon_button, image
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport
from distrl.simulator.phone.widgets import TOP
from distrl.simulator.tasks.base import (
    Family,
    May,
    Params,
    Template,
    everyday,
    fresh,
    is_shown,
    where,
)
from distrl.simulator.tasks.expert import Expert

ALBUMS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "Night Ferry": ("The Harbour Lights", "#1f4e79", ("Night Ferry", "Lanterns", "Salt Wind", "Low Tide")),
    "Paper Moons": ("Ada Vale", "#8e3a9c", ("Paper Moon", "Letters Home", "Blue Ink", "Quiet Room")),
    "Long Roads": ("Grey Wagon", "#b4530a", ("Long Road", "Dust and Gold", "Mile Ninety", "Old Engine")),
    "Glass Garden": ("Mira Sol", "#1b7f5c", ("Glass Garden", "Green Rain", "Fern", "Morning Dew")),
}
"""Each album's artist, colour and songs on a new phone."""
_TABS = (("music_note", "Songs"), ("album", "Albums"), ("queue_music", "Playlists"))
_MINI = 68.0


def data() -> State:
    """Nothing plays; four albums (artist, colour, songs) and a playlist. A song is its title."""
    return {
        "albums": {album: [artist, color, list(titles)] for album, (artist, color, titles) in ALBUMS.items()},
        "tab": 0,
        "song": "",
        "on": False,
        "shuffle": False,
        "repeat": False,
        "liked": [],
        "queue": [],
        "playlists": {"Favourites": ["Night Ferry", "Letters Home"]},
    }


def songs(state: State) -> list[str]:
    """Every song, in the order of the albums."""
    return [title for _, _, titles in state["apps"]["music"]["albums"].values() for title in titles]


def _album_of(ui: Ui, song: str) -> tuple[str, str]:
    """The album that a song is on, and its artist."""
    albums = ui.state["apps"]["music"]["albums"]
    return next((name, artist) for name, (artist, _, titles) in albums.items() if song in titles)


def view(ui: Ui) -> list[Node]:
    """The page on top."""
    return _page(ui, -1)


def _page(ui: Ui, place: int) -> list[Node]:
    top, music = ui.state["stacks"]["music"][place], ui.state["apps"]["music"]
    if top[0] == "player":
        return _player(ui)
    if top[0] == "queue":
        return _listing(ui, "Up next", music["queue"], "Nothing is waiting")
    if top[0] == "album":
        return _listing(ui, str(top[1]), music["albums"][str(top[1])][2], "")
    if top[0] == "playlist":
        return _listing(ui, str(top[1]), music["playlists"].get(top[1], []), "No songs yet")
    if top[0] == "menu":
        return _menu(ui, str(top[1]), _page(ui, place - 1))
    if top[0] == "pick":
        listed = _playlists(ui, "music.pick", ("put", str(top[1])))
        return [listed, widgets.app_bar(ui, "Add to playlist")]
    if top[0] == "new":
        field = widgets.field(ui, TOP + 16, "music.name", "Name", icon="queue_music", h=60)
        return widgets.form(ui, "New playlist", [field], ("music", "save"))
    return _root(ui)


def _root(ui: Ui) -> list[Node]:
    music = ui.state["apps"]["music"]
    items = [(icon, label, ("music", "tab", place)) for place, (icon, label) in enumerate(_TABS)]
    nodes, top, bottom = widgets.tabbed(ui, "Music", items, music["tab"], 4)
    if music["song"]:
        bottom -= _MINI
        nodes.append(_mini(ui, bottom))
    if music["tab"] == 2:
        nodes.append(widgets.fab(ui, "add", "New playlist", ("music", "new"), "new_playlist", bottom))
    area: dict[str, Any] = {"top": top, "bottom": bottom}
    if music["tab"] == 1:
        return [viewport(ui, "music.list", **area, build=lambda y: _albums(ui, y)), *nodes]
    if music["tab"] == 0:
        rows = widgets.listing(ui, "music.list", 70, songs(ui.state), partial(_song_row, ui), **area)
    else:
        rows = _playlists(ui, "music.list", ("playlist",), foot=96, **area)
    return [rows, *nodes]


def _cover(ui: Ui, x: float, y: float, d: float, album: str) -> Node:
    color = ui.state["apps"]["music"]["albums"][album][1]
    return image(x, y, d, d, "album", d * 0.62, "#ffffffcc", color, d * 0.16)


def _song_row(ui: Ui, y: float, line: int, song: str, is_part: bool = False) -> Node:
    """A song; in a list of some songs only, where it may occur twice, its ids end in its line."""
    (album, artist), place = _album_of(ui, song), songs(ui.state).index(song)
    name = f"{place}_{line}" if is_part else str(place)
    lead = _cover(ui, widgets.MARGIN + 8, y + 9, 50, album)
    trail = Node(WIDTH - 68, y, 1, 1)
    tap = ("music", "play", song)
    row = widgets.row(
        ui, y, song, artist, lead=lead, trail=trail, tap=tap, rid=f"song_{name}", h=68, flat=True
    )
    tap, desc = ("music", "menu", song), f"More of {song}"
    more = ui.icon_button(WIDTH - 64, y + 10, "more_vert", desc, tap, f"more_{name}")
    return row.with_children(*row.children, more)


def _albums(ui: Ui, y: float) -> tuple[Sequence[Node], float]:
    nodes = []
    for place, (album, (artist, _, _)) in enumerate(ui.state["apps"]["music"]["albums"].items()):
        line, column = divmod(place, 2)
        x, top = 16 + 168 * column, y + 8 + 214 * line
        parts = (
            _cover(ui, x + 8, top + 8, 144, album),
            ui.text(x + 8, top + 154, 144, 26, album, 16, bold=True),
            ui.text(x + 8, top + 178, 144, 22, artist, 14, ui.theme.muted),
        )
        nodes.append(group(x, top, 160, 206, f"album_{place}", parts, album, ("music", "album", album)))
    return nodes, y + 16 + 214 * ((len(ui.state["apps"]["music"]["albums"]) + 1) // 2)


def _playlists(ui: Ui, key: str, verb: Sequence[str | int], **area: Any) -> Node:
    """The playlists; a tap does `verb` with the name."""

    def row(y: float, place: int, name: str) -> Node:
        count = len(ui.state["apps"]["music"]["playlists"][name])
        lead = ui.disc(widgets.MARGIN + 12, y + 12, 48, "queue_music", ui.theme.tint, ui.theme.on_tint)
        told, tap = f"{count} song{'' if count == 1 else 's'}", ("music", *verb, name)
        return widgets.row(ui, y, name, told, lead=lead, tap=tap, rid=f"playlist_{place}")

    return widgets.listing(ui, key, 80, list(ui.state["apps"]["music"]["playlists"]), row, head=8, **area)


def _mini(ui: Ui, y: float) -> Node:
    music, theme = ui.state["apps"]["music"], ui.theme
    album, artist = _album_of(ui, music["song"])
    icon = "pause" if music["on"] else "play_arrow"
    parts = (
        _cover(ui, 20, y + 9, 48, album),
        ui.text(80, y + 10, 190, 26, music["song"], 16, theme.on_tint, True),
        ui.text(80, y + 34, 190, 22, artist, 14, theme.on_tint),
        ui.icon_button(
            WIDTH - 72, y + 9, icon, "Pause or play", ("music", "toggle"), "mini_play", theme.on_tint
        ),
    )
    return group(
        8, y + 2, WIDTH - 16, _MINI - 6, "mini_player", parts, "Player", ("music", "player"), theme.tint, 20
    )


def _player(ui: Ui) -> list[Node]:
    music, theme = ui.state["apps"]["music"], ui.theme
    album, artist = _album_of(ui, music["song"])
    liked = music["song"] in music["liked"]
    y = TOP + 8
    middle = y + 372
    nodes = [
        _cover(ui, 52, y, 256, album),
        ui.text(24, y + 270, 248, 38, music["song"], 26, bold=True, rid="player_title"),
        ui.text(24, y + 306, 248, 28, artist, 17, theme.muted),
        ui.icon_button(
            WIDTH - 68, y + 276, "favorite" if liked else "favorite_border", "Like", ("music", "like"), "like"
        ),
        Node(24, y + 350, WIDTH - 48, 6, fill=theme.line, radius=3),
        Node(24, y + 350, 110, 6, fill=theme.primary, radius=3),
    ]
    for x, icon, label, verb, on in (
        (16.0, "shuffle", "Shuffle", "shuffle", music["shuffle"]),
        (80.0, "skip_previous", "Previous", "previous", False),
        (232.0, "skip_next", "Next", "next", False),
        (296.0, "repeat", "Repeat", "repeat", music["repeat"]),
    ):
        color = theme.primary if on else theme.text if "skip" in icon else theme.muted
        nodes.append(ui.icon_button(x, middle + 12, icon, label, ("music", verb), verb, color))
    sign = "pause" if music["on"] else "play_arrow"
    desc = "Pause" if music["on"] else "Play"
    tap = ("music", "toggle")
    nodes.append(
        icon_button(WIDTH / 2 - 36, middle, 72, sign, desc, tap, "play", theme.on_primary, theme.primary, 40)
    )
    queue = ui.icon_button(
        WIDTH - 56, STATUS_H + 8, "playlist_play", "Up next", ("music", "queue"), "up_next"
    )
    return [*nodes, widgets.app_bar(ui, "Now playing", [queue])]


def _listing(ui: Ui, title: str, listed: Sequence[str], nothing: str) -> list[Node]:
    row = partial(_song_row, ui, is_part=True)
    rows = widgets.listing(ui, "music.songs", 70, listed, row, none=("music_note", nothing))
    return [rows, widgets.app_bar(ui, title)]


def _menu(ui: Ui, song: str, under: list[Node]) -> list[Node]:
    liked = song in ui.state["apps"]["music"]["liked"]
    items = (
        ("queue_music", "Add to queue", ("music", "enqueue", song), "menu_queue"),
        ("playlist_add", "Add to playlist", ("music", "pick", song), "menu_playlist"),
        ("favorite", "Unlike" if liked else "Like", ("music", "like_song", song), "menu_like"),
    )
    return widgets.menu(ui, under, items)


def act(state: State, verb: str, args: Args) -> None:
    """Opens pages here; what changes what plays or is kept, in `_play` and `_keep`."""
    music = state["apps"]["music"]
    if verb == "tab":
        music["tab"] = int(args[0])
        state["scrolls"].pop("music.list", None)
    elif verb in ("player", "queue", "album", "playlist", "menu"):
        st.push(state, "music", verb, *args)
    elif verb == "pick":
        st.pop(state, "music")
        st.push(state, "music", "pick", *args)
    elif verb == "new":
        st.open_form(state, "music", ["new"], {"music.name": ""}, "music.name")
    elif verb in ("save", "put", "enqueue", "like", "like_song"):
        _keep(state, music, verb, args)
    else:
        _play(state, music, verb, args)


def _play(state: State, music: State, verb: str, args: Args) -> None:
    if verb == "play":
        music["song"], music["on"] = str(args[0]), True
    elif verb == "toggle":
        music["on"] = not music["on"]
    elif verb in ("shuffle", "repeat"):
        music[verb] = not music[verb]
    elif verb == "next" and music["queue"]:
        music["song"] = music["queue"].pop(0)
    else:
        every = songs(state)
        music["song"] = every[(every.index(music["song"]) + (1 if verb == "next" else -1)) % len(every)]


def _keep(state: State, music: State, verb: str, args: Args) -> None:
    if verb == "save":
        name = st.take(state, "music.name")
        st.reset(state, "music")
        if name and name not in music["playlists"] and len(music["playlists"]) < st.MAX_ITEMS:
            music["playlists"][name] = []
        return
    song = str(args[0]) if args else music["song"]
    if verb == "put":
        listed = music["playlists"][str(args[1])]
        if song not in listed:
            listed.append(song)
        state["toast"] = f"Added to {args[1]}"
    elif verb == "enqueue":
        if len(music["queue"]) < st.MAX_ITEMS:
            music["queue"].append(song)
        state["toast"] = "Added to the queue"
    elif song in music["liked"]:
        music["liked"].remove(song)
    else:
        music["liked"].append(song)
    if verb != "like":
        st.pop(state, "music")


def fill(state: State, rng: Names) -> None:
    """Four albums of four songs, of which two are in a playlist."""
    titles, music = rng.names("song", 20), state["apps"]["music"]
    music["albums"] = {
        titles[place]: [rng.name("band"), color, titles[4 + 4 * place : 8 + 4 * place]]
        for place, (_, color, _) in enumerate(ALBUMS.values())
    }
    music["playlists"] = {"Favourites": rng.sample(titles[4:], 2)}


APP = App(
    name="music",
    label="Music",
    icon="music_note",
    color="#d81b60",
    data=data,
    view=view,
    act=act,
    submit=through(),
    keeps=("playlists", "liked", "queue"),
    fill=fill,
    comes="everyday",
)


def _song_start(state: State, params: Params, rng: Names) -> None:
    """The song is on one of the albums."""
    music = state["apps"]["music"]
    if params["song"] not in songs(state):
        titles = rng.choice(list(music["albums"].values()))[2]
        place = rng.randrange(len(titles))
        music["playlists"] = {"Favourites": [title for title in songs(state) if title != titles[place]][:2]}
        titles[place] = params["song"]


def _album_start(state: State, params: Params, rng: Names) -> None:
    """One of the albums has the name."""
    music = state["apps"]["music"]
    chosen = params["album"] if params["album"] in music["albums"] else rng.choice(list(music["albums"]))
    music["albums"] = {
        params["album"] if name == chosen else name: album for name, album in music["albums"].items()
    }


def _play_check(state: State, params: Params) -> bool:
    return bool(state["apps"]["music"]["song"] == params["song"] and state["apps"]["music"]["on"])


def _play_step(expert: Expert, params: Params) -> Action:
    song = songs(expert.state).index(params["song"])
    return expert.to_root("music", 0, "tab_songs") or expert.tap(
        "mini_play" if expert.state["apps"]["music"]["song"] == params["song"] else f"song_{song}"
    )


def _song_menu(expert: Expert, params: Params, item: str) -> Action:
    if expert.page("music") == ["menu", params["song"]]:
        return expert.tap("menu_" + item)
    place = songs(expert.state).index(params["song"])
    return expert.to_root("music", 0, "tab_songs") or expert.tap(f"more_{place}")


def _put_start(state: State, params: Params, rng: Names) -> None:
    _song_start(state, params, rng)
    names = [params["playlist"], *rng.names("song", 2, without=[params["playlist"]])]
    state["apps"]["music"]["playlists"].update({name: [] for name in rng.sample(names, 3)})


def _put_check(state: State, params: Params) -> bool:
    return params["song"] in state["apps"]["music"]["playlists"].get(params["playlist"], [])


def _put_step(expert: Expert, params: Params) -> Action:
    if expert.page("music") == ["pick", params["song"]]:
        place = list(expert.state["apps"]["music"]["playlists"]).index(params["playlist"])
        return expert.tap(f"playlist_{place}")
    return _song_menu(expert, params, "playlist")


def _new_check(state: State, params: Params) -> bool:
    return params["name"] in state["apps"]["music"]["playlists"]


def _new_step(expert: Expert, params: Params) -> Action:
    if expert.page("music")[0] == "new":
        return expert.fill("music", {"name": params["name"]}, clear=False)
    return expert.to_root("music", 2, "tab_playlists") or expert.tap("new_playlist")


def _album_check(state: State, params: Params) -> bool:
    return is_shown(state, "music", "album", params["album"])


def _album_step(expert: Expert, params: Params) -> Action:
    place = list(expert.state["apps"]["music"]["albums"]).index(params["album"])
    return expert.to_root("music", 1, "tab_albums") or expert.tap(f"album_{place}")


def _put(entry: list[Any], params: Params) -> list[Any]:
    """A playlist, which is a name and its songs, without the task's song if it is the task's."""
    name, songs = entry
    if name != params["playlist"]:
        return entry
    return [name, [song for song in songs if song != params["song"]]]


def _is_song(song: str, params: Params) -> bool:
    return bool(song == params["song"])


_LIKED = (May("music.liked", where(_is_song)),)
_QUEUED = (May("music.queue", where(_is_song)),)
_PLAYLIST = (May("music.playlists", where(lambda entry, params: entry == [params["name"], []])),)
_SONG = {"song": str}
_task = partial(everyday, "music")
TEMPLATES: dict[str, Template] = {
    "music_play": _task(_SONG, _song_start, _play_check, _play_step),
    "music_like": _task(
        _SONG,
        _song_start,
        lambda state, params: params["song"] in state["apps"]["music"]["liked"],
        lambda expert, params: _song_menu(expert, params, "like"),
        may=_LIKED,
    ),
    "music_queue": _task(
        _SONG,
        _song_start,
        lambda state, params: params["song"] in state["apps"]["music"]["queue"],
        lambda expert, params: _song_menu(expert, params, "queue"),
        may=_QUEUED,
    ),
    "music_album": _task({"album": str}, _album_start, _album_check, _album_step),
    "playlist_new": _task({"name": str}, fresh, _new_check, _new_step, may=_PLAYLIST),
    "playlist_add": _task(
        {**_SONG, "playlist": str},
        _put_start,
        _put_check,
        _put_step,
        may=(May("music.playlists", _put),),
    ),
}
_ANY_SONG = {"song": "song"}
FAMILIES = (
    Family("music_play", _ANY_SONG),
    Family("music_like", _ANY_SONG),
    Family("music_queue", _ANY_SONG),
    Family("music_album", {"album": "song"}),
    Family("playlist_new", {"name": "song"}),
    Family("playlist_add", {**_ANY_SONG, "playlist": "song"}),
)
