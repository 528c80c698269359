"""The page of a corpus: what it is like, before anyone trains on it."""

from pathlib import Path
from typing import Any

from bertkit.report.markup import Html, bar, join, table, tag, tiles
from bertkit.report.page import report, section, write_page
from bertkit.terminal import printable
from data_pipelines.clean.card import Card, length_ranges


def write_corpus_page(path: Path, name: str, card: Card, tokenizer: dict[str, Any] | None) -> None:
    sections = [
        section("Repeats", _repeats(card), id="repeats"),
        section("Length of documents", _lengths(card), id="lengths"),
        section(
            "Languages and scripts",
            tag("div", _languages(card), _counted("Letters by script", "letters", card.scripts), class_="charts"),
            id="languages",
        ),
        section(
            "Frequent words", tag("div", [_ngrams(card, size) for size in card.ngrams], class_="columns"), id="ngrams"
        ),
        section("Odd characters", _odd(card), id="odd"),
    ]
    if tokenizer is not None:
        sections.insert(0, section("The tokenizer", _tokenizer(tokenizer), id="tokenizer"))
    title = f"{name} – bertkit corpus"
    write_page(path, report("corpus", printable(name), [_tiles(card, tokenizer)], sections, title=title))


def _tiles(card: Card, tokenizer: dict[str, Any] | None) -> Html:
    documents = max(card.documents, 1)
    values = {
        "documents": f"{card.documents:,}",
        "words": f"{card.words:,}",
        "characters": f"{card.characters:,}",
        "words a document": f"{card.words / documents:,.0f}",
        "repeats": f"{(card.repeated + card.nearly_repeated) / documents:.1%}",
    }
    if card.languages:
        code, count = next(iter(card.languages.items()))
        values["most in"] = f"{code} {count / documents:.0%}"
    if tokenizer is not None:
        values["unknown tokens"] = f"{tokenizer['unknown_rate']:.3%}"
    return tiles(values)


def _repeats(card: Card) -> Html:
    documents, lines = max(card.documents, 1), max(card.lines, 1)
    rows = [
        ["documents, word for word", f"{card.repeated:,}", f"{card.repeated / documents:.1%}"],
        ["documents, nearly", f"{card.nearly_repeated:,}", f"{card.nearly_repeated / documents:.1%}"],
        ["lines within their document", f"{card.repeated_lines:,}", f"{card.repeated_lines / lines:.1%}"],
    ]
    return join(
        table("What repeats an earlier one", ["", "count", "share"], rows),
        tag("p", "bertkit clean takes repeats out."),
    )


def _lengths(card: Card) -> Html:
    most = max(*card.lengths, 1)
    rows = [
        [f"from {low:,}" if high is None else f"{low:,} to {high - 1:,}", f"{count:,}", tag("td", bar(count / most))]
        for (low, high), count in zip(length_ranges(), card.lengths, strict=True)
        if count
    ]
    longest = card.longest
    told = tag("p", f"The longest has {longest['words']:,} words: {printable(longest['place'])}.") if longest else None
    return join(table("Documents by their number of words", ["words", "documents", ""], rows), told)


def _counted(caption: str, unit: str, counts: dict[str, int]) -> Html:
    total = max(sum(counts.values()), 1)
    rows = [
        [name, f"{count:,}", f"{count / total:.2%}", tag("td", bar(count / total))] for name, count in counts.items()
    ]
    return table(caption, ["", unit, "share", ""], rows, class_="numbers captioned")


def _languages(card: Card) -> Html:
    if card.languages is None:
        return tag("p", "Not detected; pip install 'bertkit[languages]' adds the detector.")
    return _counted("Documents by language", "documents", card.languages)


def _ngrams(card: Card, size: int) -> Html:
    what = "Words" if size == 1 else f"Runs of {size} words"
    rows = [[printable(phrase), f"{count:,}"] for phrase, count in card.ngrams[size]]
    return table(what, ["", "at least"], rows, class_="numbers captioned")


def _odd(card: Card) -> Html:
    if not card.odd:
        return tag("p", "None.")
    rows = [[code, kind, name, f"{count:,}"] for code, kind, name, count in card.odd]
    return table("Characters that prose hardly has", ["code point", "kind", "name", "count"], rows, class_="settings")


def _tokenizer(facts: dict[str, Any]) -> Html:
    rows = [
        ["unknown tokens", f"{facts['unknown_rate']:.3%}"],
        ["subwords a word", f"{facts['pieces_per_word']:.2f}"],
        ["bytes a token", f"{facts['bytes_per_token']:.2f}"],
    ]
    return table("How well it fits the start of the corpus", ["", ""], rows)
