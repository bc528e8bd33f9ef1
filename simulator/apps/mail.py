"""Mail: the boxes, a mail, writing and answering; tasks with mails."""

from __future__ import annotations

from functools import partial

from distrl.core.actions import Action
from distrl.simulator.apps import contacts
from distrl.simulator.apps.base import App, Args, through
from distrl.simulator.names import Names
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node, group, image
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui
from distrl.simulator.phone.widgets import TOP
from distrl.simulator.tasks.base import (
    Check,
    Entries,
    Family,
    May,
    Params,
    Step,
    Template,
    everyday,
    fresh,
    where,
)
from distrl.simulator.tasks.expert import BACK, Expert

BOXES = {
    "inbox": ("inbox", "Inbox"),
    "archive": ("archive", "Archive"),
    "sent": ("send", "Sent"),
    "bin": ("delete", "Bin"),
}
"""Icon and label of each box."""


def data() -> State:
    """The inbox is shown; two mails are in it."""
    return {
        "box": "inbox",
        "mails": [
            mail("Anna", "Holiday plans", "Shall we take the early train on Saturday?"),
            mail("City Library", "Your loan ends soon", "Two books are due on June 10."),
        ],
    }


def mail(person: str, subject: str, body: str, box: str = "inbox") -> State:
    """A mail from `person`, or to it where it is in "sent"."""
    return {"person": person, "subject": subject, "body": body, "box": box, "read": False, "star": False}


def view(ui: Ui) -> list[Node]:
    """A box, the boxes, a search, a mail or the form."""
    top = st.page(ui.state, "mail")
    if top[0] == "mail":
        return _mail(ui, int(top[1]))
    if top[0] == "boxes":
        return _boxes(ui)
    if top[0] in ("write", "reply"):
        return _form(ui, top[0] == "reply")
    return _box(ui, searching=top[0] == "search")


def _box(ui: Ui, searching: bool) -> list[Node]:
    app = ui.state["apps"]["mail"]
    shown = [place for place, entry in enumerate(app["mails"]) if entry["box"] == app["box"]]
    if searching:
        shown = [
            place
            for place, entry in enumerate(app["mails"])
            if widgets.asked(ui.state, "mail", entry["subject"], entry["person"])
        ]

    none = ("mail", "Nothing here")
    listed = widgets.listing(
        ui, "mail.list", 92, shown, lambda y, _, place: _mail_row(ui, y, place), head=4, foot=90, none=none
    )
    if searching:
        return [listed, widgets.search_bar(ui, "mail", "Search mail")]
    actions = [
        ui.icon_button(WIDTH - 56, STATUS_H + 8, "menu", "Boxes", ("mail", "boxes"), "boxes"),
        ui.icon_button(WIDTH - 106, STATUS_H + 8, "search", "Search", ("find", "mail"), "search"),
    ]
    return [
        listed,
        widgets.app_bar(ui, BOXES[app["box"]][1], actions, back=False),
        widgets.fab(ui, "edit", "Write", ("mail", "write"), "write"),
    ]


def _mail_row(ui: Ui, y: float, place: int) -> Node:
    entry, theme = ui.state["apps"]["mail"]["mails"][place], ui.theme
    is_new = not entry["read"] and entry["box"] == "inbox"
    parts = [
        widgets.avatar(widgets.MARGIN + 12, y + 18, 50, entry["person"], contacts.color(entry["person"])),
        ui.text(94, y + 8, 200, 24, entry["person"], 16, bold=is_new),
        ui.text(94, y + 32, 236, 24, entry["subject"], 15, bold=is_new),
        ui.text(94, y + 56, 236, 22, entry["body"], 14, theme.muted),
    ]
    if entry["star"]:
        parts.append(image(WIDTH - 56, y + 6, 28, 28, "star", color="#f29900"))
    tap = ("mail", "open", place)
    desc = entry["subject"]
    return group(
        widgets.MARGIN, y, WIDTH - 2 * widgets.MARGIN, 86, f"mail_{place}", parts, desc, tap, theme.card, 20
    )


def _boxes(ui: Ui) -> list[Node]:
    app, rows = ui.state["apps"]["mail"], []
    for place, (box, (icon, label)) in enumerate(BOXES.items()):
        y = TOP + 8 + 80 * place
        count = sum(entry["box"] == box for entry in app["mails"])
        lead = ui.disc(widgets.MARGIN + 12, y + 12, 48, icon, ui.theme.tint, ui.theme.on_tint)
        held, tap = f"{count} mail{'' if count == 1 else 's'}", ("mail", "box", box)
        rows.append(widgets.row(ui, y, label, held, lead=lead, tap=tap, rid="box_" + box))
    return [*rows, widgets.app_bar(ui, "Boxes")]


def _mail(ui: Ui, index: int) -> list[Node]:
    entry, theme = ui.state["apps"]["mail"]["mails"][index], ui.theme
    actions = []
    star = "star" if entry["star"] else "star_border"
    for place, (icon, label, verb) in enumerate(
        (("delete", "Delete", "bin"), ("archive", "Archive", "archive"), (star, "Star", "star"))
    ):
        x = WIDTH - 52 - 50 * place
        actions.append(ui.icon_button(x, STATUS_H + 8, icon, label, ("mail", verb, index), verb))
    sheet = (
        widgets.avatar(32, TOP + 84, 48, entry["person"], contacts.color(entry["person"])),
        ui.text(92, TOP + 84, 230, 26, entry["person"], 17, bold=True),
        ui.text(92, TOP + 108, 230, 22, "to me" if entry["box"] != "sent" else "from me", 14, theme.muted),
        ui.text(32, TOP + 146, 296, 140, entry["body"], 17, lines=6, top=True, rid="mail_body"),
    )
    nodes = [
        ui.text(24, TOP, 312, 64, entry["subject"], 24, lines=2, rid="mail_subject"),
        widgets.card(ui, TOP + 70, 230, sheet, rid="mail_sheet"),
        ui.button(24, TOP + 316, 150, "Reply", ("mail", "reply", index), "reply"),
    ]
    return [*nodes, widgets.app_bar(ui, "", actions)]


def _form(ui: Ui, is_reply: bool) -> list[Node]:
    fields = [
        *widgets.clearable(ui, TOP + 4, "mail.to", "To", "person"),
        *widgets.clearable(ui, TOP + 72, "mail.subject", "Subject", "mail"),
        *widgets.clearable(ui, TOP + 140, "mail.body", "Text", "edit"),
    ]
    return widgets.form(ui, "Reply" if is_reply else "New mail", fields, ("mail", "send"), "Send")


def act(state: State, verb: str, args: Args) -> None:
    """Opens pages; writes, sends, stars, archives and deletes."""
    app = state["apps"]["mail"]
    if verb == "open":
        app["mails"][int(args[0])]["read"] = True
        st.push(state, "mail", "mail", *args)
    elif verb == "boxes":
        st.push(state, "mail", "boxes")
    elif verb == "box":
        app["box"] = args[0]
        st.reset(state, "mail")
    elif verb == "star":
        entry = app["mails"][int(args[0])]
        entry["star"] = not entry["star"]
    elif verb in ("bin", "archive"):
        app["mails"][int(args[0])]["box"] = verb
        st.reset(state, "mail")
        state["toast"] = "Deleted" if verb == "bin" else "Archived"
    elif verb in ("write", "reply"):
        _start(state, verb, args)
    elif verb == "send":
        _send(state, app)


def _start(state: State, verb: str, args: Args) -> None:
    answered = state["apps"]["mail"]["mails"][int(args[0])] if args else {"person": "", "subject": ""}
    subject = f"Re: {answered['subject']}" if args else ""
    fields = {"mail.to": answered["person"], "mail.subject": subject, "mail.body": ""}
    st.open_form(state, "mail", [verb, *args], fields, "mail.body" if args else "mail.to")


def _send(state: State, app: State) -> None:
    to, subject, body = (st.take(state, "mail." + name) for name in ("to", "subject", "body"))
    st.pop(state, "mail")
    if to and len(app["mails"]) < st.MAX_ITEMS:
        app["mails"].append(mail(to, subject or "No subject", body, "sent"))
        state["toast"] = "Sent"


APP = App(
    name="mail",
    label="Mail",
    icon="mail",
    color="#ef6c00",
    data=data,
    view=view,
    act=act,
    submit=through("mail.to", "mail.subject", "mail.body"),
    keeps=("mails",),
    comes="everyday",
)


MAILS = Entries("mail", "mails", "subject", "mail", "mail")


def _mail_start(state: State, params: Params, rng: Names) -> None:
    subjects = rng.names("event", 4, without=(params["subject"],))
    subjects.insert(rng.randrange(5), params["subject"])
    people = rng.names("person", 5)
    state["apps"]["mail"]["mails"] = [
        mail(person, subject, rng.name("text")) for person, subject in zip(people, subjects, strict=True)
    ]


def _mail_at(expert: Expert, params: Params) -> Action | None:
    step, box = MAILS.open(expert, params), MAILS.entry(expert.state, params).get("box")
    if box and step is not None and expert.state["apps"]["mail"]["box"] != box:
        at = expert.page("mail")[0]
        return expert.tap(f"box_{box}") if at == "boxes" else expert.tap("boxes") if at == "root" else BACK
    return step


def _is_in(box: str) -> Check:
    return lambda state, params: bool(MAILS.entry(state, params).get("box") == box)


def _tap(rid: str) -> Step:
    """Opens the mail, then taps `rid`."""
    return lambda expert, params: _mail_at(expert, params) or expert.tap(rid)


def _wanted(state: State, params: Params) -> State:
    """The mail that the task wants to be sent: a new one, or a reply."""
    if "to" in params:
        return mail(params["to"], params["subject"], params["text"], "sent")
    answered = MAILS.entry(state, params)
    return mail(answered["person"], "Re: " + params["subject"], params["text"], "sent")


def _sent_check(state: State, params: Params) -> bool:
    wanted = _wanted(state, params)
    return any({**entry, "read": False, "star": False} == wanted for entry in state["apps"]["mail"]["mails"])


def _form_step(expert: Expert, params: Params) -> Action:
    wanted = _wanted(expert.state, params)
    return expert.fill("mail", {"to": wanted["person"], "subject": wanted["subject"], "body": wanted["body"]})


def _send_step(expert: Expert, params: Params) -> Action:
    if expert.page("mail")[0] == "write":
        return _form_step(expert, params)
    return expert.to_root("mail") or expert.tap("write")


def _reply_step(expert: Expert, params: Params) -> Action:
    if expert.page("mail") == ["reply", MAILS.find(expert.state, params)]:
        return _form_step(expert, params)
    return _mail_at(expert, params) or expert.tap("reply")


def _is_sent(entry: State, params: Params) -> bool:
    """Whether an entry is the mail that the task wants to be written."""
    subject = params["subject"] if "to" in params else "Re: " + params["subject"]
    is_right = [entry[key] for key in ("box", "subject", "body")] == ["sent", subject, params["text"]]
    return is_right and entry["person"] == params.get("to", entry["person"])


_SENT = (May("mail.mails", where(_is_sent)),)
_task = partial(everyday, "mail")
TEMPLATES: dict[str, Template] = {
    "mail_show": _task({"subject": str}, _mail_start, MAILS.is_open, _mail_at),
    "mail_star": _task(
        {"subject": str},
        _mail_start,
        lambda state, params: bool(MAILS.entry(state, params)["star"]),
        _tap("star"),
        may=MAILS.may("star"),
    ),
    "mail_archive": _task(
        {"subject": str}, _mail_start, _is_in("archive"), _tap("archive"), may=MAILS.may("box")
    ),
    "mail_delete": _task({"subject": str}, _mail_start, _is_in("bin"), _tap("bin"), may=MAILS.may("box")),
    "mail_send": _task({"to": str, "subject": str, "text": str}, fresh, _sent_check, _send_step, may=_SENT),
    "mail_reply": _task({"subject": str, "text": str}, _mail_start, _sent_check, _reply_step, may=_SENT),
}
_SUBJECT = {"subject": "event"}
FAMILIES = (
    Family("mail_show", _SUBJECT),
    Family("mail_star", _SUBJECT),
    Family("mail_archive", _SUBJECT),
    Family("mail_delete", _SUBJECT),
    Family("mail_send", {"to": "person", **_SUBJECT, "text": "text"}),
    Family("mail_reply", {**_SUBJECT, "text": "text"}),
)
