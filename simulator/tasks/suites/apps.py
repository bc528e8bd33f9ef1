"""The suite `apps`: apps and operations that `general` does not train on. It has no `train` of its own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from distrl.core.types import Task
from distrl.simulator.apps import files, music
from distrl.simulator.apps.clock_pages import CITIES
from distrl.simulator.apps.weather import CITIES as PLACES
from distrl.simulator.phone.theme import TRAIN_LAYOUTS
from distrl.simulator.tasks import stuff
from distrl.simulator.tasks.base import Params
from distrl.simulator.tasks.extra import TITLES
from distrl.simulator.tasks.suites.families import Family, Split, instances, product, zipped

SUITE = "apps"
TRAINED_ON = "general"
DISJOINT = ("tasks", "goals", "params", "phrasings")
"""What it does not share with that suite."""
MAX_STEPS = 15
_TEXTS = ("I agree", "Please call me", "Count me in", "Not this week", "Sounds good", "More details please")
_NAMED = ("Roadtrip", "Dinner", "Focus", "Sunday", "Workout", "Rainy day", "Party mix", "Sleep")
_RENAMED = ("final.pdf", "copy.txt", "best.jpg", "draft.pdf", "new.zip", "old.txt", "extra.jpg", "main.pdf")


def _mark(params: Params) -> Mapping[str, object]:
    return {**params, "do": params["mark"].capitalize()}


def _order(params: Params) -> Mapping[str, object]:
    orders = {"name": "by name", "size": "largest first", "date": "newest first"}
    return {**params, "order": orders[params["order"]]}


def _family(name: str, combos: tuple[Params, ...], *wordings: str) -> Family:
    return Family(name, name, combos, (), wordings)


_SONGS = product(song=TITLES)
_MAILS = product(subject=stuff.MAILS)

FAMILIES = (
    _family("music_play", _SONGS, 'Play the song "{song}"', 'I want to hear "{song}"'),
    _family("music_like", _SONGS, 'Like the song "{song}"', 'Mark "{song}" as a song that I like'),
    _family("music_queue", _SONGS, 'Add "{song}" to the queue', 'Put "{song}" into the music queue'),
    _family(
        "music_album",
        product(album=tuple(music.ALBUMS)),
        'Open the album "{album}"',
        'Which songs are on "{album}"?',
    ),
    _family(
        "playlist_new", product(name=_NAMED), 'Create the playlist "{name}"', 'Make a new playlist "{name}"'
    ),
    _family(
        "playlist_add",
        product(song=TITLES, playlist=("Running", "Evening", "Kitchen")),
        'Add "{song}" to the playlist "{playlist}"',
        'I want "{song}" on my playlist "{playlist}"',
    ),
    _family(
        "folder_new",
        product(name=("Taxes", "Recipes", "School", "Flat", "Holiday", "Scans", "Drafts")),
        'Create the folder "{name}"',
        'Make a folder "{name}" in the files',
    ),
    _family("file_show", product(file=stuff.FILES), "Open the file {file}", "How large is the file {file}?"),
    _family(
        "file_rename",
        zipped(file=stuff.FILES, name=_RENAMED),
        "Rename the file {file} to {name}",
        "Give the file {file} the name {name}",
    ),
    _family(
        "file_move",
        zipped(file=stuff.FILES, to=files.FOLDERS),
        "Move the file {file} to {to}",
        "Put {file} into the folder {to}",
    ),
    _family(
        "file_delete", product(file=stuff.FILES), "Delete the file {file}", "Remove {file} from the phone"
    ),
    Family(
        "files_sort",
        "files_sort",
        product(folder=files.FOLDERS, order=("size", "date")),
        (),
        ("Sort the folder {folder}, {order}", "Show the files of {folder}, {order}"),
        _order,
    ),
    _family("mail_show", _MAILS, 'Open the mail "{subject}"', 'Read the mail about "{subject}"'),
    _family("mail_star", _MAILS, 'Star the mail "{subject}"', 'Give the mail "{subject}" a star'),
    _family(
        "mail_archive",
        _MAILS,
        'Archive the mail "{subject}"',
        'Move "{subject}" to the archive of the mail app',
    ),
    _family("mail_delete", _MAILS, 'Delete the mail "{subject}"', 'Throw the mail "{subject}" away'),
    _family(
        "mail_send",
        zipped(to=stuff.NAMES, subject=("Cake", "Trip", "Keys", "Report", "Thanks", "Question"), text=_TEXTS),
        'Send a mail to {to} with the subject "{subject}" and the text "{text}"',
        'Mail {to}, subject "{subject}": "{text}"',
    ),
    _family(
        "mail_reply",
        zipped(subject=stuff.MAILS, text=_TEXTS),
        'Reply "{text}" to the mail "{subject}"',
        'Answer the mail "{subject}" with "{text}"',
    ),
    _family(
        "world_remove",
        product(city=sorted(CITIES)),
        "Remove {city} from the world clock",
        "I no longer need {city} on the world clock",
    ),
    _family(
        "event_length",
        zipped(title=stuff.EVENTS, length=(30, 90, 120)),
        'Make the event "{title}" last {length} minutes',
        '"{title}" takes {length} minutes: correct the calendar',
    ),
    _family(
        "contact_call_back",
        product(name=stuff.NAMES),
        "Call {name} back from the list of calls",
        "I missed a call from {name}: return it",
    ),
    _family(
        "contact_unstar",
        product(name=stuff.NAMES),
        "Take {name} off the favourites",
        "{name} should not be a favourite contact any more",
    ),
    Family(
        "chat_mark",
        "chat_mark",
        product(name=stuff.NAMES, mark=("pin", "mute")),
        (),
        ("{do} the chat with {name}", "{do} the conversation with {name} in the messages"),
        _mark,
    ),
    _family(
        "weather_add",
        product(city=PLACES),
        "Add {city} to the cities of the weather app",
        "I want {city} among the cities in the weather app",
    ),
)
SPLITS = (Split("test", 128, pool="all", layouts=TRAIN_LAYOUTS),)


@lru_cache(maxsize=1)
def _made() -> dict[str, tuple[Task, str]]:
    found = instances(SUITE, FAMILIES, SPLITS, MAX_STEPS)
    return {task.id: (task, wording) for task, wording in found}


def tasks() -> list[Task]:
    """Every instance, the same on every machine."""
    return [task for task, _ in _made().values()]


def phrasing(task: Task) -> str:
    """How the task's goal is worded, without its parameters."""
    return _made()[task.id][1]
