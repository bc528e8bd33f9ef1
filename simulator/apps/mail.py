"""Mail: the boxes, a mail, writing and answering."""

from __future__ import annotations

from collections.abc import Sequence

from distrl.simulator.apps import contacts
from distrl.simulator.apps.base import App, Args
from distrl.simulator.phone import state as st
from distrl.simulator.phone import widgets
from distrl.simulator.phone.nodes import WIDTH, Node
from distrl.simulator.phone.state import State
from distrl.simulator.phone.ui import STATUS_H, Ui, viewport

BOXES = {
    "inbox": ("inbox", "Inbox"),
    "archive": ("archive", "Archive"),
    "sent": ("send", "Sent"),
    "bin": ("delete", "Bin"),
}
"""Icon and label of each box."""
_TOP = STATUS_H + widgets.BAR_H


def data() -> State:
    """The inbox is shown; two mails are in it."""
    return {
        "box": "inbox",
        "mails": [
            mail("Anna", "Weekend plans", "Shall we take the early train on Saturday?"),
            mail("City Library", "Your loan ends soon", "Two books are due on June 10."),
        ],
    }


def mail(person: str, subject: str, body: str, box: str = "inbox") -> State:
    """A mail from `person`, or to it where it is in "sent"."""
    return {"person": person, "subject": subject, "body": body, "box": box, "read": False, "star": False}


def find(state: State, subject: str, box: str = "inbox") -> int:
    """The place of the mail with this subject in a box, -1 when there is none."""
    mails: list[State] = state["apps"]["mail"]["mails"]
    return next(
        (place for place, entry in enumerate(mails) if (entry["subject"], entry["box"]) == (subject, box)), -1
    )


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

    def build(y: float) -> tuple[Sequence[Node], float]:
        if not shown:
            return widgets.empty(ui, y + 80, "mail", "Nothing here"), y + 240
        rows = [_mail_row(ui, y + 4 + 92 * line, place) for line, place in enumerate(shown)]
        return rows, y + 4 + 92 * len(rows) + 90

    listed = viewport(ui, "mail.list", _TOP, ui.bottom, build)
    if searching:
        return [listed, widgets.search_bar(ui, "mail", "Search mail")]
    actions = [
        ui.icon_button(WIDTH - 56, STATUS_H + 8, "menu", "Boxes", ("mail", "boxes"), "boxes"),
        ui.icon_button(WIDTH - 106, STATUS_H + 8, "search", "Search", ("mail", "search"), "search"),
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
        parts.append(Node(WIDTH - 56, y + 6, 28, 28, "widget.ImageView", icon="star", color="#f29900"))
    return Node(
        widgets.MARGIN,
        y,
        WIDTH - 2 * widgets.MARGIN,
        86,
        "view.ViewGroup",
        f"mail_{place}",
        desc=entry["subject"],
        tap=("mail", "open", place),
        fill=theme.card,
        radius=20,
        children=tuple(parts),
    )


def _boxes(ui: Ui) -> list[Node]:
    app, rows = ui.state["apps"]["mail"], []
    for place, (box, (icon, label)) in enumerate(BOXES.items()):
        y = _TOP + 8 + 80 * place
        count = sum(entry["box"] == box for entry in app["mails"])
        lead = ui.disc(widgets.MARGIN + 12, y + 12, 48, icon, ui.theme.tint, ui.theme.on_tint)
        tap = ("mail", "box", box)
        rows.append(
            widgets.row(
                ui, y, label, f"{count} mails", lead=lead, tap=tap, rid="box_" + box, fill=ui.theme.card
            )
        )
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
        widgets.avatar(32, _TOP + 84, 48, entry["person"], contacts.color(entry["person"])),
        ui.text(92, _TOP + 84, 230, 26, entry["person"], 17, bold=True),
        ui.text(92, _TOP + 108, 230, 22, "to me" if entry["box"] != "sent" else "from me", 14, theme.muted),
        ui.text(32, _TOP + 146, 296, 140, entry["body"], 17, lines=6, top=True, rid="mail_body"),
    )
    nodes = [
        ui.text(24, _TOP, 312, 64, entry["subject"], 24, lines=2, rid="mail_subject"),
        widgets.card(ui, _TOP + 70, 230, sheet, rid="mail_sheet"),
        ui.button(24, _TOP + 316, 150, "Reply", ("mail", "reply", index), "reply"),
    ]
    return [*nodes, widgets.app_bar(ui, "", actions)]


def _form(ui: Ui, is_reply: bool) -> list[Node]:
    fields = [
        *widgets.clearable(ui, _TOP + 4, "mail", "mail.to", "To", "person"),
        *widgets.clearable(ui, _TOP + 72, "mail", "mail.subject", "Subject", "mail"),
        *widgets.clearable(ui, _TOP + 140, "mail", "mail.body", "Text", "edit"),
    ]
    return widgets.form(ui, "Reply" if is_reply else "New mail", fields, ("mail", "send"), "Send")


def act(state: State, verb: str, args: Args) -> None:
    """Opens pages; writes, sends, stars, archives and deletes."""
    app = state["apps"]["mail"]
    if verb == "search":
        widgets.start_search(state, "mail")
    elif verb == "open":
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
    elif verb == "clear":
        widgets.clear(state, str(args[0]))
    elif verb == "send":
        _send(state, app)


def _start(state: State, verb: str, args: Args) -> None:
    answered = state["apps"]["mail"]["mails"][int(args[0])] if args else {"person": "", "subject": ""}
    subject = f"Re: {answered['subject']}" if args else ""
    state["fields"].update({"mail.to": answered["person"], "mail.subject": subject, "mail.body": ""})
    st.push(state, "mail", verb, *args)
    st.focus(state, "mail.body" if args else "mail.to")


def _send(state: State, app: State) -> None:
    to, subject, body = (st.take(state, "mail." + name) for name in ("to", "subject", "body"))
    st.pop(state, "mail")
    if to and len(app["mails"]) < st.MAX_ITEMS:
        app["mails"].append(mail(to, subject or "No subject", body, "sent"))
        state["toast"] = "Sent"


def submit(state: State, key: str) -> None:
    """Enter goes to the next field, and closes the keyboard after the last."""
    after = {"mail.to": "mail.subject", "mail.subject": "mail.body"}.get(key)
    if after:
        st.focus(state, after)
    else:
        st.blur(state)


APP = App("mail", "Mail", "mail", "#ef6c00", data, view, act, submit, keeps=("mails",))
