"""Families of `general`: contacts, messages and notes."""

from __future__ import annotations

from distrl.simulator.tasks import stuff
from distrl.simulator.tasks.suites.families import Family, product, zipped

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
        (
            "Add the contact {name} with the number {phone}",
            "Create a contact: {name}, {phone}",
            "Save the contact {name}, number {phone}",
            "New contact: {name} with the phone number {phone}",
            "Put {name}, {phone}, into the contacts",
            "Make {name} one of my contacts, the number is {phone}",
        ),
        ("Save {phone} as the number of {name}", "Put {name} into my contacts, phone {phone}"),
    ),
    Family(
        "contact_number",
        "contact_number",
        zipped(name=stuff.NAMES, phone=_PHONES[::-1]),
        (
            "Change the number of {name} to {phone}",
            "{name} has a new number, {phone}: update the contact",
            "Set the phone number of {name} to {phone}",
            "Correct the number of the contact {name} to {phone}",
            "{phone} is the new number of {name}: change it",
            "The contact {name} should have the number {phone}",
        ),
        ("Correct the phone number of {name}: it is {phone}", "Set {phone} as the new number of {name}"),
    ),
    Family(
        "contact_call",
        "contact_call",
        product(name=stuff.NAMES),
        (
            "Call {name}",
            "Phone {name}",
            "Make a call to {name}",
            "Ring {name}",
            "Start a phone call with {name}",
            "I want to call {name} up",
        ),
        ("Ring {name} up", "Give {name} a call"),
    ),
    Family(
        "contact_delete",
        "contact_delete",
        product(name=stuff.NAMES),
        (
            "Delete the contact {name}",
            "Remove {name} from the contacts",
            "Erase the contact {name}",
            "Take {name} off my contacts",
            "Get rid of {name} in the address book",
            "I do not need {name} in my contacts any more",
        ),
        ("Take {name} out of my address book", "Erase {name} from my contacts"),
    ),
    Family(
        "contact_show",
        "contact_show",
        product(name=stuff.NAMES),
        (
            "What is the phone number of {name}?",
            "Show the contact {name}",
            "Look up {name} in my contacts",
            "Open the contact {name}",
            "Find {name} in the contacts",
            "How do I reach {name}? Show the contact",
        ),
        ("Look {name} up in the contacts", "How can I reach {name}? Open the contact"),
    ),
    Family(
        "message_send",
        "message_send",
        zipped(name=_CHATTED, text=_TEXTS),
        (
            'Send {name} the message "{text}"',
            'Text {name}: "{text}"',
            'Write {name} the message "{text}"',
            'Write to {name} in the chat: "{text}"',
            'Let {name} know: "{text}"',
            'Message for {name}: "{text}"',
        ),
        ('Let {name} know by message: "{text}"', 'Write "{text}" in the chat with {name}'),
    ),
    Family(
        "message_new",
        "message_new",
        zipped(name=_CHATTED[::-1], text=_TEXTS),
        (
            'Start a chat with {name} and send "{text}"',
            'Begin a new chat: tell {name} "{text}"',
            'Open a new chat with {name}: "{text}"',
            'Send {name} a first message: "{text}"',
            'New conversation with {name}, saying "{text}"',
            'Start to write with {name}: "{text}"',
        ),
        ('Open a new conversation with {name} saying "{text}"', 'First message to {name}: "{text}"'),
    ),
    Family(
        "chat_open",
        "chat_open",
        product(name=_CHATTED),
        (
            "Open the chat with {name}",
            "Show the messages from {name}",
            "Read what {name} wrote",
            "Show me the conversation with {name}",
            "Read the chat with {name}",
            "What did {name} say to me? Open the chat",
        ),
        ("What did {name} write to me?", "Read the conversation with {name}"),
    ),
    Family(
        "chat_delete",
        "chat_delete",
        product(name=_CHATTED),
        (
            "Delete the chat with {name}",
            "Remove the messages with {name}",
            "Erase the chat with {name}",
            "Clear the conversation with {name}",
            "Delete everything that {name} wrote to me",
            "Take my chat with {name} away",
        ),
        ("Clear away my conversation with {name}", "Erase everything that {name} and I wrote"),
    ),
    Family(
        "note_add",
        "note_add",
        zipped(title=_TITLES, body=_BODIES),
        (
            'Write a note "{title}" that says "{body}"',
            'Add a note, title "{title}", text "{body}"',
            'Make a note "{title}" with the text "{body}"',
            'New note called "{title}": "{body}"',
            'Take a note named "{title}", "{body}"',
            'Put "{body}" down in a note with the title "{title}"',
        ),
        ('Take down "{body}" in a note named "{title}"', 'Make a note called "{title}": "{body}"'),
    ),
    Family(
        "note_edit",
        "note_edit",
        zipped(title=sorted(stuff.NOTES) + sorted(stuff.NOTES), body=_CHANGED),
        (
            'Change the note "{title}" to say "{body}"',
            'Replace the text of the note "{title}" by "{body}"',
            'Rewrite the note "{title}": "{body}"',
            'The text of "{title}" should be "{body}": change the note',
            'Let the note "{title}" read "{body}"',
            'Edit "{title}" in the notes so that it says "{body}"',
        ),
        ('Rewrite "{title}" in the notes: "{body}"', 'The note "{title}" should read "{body}"'),
    ),
    Family(
        "note_show",
        "note_show",
        product(title=sorted(stuff.NOTES)),
        (
            'Open the note "{title}"',
            'What does the note "{title}" say?',
            'Read the note "{title}"',
            'Find the note "{title}"',
            'Show "{title}" in the notes',
            'Look at my note "{title}"',
        ),
        ('Find my note "{title}" and show it', 'Read "{title}" in the notes'),
    ),
    Family(
        "note_pin",
        "note_pin",
        product(title=sorted(stuff.NOTES)),
        (
            'Pin the note "{title}"',
            'Pin "{title}" so that it is the first note',
            'Keep the note "{title}" on top',
            'Put "{title}" at the top of the notes and keep it there',
            'Fix the note "{title}" at the top',
            'My note "{title}" should stay above the others: pin it',
        ),
        ('Keep my note "{title}" at the top', 'Fix "{title}" above the other notes'),
    ),
    Family(
        "note_delete",
        "note_delete",
        product(title=sorted(stuff.NOTES)),
        (
            'Delete the note "{title}"',
            'Remove "{title}" from the notes',
            'Get rid of the note "{title}"',
            'Erase my note "{title}"',
            'I do not need "{title}" in the notes any more',
            'Throw the note "{title}" away',
        ),
        ('Get rid of my note "{title}"', 'I do not need the note "{title}" any more'),
    ),
    Family(
        "list_tick",
        "list_tick",
        tuple({"title": title, "item": item} for title, items in stuff.LISTS.items() for item in items),
        (
            'Tick "{item}" on the list "{title}"',
            'Check off "{item}" in the note "{title}"',
            'Mark "{item}" on the list "{title}" as done',
            '"{item}" in "{title}" is done: tick it',
            'Check "{item}" on my list "{title}"',
            'Tick off "{item}" in the note "{title}"',
        ),
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
        (
            'Add "{item}" to the list "{title}"',
            'Put "{item}" on the list "{title}"',
            'Note "{item}" on the list "{title}"',
            'Add "{item}" to my list "{title}"',
            'The list "{title}" lacks "{item}"',
            'Write "{item}" on "{title}"',
        ),
        ('My list "{title}" lacks "{item}": add it', 'Note "{item}" on "{title}"'),
    ),
)
