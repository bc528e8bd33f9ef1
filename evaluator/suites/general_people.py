"""Families of `general`: contacts, messages and notes."""

from __future__ import annotations

from distrl.evaluator.suites.families import Family, product, zipped
from distrl.workers.simphone.templates import stuff

_NEW = (
    *("Zoe Lane", "Yusuf Demir", "Wanda Ross", "Tom Ashby", "Selma Vik", "Rita Gold", "Paul Orr"),
    *("Olga Brandt", "Nils Hoff", "Mona Lee", "Luis Vega", "Kurt Beam", "Judy Park", "Igor Babic"),
    *("Hilda Moss", "Gina Roth", "Fred Nolan", "Eva Lind", "Dirk Sand", "Cora Bell", "Bert Fink"),
)
_PHONES = tuple(f"555 0{number}" for number in range(117, 190, 3))
_TEXTS = (
    *("See you at six", "The tickets are booked", "Please bring the keys", "I will be ten minutes late"),
    *("Dinner is at my place", "Can you feed the cat", "The meeting moved to Friday", "Happy birthday"),
    *("I found your scarf", "Let us take the early train", "Thanks for the lift", "Call the plumber"),
    *(
        "We won the match",
        "The parcel is at my door",
        "Do not forget the cake",
        "The concert starts at eight",
    ),
    *("I am at the station", "Send me the address", "Lunch tomorrow", "The heating is fixed"),
    *("Your book is here", "Meet me at the library", "The shop closes at nine", "All the best"),
)
_TITLES = (
    *("Passport", "Locker", "Dentist", "Plants", "Rent", "Bulbs", "Boiler", "Filters", "Tyres", "Phone"),
    *("Piano", "Stamps", "Keys", "Oven", "Garden", "Roof", "Bakery", "Cinema", "Taxi", "Hotel", "Museum"),
)
_BODIES = (
    *("Renew it before August", "Code is four two seven", "Ask about the crown", "Water on Sundays"),
    *("Due on the first", "Two of forty watts", "Service in October", "Order a pack of three"),
    *("Change to winter ones", "Cracked glass at the corner", "Tune it once a year", "Ten for letters"),
    *("One more for the neighbour", "Clean the fan", "Cut the hedge low", "Look for the leak"),
    *("Rye bread on Thursdays", "Row seven in the middle", "Book for six in the morning"),
    *("Room with a balcony", "Closed on Mondays"),
)
_CHANGED = ("Ask Vera first", "All done by Friday", "Moved to the attic", "See the new list", "Twice a month")
_CHATTED = stuff.NAMES

FAMILIES = (
    Family(
        "contact_add",
        "contact_add",
        zipped(name=_NEW, phone=_PHONES),
        ("Add the contact {name} with the number {phone}", "Create a contact: {name}, {phone}"),
        ("Save {phone} as the number of {name}", "Put {name} into my contacts, phone {phone}"),
    ),
    Family(
        "contact_number",
        "contact_number",
        zipped(name=stuff.NAMES, phone=_PHONES[::-1]),
        ("Change the number of {name} to {phone}", "{name} has a new number, {phone}: update the contact"),
        ("Correct the phone number of {name}: it is {phone}", "Set {phone} as the new number of {name}"),
    ),
    Family(
        "contact_call",
        "contact_call",
        product(name=stuff.NAMES),
        ("Call {name}", "Phone {name}"),
        ("Ring {name} up", "Give {name} a call"),
    ),
    Family(
        "contact_delete",
        "contact_delete",
        product(name=stuff.NAMES),
        ("Delete the contact {name}", "Remove {name} from the contacts"),
        ("Take {name} out of my address book", "Erase {name} from my contacts"),
    ),
    Family(
        "contact_show",
        "contact_show",
        product(name=stuff.NAMES),
        ("What is the phone number of {name}?", "Show the contact {name}"),
        ("Look {name} up in the contacts", "How can I reach {name}? Open the contact"),
    ),
    Family(
        "message_send",
        "message_send",
        zipped(name=_CHATTED, text=_TEXTS),
        ('Send {name} the message "{text}"', 'Text {name}: "{text}"'),
        ('Let {name} know by message: "{text}"', 'Write "{text}" in the chat with {name}'),
    ),
    Family(
        "message_new",
        "message_new",
        zipped(name=_CHATTED[::-1], text=_TEXTS),
        ('Start a chat with {name} and send "{text}"', 'Begin a new chat: tell {name} "{text}"'),
        ('Open a new conversation with {name} saying "{text}"', 'First message to {name}: "{text}"'),
    ),
    Family(
        "chat_open",
        "chat_open",
        product(name=_CHATTED),
        ("Open the chat with {name}", "Show the messages from {name}"),
        ("What did {name} write to me?", "Read the conversation with {name}"),
    ),
    Family(
        "chat_delete",
        "chat_delete",
        product(name=_CHATTED),
        ("Delete the chat with {name}", "Remove the messages with {name}"),
        ("Clear away my conversation with {name}", "Erase everything that {name} and I wrote"),
    ),
    Family(
        "note_add",
        "note_add",
        zipped(title=_TITLES, body=_BODIES),
        ('Write a note "{title}" that says "{body}"', 'Add a note, title "{title}", text "{body}"'),
        ('Take down "{body}" in a note named "{title}"', 'Make a note called "{title}": "{body}"'),
    ),
    Family(
        "note_edit",
        "note_edit",
        zipped(title=sorted(stuff.NOTES) + sorted(stuff.NOTES), body=_CHANGED),
        ('Change the note "{title}" to say "{body}"', 'Replace the text of the note "{title}" by "{body}"'),
        ('Rewrite "{title}" in the notes: "{body}"', 'The note "{title}" should read "{body}"'),
    ),
    Family(
        "note_show",
        "note_show",
        product(title=sorted(stuff.NOTES)),
        ('Open the note "{title}"', 'What does the note "{title}" say?'),
        ('Find my note "{title}" and show it', 'Read "{title}" in the notes'),
    ),
    Family(
        "note_pin",
        "note_pin",
        product(title=sorted(stuff.NOTES)),
        ('Pin the note "{title}"', 'Pin "{title}" so that it is the first note'),
        ('Keep my note "{title}" at the top', 'Fix "{title}" above the other notes'),
    ),
    Family(
        "note_delete",
        "note_delete",
        product(title=sorted(stuff.NOTES)),
        ('Delete the note "{title}"', 'Remove "{title}" from the notes'),
        ('Get rid of my note "{title}"', 'I do not need the note "{title}" any more'),
    ),
    Family(
        "list_tick",
        "list_tick",
        tuple({"title": title, "item": item} for title, items in stuff.LISTS.items() for item in items),
        ('Tick "{item}" on the list "{title}"', 'Check off "{item}" in the note "{title}"'),
        ('"{item}" on my list "{title}" is done: mark it', 'Mark "{item}" as done in "{title}"'),
    ),
    Family(
        "list_add",
        "list_add",
        zipped(
            title=tuple(stuff.LISTS),
            item=(
                *("Lemons", "Torch", "Sofa", "Straws", "Salt", "Boots", "Sink", "Plates", "Bread", "Scarf"),
                *("Stairs", "Chips", "Soap", "Maps", "Desk", "Lights", "Figs", "Tent", "Doors", "Games"),
                *("Tea", "Comb", "Hall", "Ice"),
            ),
        ),
        ('Add "{item}" to the list "{title}"', 'Put "{item}" on the list "{title}"'),
        ('My list "{title}" lacks "{item}": add it', 'Note "{item}" on "{title}"'),
    ),
)
