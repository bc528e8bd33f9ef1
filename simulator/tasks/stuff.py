"""What everyday phones are filled with: people and chats, notes, events, songs, files and mails."""

from __future__ import annotations

NAMES = (
    *("Alan Brook", "Alan Brooks", "Amira Stone", "Bruno Weiss", "Clara Holt", "Clare Holt"),
    *("Dana Fox", "Elena Marsh", "Erik Lund", "Erika Lund", "Farah Noor", "George Pike"),
    *("Hana Ito", "Ivan Petrov", "Jonas Berg", "Jonas Berger", "Kira Wolf", "Liam Reed"),
    *("Lina Reed", "Marco Silva", "Maria Silva", "Nadia Khan", "Omar Haddad", "Petra Klein"),
    *("Quinn Avery", "Rosa Diaz", "Samir Patel", "Tara Quill", "Uma Rao", "Viktor Hahn"),
)
"""Some of them are easily mistaken for each other."""
SAID = (
    *("Are you there?", "Call me later.", "Thanks a lot!", "See the photo I sent.", "Great news!"),
    *("Did you get my mail?", "Almost home.", "Good night.", "The package came.", "Fine by me."),
)
NOTES = {
    "Wi-Fi guests": "Ask for the card at the front desk",
    "Paint colours": "Kitchen sage, hall ivory, door navy",
    "Bike service": "Chain, brakes, new front light",
    "Book list": "The Tin Drum, Dune, Middlemarch",
    "Meter reading": "Gas 20418, water 733",
    "Garden plan": "Beans left, tomatoes along the wall",
    "Gift ideas": "Teapot, scarf, board game",
    "Car papers": "In the blue folder, second shelf",
    "Recipe soup": "Leek, potato, stock, thyme",
    "Recipe stew": "Beef, carrot, red wine, bay leaf",
    "Choir dates": "Rehearsal Mondays at seven",
    "Flat hunting": "Two rooms, balcony, near the park",
    "Dog food": "Four kilos, no grain",
    "Dog walks": "Morning with Sam, evening alone",
    "Tax papers": "Receipts in the green box",
    "Movie night": "Bring popcorn and a blanket",
}
LISTS = {
    "Shopping": ("Milk", "Eggs", "Rice", "Butter", "Onions", "Honey"),
    "Packing": ("Passport", "Charger", "Towel", "Socks", "Camera", "Sunscreen"),
    "Cleaning": ("Windows", "Oven", "Bathroom", "Balcony", "Carpets", "Fridge"),
    "Party": ("Balloons", "Cake", "Candles", "Music", "Juice", "Napkins"),
}
EVENTS = (
    *("Haircut", "Piano lesson", "Yoga class", "Yoga retreat", "Lunch with Omar", "Lunch with Uma"),
    *("Car wash", "Board meeting", "Budget review", "Code review", "Swim training", "Vet visit"),
    *("Parents evening", "Concert", "Museum tour", "Job interview", "Eye test", "Blood test"),
)
FILES = (
    *("invoice.pdf", "invoice2.pdf", "budget.txt", "budget_old.txt", "beach.jpg", "garden.jpg"),
    *("anthem.mp3", "podcast.mp3", "backup.zip", "photos.zip", "contract.pdf", "notes.txt"),
    *("ticket.pdf", "boarding.pdf", "cat.jpg", "dog.jpg", "slides.pdf", "todo.txt"),
)
MAILS = (
    *("Rent for June", "Rent for July", "Choir tickets", "Team lunch", "Team photo", "Order shipped"),
    *("Garden party", "Lost umbrella", "Meeting notes", "New timetable", "Parking permit", "Survey"),
)
