"""Tasks of the apps that only the suite `apps` uses: music, files and mail."""

from __future__ import annotations

import random
from typing import Any

from distrl.core.actions import Action
from distrl.simulator.apps import files, mail, music
from distrl.simulator.phone import state as st
from distrl.simulator.phone.hand import BACK, IMPOSSIBLE, Hand
from distrl.simulator.phone.keeping import May, only, where
from distrl.simulator.phone.state import State
from distrl.simulator.tasks import stuff
from distrl.simulator.tasks.base import Params, Template, fresh
from distrl.simulator.tasks.moves import everyday, is_marked, mark, page, search, write

TITLES = tuple(title for title, _ in music.SONGS)


def _music(state: State) -> State:
    app: State = state["apps"]["music"]
    return app


def _root(hand: Hand, app: str, tab: int | None = None, rid: str = "") -> Action | None:
    """What shows the app's first page (and its tab); None when it is shown."""
    if page(hand, app)[0] != "root":
        return BACK
    return None if tab is None or hand.phone.state["apps"][app]["tab"] == tab else hand.tap(rid)


def _play_check(state: State, params: Params) -> bool:
    return bool(_music(state)["song"] == music.number(params["song"]) and _music(state)["on"])


def _play_way(hand: Hand, params: Params) -> Action:
    song = music.number(params["song"])
    return _root(hand, "music", 0, "tab_songs") or hand.tap(
        "mini_play" if _music(hand.phone.state)["song"] == song else f"song_{song}"
    )


def _like_check(state: State, params: Params) -> bool:
    return music.number(params["song"]) in _music(state)["liked"]


def _song_menu(hand: Hand, params: Params, item: str) -> Action:
    song = music.number(params["song"])
    if page(hand, "music") == ["menu", song]:
        return hand.tap("menu_" + item)
    return _root(hand, "music", 0, "tab_songs") or hand.tap(f"more_{song}")


def _queue_check(state: State, params: Params) -> bool:
    return music.number(params["song"]) in _music(state)["queue"]


def _put_start(state: State, params: Params, rng: random.Random) -> None:
    _music(state)["playlists"].update({"Running": [], "Evening": [], "Kitchen": []})


def _put_check(state: State, params: Params) -> bool:
    return music.number(params["song"]) in _music(state)["playlists"].get(params["playlist"], [])


def _put_way(hand: Hand, params: Params) -> Action:
    if page(hand, "music") == ["pick", music.number(params["song"])]:
        place = list(_music(hand.phone.state)["playlists"]).index(params["playlist"])
        return hand.tap(f"playlist_{place}")
    return _song_menu(hand, params, "playlist")


def _new_check(state: State, params: Params) -> bool:
    return params["name"] in _music(state)["playlists"]


def _new_way(hand: Hand, params: Params) -> Action:
    if page(hand, "music")[0] == "new":
        return write(hand, "music_name", "music.name", params["name"]) or hand.tap("save")
    return _root(hand, "music", 2, "tab_playlists") or hand.tap("new_playlist")


def _album_check(state: State, params: Params) -> bool:
    return bool(st.page(state, "music") == ["album", params["album"]] and state["front"] == "music")


def _album_way(hand: Hand, params: Params) -> Action:
    place = list(music.ALBUMS).index(params["album"])
    return _root(hand, "music", 1, "tab_albums") or hand.tap(f"album_{place}")


def _file_start(state: State, params: Params, rng: random.Random) -> None:
    """The file in its folder, and others in every folder."""
    names = rng.sample([name for name in stuff.FILES if name != params["file"]], 8)
    entries = [files.file(name, rng.choice(files.FOLDERS), rng.randrange(3, 9000), 5) for name in names]
    folder = params.get("folder") or rng.choice(files.FOLDERS)
    meant = files.file(params["file"], folder, rng.randrange(3, 9000), rng.randrange(1, 31))
    mark(meant)
    entries.insert(rng.randrange(9), meant)
    state["apps"]["files"]["files"] = entries


def _entry(state: State, name: str) -> State:
    place = files.find(state, name)
    entries: list[State] = state["apps"]["files"]["files"]
    return entries[place] if place >= 0 else {}


def _details(hand: Hand, params: Params) -> Action | None:
    """What finds and opens the file; None when it is open."""
    place = files.find(hand.phone.state, params["file"])
    if place < 0:
        return IMPOSSIBLE
    if page(hand, "files") == ["file", place]:
        return None
    return search(hand, "files", params["file"], f"file_{place}")


def _file_check(state: State, params: Params) -> bool:
    place = files.find(state, params["file"])
    return bool(place >= 0 and st.page(state, "files") == ["file", place] and state["front"] == "files")


def _file_way(hand: Hand, params: Params) -> Action:
    return _details(hand, params) or BACK


def _rename_check(state: State, params: Params) -> bool:
    return bool(_entry(state, params["name"]) and not _entry(state, params["file"]))


def _rename_way(hand: Hand, params: Params) -> Action:
    place = files.find(hand.phone.state, params["file"])
    if place >= 0 and page(hand, "files") == ["rename", place]:
        return write(hand, "files_name", "files.name", params["name"], "clear_name") or hand.tap("save")
    return _details(hand, params) or hand.tap("rename")


def _move_start(state: State, params: Params, rng: random.Random) -> None:
    others = [folder for folder in files.FOLDERS if folder != params["to"]]
    _file_start(state, {**params, "folder": rng.choice(others)}, rng)


def _move_check(state: State, params: Params) -> bool:
    return bool(_entry(state, params["file"]).get("folder") == params["to"])


def _move_way(hand: Hand, params: Params) -> Action:
    state, place = hand.phone.state, files.find(hand.phone.state, params["file"])
    if place >= 0 and page(hand, "files") == ["move", place]:
        return hand.tap(f"folder_{state['apps']['files']['folders'].index(params['to'])}")
    return _details(hand, params) or hand.tap("move")


def _gone_check(state: State, params: Params) -> bool:
    return not is_marked(state["apps"]["files"]["files"])


def _gone_way(hand: Hand, params: Params) -> Action:
    if page(hand, "files") == ["delete", files.find(hand.phone.state, params["file"])]:
        return hand.tap("confirm")
    return _details(hand, params) or hand.tap("delete")


def _folder_check(state: State, params: Params) -> bool:
    return params["name"] in state["apps"]["files"]["folders"]


def _folder_way(hand: Hand, params: Params) -> Action:
    if page(hand, "files")[0] == "new":
        return write(hand, "files_name", "files.name", params["name"]) or hand.tap("save")
    return _root(hand, "files") or hand.tap("new_folder")


def _sort_check(state: State, params: Params) -> bool:
    shown = st.page(state, "files") == ["folder", params["folder"]] and state["front"] == "files"
    return bool(shown and state["apps"]["files"]["order"] == params["order"])


def _sort_way(hand: Hand, params: Params) -> Action:
    at, folder = page(hand, "files"), params["folder"]
    if at == ["sort", folder]:
        return hand.tap("order_" + params["order"])
    if at == ["folder", folder]:
        return hand.tap("sort")
    folders = hand.phone.state["apps"]["files"]["folders"]
    return _root(hand, "files") or hand.tap(f"folder_{folders.index(folder)}")


def _mail_start(state: State, params: Params, rng: random.Random) -> None:
    """The mail among others in the inbox."""
    subjects = rng.sample([subject for subject in stuff.MAILS if subject != params["subject"]], 4)
    subjects.insert(rng.randrange(5), params["subject"])
    people = rng.sample(stuff.NAMES, 5)
    state["apps"]["mail"]["mails"] = [
        mail.mail(person, subject, rng.choice(stuff.SAID))
        for person, subject in zip(people, subjects, strict=True)
    ]


def _mail_at(hand: Hand, params: Params) -> Action | None:
    """What opens the mail; None when it is open."""
    place = mail.find(hand.phone.state, params["subject"])
    if place < 0:
        return IMPOSSIBLE
    if page(hand, "mail") == ["mail", place]:
        return None
    if hand.phone.state["apps"]["mail"]["box"] != "inbox":
        at = page(hand, "mail")[0]
        return hand.tap("box_inbox") if at == "boxes" else hand.tap("boxes") if at == "root" else BACK
    return _root(hand, "mail") or hand.tap(f"mail_{place}")


def _archived(state: State, params: Params) -> bool:
    return mail.find(state, params["subject"], "archive") >= 0


def _archive_way(hand: Hand, params: Params) -> Action:
    return _mail_at(hand, params) or hand.tap("archive")


def _binned(state: State, params: Params) -> bool:
    return mail.find(state, params["subject"], "bin") >= 0


def _bin_way(hand: Hand, params: Params) -> Action:
    return _mail_at(hand, params) or hand.tap("bin")


def _mail_star_check(state: State, params: Params) -> bool:
    place = mail.find(state, params["subject"])
    return bool(place >= 0 and state["apps"]["mail"]["mails"][place]["star"])


def _mail_star_way(hand: Hand, params: Params) -> Action:
    return _mail_at(hand, params) or hand.tap("star")


def _mail_show_check(state: State, params: Params) -> bool:
    place = mail.find(state, params["subject"])
    return bool(place >= 0 and st.page(state, "mail") == ["mail", place] and state["front"] == "mail")


def _mail_show_way(hand: Hand, params: Params) -> Action:
    return _mail_at(hand, params) or BACK


def _sent(state: State, subject: str) -> State:
    mails: list[State] = state["apps"]["mail"]["mails"]
    return next((e for e in reversed(mails) if (e["subject"], e["box"]) == (subject, "sent")), {})


def _send_check(state: State, params: Params) -> bool:
    entry = _sent(state, params["subject"])
    return bool(entry and entry["body"] == params["text"] and entry["person"] == params["to"])


def _send_way(hand: Hand, params: Params) -> Action:
    if page(hand, "mail")[0] != "write":
        return _root(hand, "mail") or hand.tap("write")
    for field, value in (("to", params["to"]), ("subject", params["subject"]), ("body", params["text"])):
        way = write(hand, "mail_" + field, "mail." + field, value, "clear_" + field)
        if way is not None:
            return way
    return hand.tap("save")


def _reply_check(state: State, params: Params) -> bool:
    return bool(_sent(state, "Re: " + params["subject"]).get("body") == params["text"])


def _reply_way(hand: Hand, params: Params) -> Action:
    place = mail.find(hand.phone.state, params["subject"])
    if place >= 0 and page(hand, "mail") == ["reply", place]:
        if st.text(hand.phone.state, "mail.subject") != "Re: " + params["subject"]:
            return BACK
        return write(hand, "mail_body", "mail.body", params["text"], "clear_body") or hand.tap("save")
    return _mail_at(hand, params) or hand.tap("reply")


def _put(entry: list[Any], params: Params) -> list[Any]:
    """A playlist, which is a name and its songs, without the task's song if it is the task's."""
    name, songs = entry
    if name != params["playlist"]:
        return entry
    return [name, [song for song in songs if song != music.number(params["song"])]]


def _renamed(*fields: str) -> tuple[May, ...]:
    """The task's file under its old and its new name; of it only `fields`, if any are named."""

    def is_meant(file: State, params: Params) -> bool:
        return file["name"] in (params["file"], params.get("name"))

    return (May("files.files", where(is_meant, *fields)),)


def _mail_may(*fields: str) -> tuple[May, ...]:
    return (May("mail.mails", only("subject", "subject", *fields)),)


def _is_sent(entry: State, params: Params) -> bool:
    """Whether an entry is the mail that the task wants to be written."""
    subject = params["subject"] if "to" in params else "Re: " + params["subject"]
    is_right = [entry[key] for key in ("box", "subject", "body")] == ["sent", subject, params["text"]]
    return is_right and entry["person"] == params.get("to", entry["person"])


_SENT = (May("mail.mails", where(_is_sent)),)


def _is_song(song: int, params: Params) -> bool:
    return song == music.number(params["song"])


_LIKED = (May("music.liked", where(_is_song)),)
_QUEUED = (May("music.queue", where(_is_song)),)
_PLAYLIST = (May("music.playlists", where(lambda entry, params: entry[0] == params["name"])),)
_SONG = {"song": str}
_SONGS = {"song": TITLES}

TEMPLATES: dict[str, Template] = {
    "music_play": everyday("music", _SONG, fresh, _play_check, _play_way, _SONGS),
    "music_like": everyday(
        "music",
        _SONG,
        fresh,
        _like_check,
        lambda hand, params: _song_menu(hand, params, "like"),
        _SONGS,
        _LIKED,
    ),
    "music_queue": everyday(
        "music",
        _SONG,
        fresh,
        _queue_check,
        lambda hand, params: _song_menu(hand, params, "queue"),
        _SONGS,
        _QUEUED,
    ),
    "music_album": everyday(
        "music", {"album": str}, fresh, _album_check, _album_way, {"album": music.ALBUMS}
    ),
    "playlist_new": everyday("music", {"name": str}, fresh, _new_check, _new_way, may=_PLAYLIST),
    "playlist_add": everyday(
        "music",
        {**_SONG, "playlist": str},
        _put_start,
        _put_check,
        _put_way,
        {**_SONGS, "playlist": ("Running", "Evening", "Kitchen")},
        (May("music.playlists", _put),),
    ),
    "folder_new": everyday(
        "files",
        {"name": str},
        fresh,
        _folder_check,
        _folder_way,
        may=(May("files.folders", only("", "name")),),
    ),
    "file_show": everyday("files", {"file": str}, _file_start, _file_check, _file_way),
    "file_rename": everyday(
        "files", {"file": str, "name": str}, _file_start, _rename_check, _rename_way, may=_renamed("name")
    ),
    "file_move": everyday(
        "files",
        {"file": str, "to": str},
        _move_start,
        _move_check,
        _move_way,
        {"to": files.FOLDERS},
        _renamed("folder"),
    ),
    "file_delete": everyday("files", {"file": str}, _file_start, _gone_check, _gone_way, may=_renamed()),
    "files_sort": everyday(
        "files",
        {"folder": str, "order": str},
        fresh,
        _sort_check,
        _sort_way,
        {"folder": files.FOLDERS, "order": files.ORDERS},
    ),
    "mail_show": everyday("mail", {"subject": str}, _mail_start, _mail_show_check, _mail_show_way),
    "mail_star": everyday(
        "mail", {"subject": str}, _mail_start, _mail_star_check, _mail_star_way, may=_mail_may("star")
    ),
    "mail_archive": everyday(
        "mail", {"subject": str}, _mail_start, _archived, _archive_way, may=_mail_may("box")
    ),
    "mail_delete": everyday("mail", {"subject": str}, _mail_start, _binned, _bin_way, may=_mail_may("box")),
    "mail_send": everyday(
        "mail", {"to": str, "subject": str, "text": str}, fresh, _send_check, _send_way, may=_SENT
    ),
    "mail_reply": everyday(
        "mail", {"subject": str, "text": str}, _mail_start, _reply_check, _reply_way, may=_SENT
    ),
}
