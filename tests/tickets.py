"""A table of support tickets: seven unequal classes, two languages, some mails of 2,000 words.

    python tests/tickets.py tickets.csv          # 3,000 rows: id, team, body
    python tests/tickets.py tickets.csv 3400     # the same, and 400 rows that came later

A mail says what it is about in one sentence. Around it stand a greeting, small talk, and in a third of the mails
something that belongs to another team and is settled. One label in twenty is wrong.
"""

from __future__ import annotations

import csv
import random
import sys
from pathlib import Path

# team -> how many of a hundred mails; what they are about, in English and in German
SHARES = {"billing": 34, "login": 22, "delivery": 16, "returns": 12, "outage": 8, "contract": 5, "privacy": 3}
ABOUT = {
    "billing": ("invoice charge card payment amount", "Rechnung Betrag Karte Zahlung Abbuchung"),
    "login": ("password account code device screen", "Passwort Konto Code Gerät Bildschirm"),
    "delivery": ("parcel courier address tracking door", "Paket Bote Adresse Sendung Tür"),
    "returns": ("refund label shirt size box", "Erstattung Etikett Hemd Größe Karton"),
    "outage": ("server page error connection upload", "Server Seite Fehler Verbindung Upload"),
    "contract": ("notice term plan renewal signature", "Kündigung Laufzeit Tarif Verlängerung Unterschrift"),
    "privacy": ("data copy deletion consent record", "Daten Kopie Löschung Einwilligung Auskunft"),
}
OPEN = (
    ("my {} is still wrong", "there is a problem with the {}", "please look at the {}", "the {} does not work"),
    ("mit {} stimmt etwas nicht", "es gibt ein Problem mit {}", "bitte prüfen Sie {}", "{} geht nicht"),
)
SETTLED = (
    ("the {} from last week is fine now", "thanks, the {} is solved", "this is not about the {}"),
    ("{} von letzter Woche ist erledigt", "danke, {} ist geklärt", "es geht nicht um {}"),
)
AROUND = (
    ("hello", "good morning", "I write again", "kind regards", "the weather is bad here", "number {}", "thanks"),
    ("hallo", "guten Morgen", "ich schreibe wieder", "viele Grüße", "das Wetter ist schlecht", "Nummer {}", "danke"),
)


def mail(rng: random.Random) -> tuple[str, str]:
    """The team and the text."""
    german = rng.random() < 0.3
    team, other = rng.choices(list(SHARES), list(SHARES.values()), k=2)
    parts = [rng.choice(OPEN[german]).format(rng.choice(ABOUT[team][german].split()))]
    if rng.random() < 1 / 3 and other != team:
        parts.append(rng.choice(SETTLED[german]).format(rng.choice(ABOUT[other][german].split())))
    long = rng.random() < 0.02
    around = [rng.choice(AROUND[german]).format(rng.randrange(10_000)) for _ in range(rng.randint(1, 5) + 700 * long)]
    parts = parts + around if long else rng.sample(parts + around, len(parts + around))
    return rng.choice(list(SHARES)) if rng.random() < 0.05 else team, ". ".join(parts)


def write(path: Path, rows: int = 3000) -> Path:
    rng = random.Random(0)
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "team", "body"])
        table.writerows([i, *mail(rng)] for i in range(rows))
    return path


if __name__ == "__main__":
    write(Path(sys.argv[1]), *map(int, sys.argv[2:]))
