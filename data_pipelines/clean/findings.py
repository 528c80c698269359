"""What cleaning found, for people: how much went and why, with examples and a histogram for each rule."""

from bisect import bisect_right
from dataclasses import asdict, dataclass, field
from typing import Any

from data_pipelines.clean.rules import RULES

REPEATED, NEARLY_REPEATED, FORBIDDEN_RUN = "repeated", "nearly repeated", "text not to be trained on"
OTHER_LANGUAGE = "another language"
MAX_EXAMPLES, _EXAMPLE_CHARS = 5, 300


@dataclass
class Findings:
    documents: int = 0
    characters: int = 0
    kept_documents: int = 0
    kept_characters: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Documents that a rule dropped, by rule; of repeats the documents or paragraphs."""
    examples: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """Some of what went, by reason: its place and how it begins; of repeats also the text that was kept."""
    histograms: dict[str, list[int]] = field(default_factory=dict)
    """Of each rule's measure over all documents; their borders are `Rule.borders`."""
    languages: dict[str, int] = field(default_factory=dict)
    """Documents that no rule drops, by language, where languages are asked for."""
    removed_lines: int = 0
    private: dict[str, int] = field(default_factory=dict)
    """What was replaced, by kind."""

    def measure(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            borders = RULES[name].borders
            counts = self.histograms.setdefault(name, [0] * (len(borders) + 1))
            counts[bisect_right(borders, value)] += 1

    def drop(self, reason: str, text: str, place: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1
        known = self.examples.setdefault(reason, [])
        if len(known) < MAX_EXAMPLES:
            known.append({"place": place, "text": shorten(text)})

    def remove_lines(self, lines: list[str], place: str) -> None:
        self.removed_lines += len(lines)
        known = self.examples.setdefault(FORBIDDEN_RUN, [])
        known += [{"place": place, "text": shorten(line)} for line in lines[: MAX_EXAMPLES - len(known)]]

    def add(self, later: "Findings") -> None:
        """What was found in text that comes after."""
        for name in ("documents", "characters", "kept_documents", "kept_characters", "removed_lines"):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        for name in ("dropped", "private", "languages"):
            counts = getattr(self, name)
            for kind, count in getattr(later, name).items():
                counts[kind] = counts.get(kind, 0) + count
        for name, counts in later.histograms.items():
            before = self.histograms.get(name, [0] * len(counts))
            self.histograms[name] = [one + other for one, other in zip(before, counts, strict=True)]
        for reason, examples in later.examples.items():
            known = self.examples.setdefault(reason, [])
            known += examples[: MAX_EXAMPLES - len(known)]

    def facts(self) -> dict[str, Any]:
        return asdict(self)


def shorten(text: str) -> str:
    return text if len(text) <= _EXAMPLE_CHARS else text[:_EXAMPLE_CHARS] + "…"
