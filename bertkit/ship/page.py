"""A tagger as one page that computes by itself: its graph, weights and tokenizer, and our own scripts."""

import base64
import json
from importlib import resources
from typing import Any

import numpy as np

from bertkit.finetune.answers import rules_of
from bertkit.finetune.predict.tagger import Tagger
from bertkit.finetune.tasks import TASKS
from bertkit.graph import Graph
from bertkit.report.markup import tag
from bertkit.report.page import document
from data_pipelines.text.characters import IDEOGRAPHS, KANA
from data_pipelines.vocab.tokenizer import Tokenizer

KNOWN = ("tagging", "classification")
SCRIPTS = ("kernels.js", "words.js", "tagger.js")
_ALIGNED = 8


def tagger_page(name: str, tagger: Tagger, graph: Graph, output: str) -> str:
    """The page of a tagger or classifier whose computation the graph is."""
    if tagger.task not in (TASKS[known] for known in KNOWN):
        raise ValueError(f"--format html supports tasks of the kinds {', '.join(KNOWN)}")
    kind = tagger.task.head
    places, weights = _packed(graph.weights)
    data = {
        "kind": kind,
        "labels": list(tagger.labels),
        "nodes": [list(node) for node in graph.nodes],
        "output": output,
        "places": places,
        "weights": base64.b64encode(weights).decode(),
        "tokenizer": _tokenizer(tagger.tokenizer),
        "form": _form(tagger),
        "rules": _rules(tagger),
        "split": _split(tagger, kind),
    }
    body = tag(
        "main",
        tag("h1", name),
        tag("p", "Tags text on this device; nothing is sent anywhere. One sentence per line; Ctrl-Enter also tags."),
        tag("p", tag("textarea", "", id="text", rows="6", cols="80", aria_label="Text to tag, one sentence per line")),
        tag(
            "p",
            tag("button", "Tag", type="button", id="tag", class_="act"),
            " ",
            tag("small", "", id="time", class_="about"),
        ),
        tag("div", "", id="answer", class_="tagged", aria_live="polite"),
        id="content",
    )
    return document(name, body, data, [], [_asset(script) for script in SCRIPTS])


def _packed(weights: dict[str, np.ndarray]) -> tuple[list[list[Any]], bytes]:
    """All arrays one after the other, and where each of them lies."""
    places, held = [], bytearray()
    for name, array in weights.items():
        held += bytes(-len(held) % _ALIGNED)
        places.append([name, array.dtype.name, list(array.shape), len(held)])
        held += np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
    return places, bytes(held)


def _tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    """What the page must know of it; a tokenizer that it could not follow is refused."""
    values = json.loads(tokenizer.backend.to_str())
    model, before = values["model"], values["pre_tokenizer"] or {}
    normalizer = values["normalizer"]
    if normalizer is not None and normalizer["type"] != "BertNormalizer":
        raise ValueError(
            f"--format html: a tokenizer with the normalizer {normalizer['type']} is not supported by the page"
        )
    if any(not token["special"] for token in values["added_tokens"]):
        raise ValueError("--format html: a tokenizer with added tokens is not supported by the page")
    if (model["type"], before.get("type")) == ("WordPiece", "BertPreTokenizer"):
        longest, prefix = model["max_input_chars_per_word"], model["continuing_subword_prefix"]
        own = {"kind": "wordpiece", "unknown": model["vocab"][model["unk_token"]], "prefix": prefix, "longest": longest}
    elif (model["type"], before.get("type")) == ("BPE", "ByteLevel") and before.get("use_regex", True):
        merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
        own = {"kind": "bpe", "merges": merges, "space": before["add_prefix_space"]}
    else:
        kind = f"{model['type']} with {before.get('type')}"
        raise ValueError(f"--format html supports WordPiece and byte-level BPE, not {kind}")
    return {**own, "vocab": model["vocab"], "normalizer": normalizer}


def _form(tagger: Tagger) -> dict[str, Any]:
    form = tagger.form
    ends = {"before": form.before.tolist(), "after": form.after.tolist(), "stand_in": tagger.encode.stand_in}
    return {**ends, "room": form.room, "step": form.step, "all_subwords": form.all_subwords}


def _rules(tagger: Tagger) -> dict[str, Any] | None:
    rules = rules_of(tagger.labels, tagger.settings)
    if rules is None:
        return None
    arrays = {"follows": rules.follows_KK, "begins": rules.begins_K, "ends": rules.ends_K}
    return {name: array.astype(int).tolist() for name, array in arrays.items()}


def _split(tagger: Tagger, kind: str) -> dict[str, Any] | None:
    """The rule by which text becomes words; none where a text is one word."""
    if kind == "classifier":
        return None
    rule = {"punctuation": True, "hyphens": False, "clitics": False, "together": [], **tagger.settings.get("split", {})}
    if rule.get("segmenter"):
        raise ValueError("--format html cannot split text without spaces into words")
    return {**rule, "single": IDEOGRAPHS + KANA}


def _asset(name: str) -> str:
    return resources.files("bertkit.ship").joinpath(name).read_text(encoding="utf-8")
