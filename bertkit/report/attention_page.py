"""The page of attention weights: every head as a small map, one of them enlarged, and numbers by layer."""

import base64
from pathlib import Path
from typing import Any

from bertkit.report.attention import Attention, attention_of
from bertkit.report.curves import figure, written
from bertkit.report.markup import Html, table, tag
from bertkit.report.page import report, section, write_page

# N layers, H heads, T tokens

_PLOTS = {
    "difference": ("How far heads differ", "Mean Jensen–Shannon distance between two heads: 0 alike, 1 apart."),
    "distance": ("How far they look", "Mean distance in tokens. Dots: single heads. Line: their mean."),
    "entropy": ("How widely they look", "Entropy in bits: 0 for one token. Dots: single heads. Line: their mean."),
}


def write_attention_page(model_folder: str, text: str, out: Path) -> Path:
    """Write the page and return where it is."""
    write_page(out, attention_page(attention_of(model_folder, text)))
    return out


def attention_page(found: Attention) -> str:
    num_layers, num_heads = found.weights_NHTT.shape[:2]
    about = f"{found.model}: {num_layers} layers of {num_heads} heads, {len(found.words)} tokens."
    return report(
        "attention",
        "Where the heads look",
        [tag("p", tag("q", found.text), class_="read"), tag("p", about, class_="about")],
        [tag("div", _heads(found), _enlarged(), class_="beside"), _layers(found)],
        title=f"{found.text[:60]} – bertkit attention",
        data=_data(found),
        scripts=["charts.js", "attention.js"],
    )


def _heads(found: Attention) -> Html:
    """A button for each head; the script draws its map on it."""
    num_layers, num_heads = found.weights_NHTT.shape[:2]
    about = "Each square is one head: rows are the tokens that look, columns the tokens looked at."
    head = tag("tr", tag("td"), [tag("th", h + 1, scope="col") for h in range(num_heads)])
    rows = []
    for n in range(num_layers):
        numbers = found.layers[n]
        maps = [
            tag(
                "td",
                tag(
                    "button",
                    tag("canvas", aria_hidden="true"),
                    type="button",
                    data_layer=n,
                    data_head=h,
                    aria_pressed="false",
                    tabindex=0 if n == h == 0 else -1,
                    aria_label=f"layer {n + 1}, head {h + 1}: looks {numbers.distance_H[h]:.1f} tokens away, "
                    f"entropy {numbers.entropy_H[h]:.1f} bits",
                ),
            )
            for h in range(num_heads)
        ]
        rows.append(tag("tr", tag("th", n + 1, scope="row"), maps))
    grid = tag("table", tag("caption", "All heads"), tag("thead", head), tag("tbody", rows), class_="heads", id="heads")
    axes = "Down: layers, the first on top. Across: heads. Click one, or move with the arrow keys."
    return section(
        "All heads", tag("p", f"{about} {axes}", class_="about"), tag("div", grid, class_="scroll"), id="all"
    )


def _enlarged() -> Html:
    return section(
        "One head",
        tag("p", "", id="chosen", aria_live="polite"),
        tag("p", "Choose a word to see where the head looks from it.", class_="about"),
        tag("p", id="sentence", class_="sentence"),
        tag("div", id="map", class_="map scroll"),
        tag("p", "", id="pair", class_="pair", aria_live="polite"),
        tag("details", tag("summary", "Numbers"), tag("div", id="strongest")),
        id="one",
    )


def _layers(found: Attention) -> Html:
    rows = [
        [
            number,
            written(layer.difference, "fixed"),
            f"{layer.distance:.2f}",
            f"{min(layer.distance_H):.2f} – {max(layer.distance_H):.2f}",
            f"{layer.entropy:.2f}",
            f"{min(layer.entropy_H):.2f} – {max(layer.entropy_H):.2f}",
        ]
        for number, layer in enumerate(found.layers, start=1)
    ]
    head = ["layer", "heads differ", "distance", "of the heads", "entropy", "of the heads"]
    figures = [
        figure(f"layers-{key}", title, about, _head_table(found, key))
        for key, (title, about) in _PLOTS.items()
        if found.layers[0].difference is not None or key != "difference"
    ]
    return section(
        "Layer by layer",
        tag("div", figures, class_="charts three"),
        table("Layer by layer", head, rows),
        id="layers",
    )


def _head_table(found: Attention, key: str) -> Html:
    if key == "difference":
        rows: list[list[Any]] = [
            [n, written(layer.difference, "fixed")] for n, layer in enumerate(found.layers, start=1)
        ]
        return table(_PLOTS[key][0], ["layer", "mean of the pairs"], rows)
    num_heads = found.weights_NHTT.shape[1]
    rows = [
        [n, *(f"{value:.2f}" for value in getattr(layer, f"{key}_H"))] for n, layer in enumerate(found.layers, start=1)
    ]
    return table(_PLOTS[key][0], ["layer", *(f"head {h + 1}" for h in range(num_heads))], rows)


def _data(found: Attention) -> dict[str, Any]:
    """Weights as 16-bit integers, least byte first: exact to the hundredth of a percent, at 3 letters a weight."""
    packed = (found.weights_NHTT * 65535).round().numpy().astype("<u2").tobytes()
    num_layers, num_heads = found.weights_NHTT.shape[:2]
    return {
        "words": found.words,
        "layers": num_layers,
        "heads": num_heads,
        "weights": base64.b64encode(packed).decode(),
        **_charts(found),
    }


def _charts(found: Attention) -> dict[str, Any]:
    """The plots by layer, in the form that the curves of runs have."""
    layers = list(range(1, len(found.layers) + 1))

    def series(label: str, values: list[float | None], dots: bool) -> dict[str, Any]:
        y = [None if value is None else float(f"{value:.5g}") for value in values]
        return {"run": 7 if dots else 0, "column": 0, "label": label, "strong": not dots, "dotsOnly": dots, "y": y}

    charts: dict[str, Any] = {}
    for key, (title, _) in _PLOTS.items():
        lines = []
        if key != "difference":
            for h in range(found.weights_NHTT.shape[1]):
                lines.append(series(f"head {h + 1}", [getattr(layer, f"{key}_H")[h] for layer in found.layers], True))
        lines.append(series("mean", [getattr(layer, key) for layer in found.layers], False))
        charts[f"layers-{key}"] = {"title": title, "form": "fixed2", "fromZero": True, "series": lines}
    return {
        "axes": [{"key": "layer", "label": "layer"}],
        "fromFirst": True,
        "runs": [{"name": "model"}],
        "columns": [{"layer": layers}],
        "charts": charts,
    }
