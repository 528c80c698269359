"""The page of sentences worth labelling next: every word with the tag the model would give, doubtful ones marked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertkit.report.markup import Html, join, tag
from bertkit.report.page import report, section, write_page
from bertkit.report.tagging import labeled_word
from bertkit.terminal import printable

_SURE = 0.9
"""From this confidence on a tag is no longer marked as doubtful."""


def write_ask_page(path: Path, chosen: Sequence[Any], model: str, examples: str) -> None:
    heading = f"{len(chosen):,} {examples} worth labelling next"
    lead = [tag("p", f"As {printable(model)} tags them: it is least sure of these, and no two of them are alike.")]
    about = f"Marked is what the model gives less than {_SURE:.0%}, with its confidence; the {examples} come by worth."
    sentences = tag("ol", [tag("li", _sentence(answer)) for answer in chosen], class_="sentences")
    listed = section("In this order", tag("p", about, class_="about"), sentences, id="sentences")
    write_page(path, report("tag --ask", heading, lead, listed, title="Worth labelling next – bertkit"))


def _sentence(answer: Any) -> Html:
    facts = answer.result.to_json()
    place = tag("p", f"{printable(answer.part.place)} – {answer.result.uncertainty:.2f} nats", class_="about")
    if "words" in facts:
        words = zip(facts["words"], facts["tags"], facts["confidences"], strict=True)
        return join(
            place, tag("p", [_word(str(word), str(label), share) for word, label, share in words], class_="tagged")
        )
    texts = [tag("p", printable(facts[name], lines=True)) for name in ("text", "text1", "text2") if name in facts]
    sure = facts["confidences"] if "confidences" in facts else {facts["label"]: facts["confidence"]}
    labels = sorted(sure.items(), key=lambda item: -item[1])
    return join(
        place, texts, tag("p", [_word(str(label), f"{share:.0%}", 1.0) for label, share in labels], class_="tagged")
    )


def _word(word: str, label: str, confidence: float) -> Html:
    doubt = None if confidence >= _SURE else tag("span", f"{confidence:.0%}", class_="predicted")
    return labeled_word(word, label, doubt)
