"""The simulated assistant's catalogue, and what people say when they want one of its actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from features.catalogue import ActionSpec
from features.events import from_seconds

LOCALES = ("en-GB", "de-DE")
CONSENTS = ("location", "payments")
PERMISSIONS = ("photos", "calendar", "location", "phone")
SEASON_DAYS = 5
"""After this many days the seasonal action expires."""


@dataclass(frozen=True)
class SimulatedAction:
    """A catalogue entry with the phrases that hint at it, by locale.

    Args:
        popularity: how often it is what people need, as a log weight.
        phrases: per locale, in the order of LOCALES.
    """

    name: str
    spec: ActionSpec
    popularity: float
    phrases: tuple[tuple[str, ...], tuple[str, ...]]


def _action(name: str, popularity: float, english: str, german: str, spec: ActionSpec | None = None) -> SimulatedAction:
    title = name.replace("_", " ").capitalize()
    spec = msgspec.structs.replace(spec or ActionSpec(), title=f"{title}: {{target}}" if _about(spec) else title)
    phrases = (tuple(english.split("|")), tuple(german.split("|")))
    return SimulatedAction(name, spec, popularity, phrases)


def _about(spec: ActionSpec | None) -> bool:
    return spec is not None and bool(spec.entity_types)


_IMAGE = ["image"]
_CHAT = ["chat"]

ACTIONS: tuple[SimulatedAction, ...] = (
    _action("summarize_image", 0.8, "what does it show|explain this picture|whats on that sign",
            "was ist darauf zu sehen|erklär mir das bild|was steht auf dem schild", ActionSpec(entity_types=_IMAGE)),
    _action("save_image", 0.6, "lovely shot keep it|want this in my album|great memory",
            "tolles foto behalten|das will ich im album|schöne erinnerung",
            ActionSpec(entity_types=_IMAGE, permissions=["photos"])),
    _action("edit_image", -0.2, "too dark crop it|brighten the colours|remove the background",
            "zu dunkel zuschneiden|farben heller machen|hintergrund entfernen",
            ActionSpec(entity_types=_IMAGE, min_app_version="3.2")),
    _action("share_image", 0.4, "show grandma too|send it to the group|others should see it",
            "zeig das auch oma|schick es in die gruppe|das sollen alle sehen",
            ActionSpec(entity_types=_IMAGE, surfaces=["chat", "share"], exclusive_group="sharing")),
    _action("reply_message", 1.2, "what do you say|can you answer me|are you coming",
            "was sagst du dazu|kannst du mir antworten|kommst du mit",
            ActionSpec(entity_types=["message"], surfaces=_CHAT, triggers=["message_received"])),
    _action("translate_text", 0.1, "qué significa esto|no lo entiendo|in which language is that",
            "cosa vuol dire questo|non capisco|welche sprache ist das",
            ActionSpec(entity_types=["message", "document"])),
    _action("summarize_thread", 0.2, "so many messages what happened|catch me up|long discussion",
            "so viele nachrichten was ist passiert|bring mich auf stand|lange diskussion",
            ActionSpec(entity_types=["message"], cooldown_s=3600.0)),
    _action("send_voice_note", -0.3, "my hands are full|easier to talk|cannot type now",
            "habe keine hand frei|lieber sprechen|kann gerade nicht tippen",
            ActionSpec(entity_types=["message", "call"], surfaces=_CHAT)),
    _action("add_to_calendar", 0.9, "friday at seven|save the date|put it in the diary",
            "freitag um sieben|merk dir den termin|trag es in den kalender",
            ActionSpec(entity_types=["event"], permissions=["calendar"])),
    _action("rsvp_event", 0.5, "please confirm|will you join us|tell us by monday",
            "bitte zusagen|bist du dabei|gib bis montag bescheid",
            ActionSpec(entity_types=["event"], max_target_age_s=7 * 86400.0)),
    _action("get_directions", 0.5, "how do i get there|where is it|which bus goes",
            "wie komme ich dahin|wo ist das|welcher bus fährt",
            ActionSpec(entity_types=["event"], permissions=["location"], consent="location")),
    _action("summarize_document", 0.7, "forty pages no time|the key points please|what is in the report",
            "vierzig seiten keine zeit|bitte das wichtigste|was steht im bericht",
            ActionSpec(entity_types=["document"])),
    _action("sign_document", 0.0, "signature needed|contract attached|sign and return",
            "unterschrift nötig|vertrag anbei|unterschreiben und zurück",
            ActionSpec(entity_types=["document"], min_age=18, safety_class="sensitive")),
    _action("share_document", 0.1, "forward it to legal|colleagues need this file|pass it on",
            "leite es weiter|kollegen brauchen die datei|gib das weiter",
            ActionSpec(entity_types=["document"], surfaces=["share", "chat"], exclusive_group="sharing")),
    _action("pay_bill", 0.4, "invoice due tomorrow|amount payable|please transfer",
            "rechnung bis morgen fällig|zahlbarer betrag|bitte überweisen",
            ActionSpec(entity_types=["document"], min_age=18, consent="payments", safety_class="sensitive",
                       exclusive_group="payment", needs_text_check=True)),
    _action("split_bill", 0.0, "dinner for four|everyone owes a part|share the costs",
            "abendessen zu viert|jeder zahlt seinen teil|kosten teilen",
            ActionSpec(entity_types=["document"], exclusive_group="payment")),
    _action("open_link", 0.8, "look at this page|click here|live now",
            "schau dir die seite an|klick hier|jetzt live", ActionSpec(entity_types=["link"])),
    _action("save_link", 0.2, "nice read for the weekend|later on the train|bookmark this",
            "schön fürs wochenende|später im zug|lesezeichen setzen", ActionSpec(entity_types=["link"])),
    _action("summarize_link", 0.3, "long article short version|tldr|what do they claim",
            "langer artikel kurz gesagt|kurzfassung|was behaupten die", ActionSpec(entity_types=["link"])),
    _action("call_back", 0.8, "you did not pick up|ring me|urgent please phone",
            "du bist nicht rangegangen|ruf mich an|dringend bitte telefonieren",
            ActionSpec(entity_types=["call"], permissions=["phone"], max_target_age_s=2 * 86400.0)),
    _action("block_caller", -0.6, "unknown number again|spam robot voice|stop calling",
            "wieder unbekannte nummer|werbung automatische stimme|hört auf anzurufen",
            ActionSpec(entity_types=["call"], safety_class="sensitive", cooldown_s=86400.0)),
    _action("remind_later", 0.5, "not now|tonight maybe|do not let me forget",
            "nicht jetzt|vielleicht heute abend|lass mich das nicht vergessen", ActionSpec(max_offers_per_day=12)),
    _action("play_music", 0.4, "need a beat|quiet in here|the new album",
            "brauche musik|so still hier|das neue album", ActionSpec(surfaces=["home"])),
    _action("start_timer", 0.1, "pasta is on|ten minutes|in the oven",
            "nudeln kochen|zehn minuten|im ofen", ActionSpec(surfaces=["home"])),
    _action("show_weather", 0.3, "umbrella or not|going outside|will it rain",
            "schirm oder nicht|gehe raus|wird es regnen", ActionSpec(surfaces=["home"])),
    _action("daily_briefing", 0.5, "good morning|start of the day|whats up today",
            "guten morgen|start in den tag|was steht heute an", ActionSpec(surfaces=["home"], cooldown_s=6 * 3600.0)),
    _action("wine_tip", -0.8, "red or white|dinner guests tonight|goes with cheese",
            "rot oder weiß|heute gäste zum essen|passt zu käse",
            ActionSpec(surfaces=["home"], min_age=18, safety_class="adult", regions=["GB", "DE"])),
    _action("gift_idea", -0.2, "birthday next week|no idea for a present|surprise her",
            "geburtstag nächste woche|keine idee für ein geschenk|sie überraschen",
            ActionSpec(needs_text_check=True)),
    _action("send_fax", -3.0, "fax machine|by fax only|fax number",
            "faxgerät|nur per fax|faxnummer", ActionSpec(off=True)),
)  # fmt: skip

INDEX: Mapping[str, int] = {action.name: index for index, action in enumerate(ACTIONS)}


def specs(start_s: float) -> dict[str, ActionSpec]:
    """The catalogue at the start of the simulation; the seasonal action expires within it."""
    found = {action.name: action.spec for action in ACTIONS}
    expires = from_seconds(start_s + SEASON_DAYS * 86400.0)
    found["gift_idea"] = msgspec.structs.replace(found["gift_idea"], expires=expires)
    return found
