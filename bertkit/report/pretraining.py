"""The parts of a page that show what an encoder learned: held-out targets by kind, filled masks, measured masks."""

from typing import Any

from bertkit.report.curves import by_task, written
from bertkit.report.markup import Html, absent, bar, colour, join, swatch, table, tag
from bertkit.report.page import section
from bertkit.report.probe import Probe, SampleToken
from bertkit.report.runs import Run, mapping, number

_BUCKETS = {
    "all": "all targets",
    "masked": "replaced by [MASK]",
    "random": "replaced by a random token",
    "kept": "left as they were",
    "frequent": "frequent tokens, half of the text",
    "rare": "all rarer tokens",
    "first_piece": "first subword of a word",
    "later_piece": "later subword of a word",
}
_CLOSING, _OPENING = set(".,;:!?)]}%"), set("([{")


def buckets(runs: list[Run]) -> Html | None:
    """Loss and accuracy of the last evaluation, for every kind of target."""
    if "pretraining" not in by_task(runs):
        return None
    lasts = [run.of_kind("eval")[-1] if run.of_kind("eval") else {} for run in runs]
    found = [{"all": last, **mapping(last["buckets"])} if mapping(last.get("buckets")) else {} for last in lasts]
    if not any(found):
        reason = "no evaluation with buckets has been recorded; eval.every and data.validation_share ask for one"
        return section("Held-out targets by kind", absent(reason), id="buckets")
    names = [name for name in _BUCKETS if any(name in run for run in found)]
    shown = [index for index, run in enumerate(found) if run]
    head: list[Any] = ["kind of target"]
    for index in shown:
        head += ["targets", "loss", "accuracy", ""] if len(runs) == 1 else [swatch(index, runs[index].name), "", "loss"]
    rows = []
    for name in names:
        row: list[Any] = [_BUCKETS[name]]
        for index in shown:
            bucket = mapping(found[index].get(name))
            share, loss = number(bucket, "accuracy"), written(number(bucket, "loss"), "fixed")
            level = None if share is None else bar(share, colour(index))
            if len(runs) == 1:
                row += [written(number(bucket, "targets"), "count"), loss, written(share, "percent"), level]
            else:
                row += [written(share, "percent"), level, loss]
        rows.append(row)
    steps = ", ".join(f"{lasts[index]['step']:,}" for index in shown)
    about = f"The last evaluation, at step {steps}; masks and rows are the same every time."
    if len(runs) > 1:
        about += " Under a run's name its accuracy, then its loss."
    return section(
        "Held-out targets by kind", tag("p", about, class_="about"), table("Targets by kind", head, rows), id="buckets"
    )


def samples(runs: list[Run], probes: dict[int, Probe]) -> Html | None:
    if not probes:
        return None
    about = (
        "Held-out text with the targets marked: the original token, and whether the first guess was right. "
        "The probabilities of the guesses follow below."
    )
    parts: list[Any] = []
    for index, found in probes.items():
        if len(runs) > 1:
            parts.append(tag("h3", swatch(index, runs[index].name)))
        parts.append(
            tag("ol", [tag("li", _sample(pieces)) for pieces in found.samples], class_="samples")
            if found.samples
            else absent(found.no_samples or "no held-out row has a target")
        )
    explained = tag("p", about, class_="about") if any(found.samples for found in probes.values()) else None
    return section("Filled masks", explained, *parts, id="samples")


def _sample(pieces: list[SampleToken]) -> Html:
    """The text with its targets marked and numbered, then the guesses for each."""
    text: list[Any] = []
    guesses: list[Any] = []
    for before, piece in zip([None, *pieces], pieces, strict=False):
        if before is not None and _spaced(before, piece):
            text.append(" ")
        if piece.shown is None:
            text.append(piece.text)
            continue
        mark = "right" if piece.right else "wrong"
        text.append(tag("mark", piece.text, tag("sup", len(guesses) + 1), class_=mark))
        listed = [[_guess(token, share), " "] for token, share in piece.guesses]
        shown = None if piece.shown == "[MASK]" else tag("span", f"saw “{piece.shown}”", class_="saw")
        sign = tag("span", "✓" if piece.right else "✗", aria_hidden="true")
        verdict = tag("span", sign, tag("span", f"{mark}: ", class_="unseen"), class_=f"verdict {mark}")
        guesses.append(tag("li", verdict, listed, shown))
    return join(tag("p", text, class_="text"), tag("ol", guesses, class_="guesses"))


def _spaced(before: SampleToken, piece: SampleToken) -> bool:
    """Whether there is a space between two subwords; the tokenizer does not keep spaces, so it is a guess."""
    return not piece.continues and piece.text not in _CLOSING and before.text not in _OPENING


def _guess(token: str, share: float) -> Html:
    return tag("span", tag("b", token), " <1%" if share < 0.01 else f" {share:.0%}", class_="guess")


def masks(runs: list[Run], probes: dict[int, Probe]) -> Html | None:
    if not probes:
        return None
    parts = [tag("div", _mask_part(runs, index, found)) for index, found in probes.items()]
    return section("Masks", tag("div", parts, class_="charts"), id="masks")


def _mask_part(runs: list[Run], index: int, found: Probe) -> list[Any]:
    """What one run's masking did: over the run, from its records, and in detail, measured now."""
    run = runs[index]
    parts: list[Any] = [tag("h3", swatch(index, run.name))] if len(runs) > 1 else []
    seen = [value for record in run.of_kind("train") if (value := number(record, "targets_share")) is not None]
    if seen:
        mean = sum(seen) / len(seen)
        parts.append(tag("p", f"Over the run {mean:.1%} of all tokens, special ones included, were targets."))
    if not found.rates:
        return [*parts, absent(found.no_rates)]
    rows = [
        [rate.name, f"{rate.count:,}", f"{rate.share:.2%}", f"{rate.expected:.2%}" if rate.expected else "0"]
        for rate in found.rates
    ]
    caption = f"The first {found.mask_rows:,} training rows, in the first epoch"
    return [*parts, table(caption, ["", "count", "share", "asked for"], rows, class_="numbers captioned")]
