"""The label clinic: folds keep copies together, doubts are those of the model, and planted mistakes come first."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from grammar import write_conll

from bertkit.cli import main
from bertkit.config.finetune import read_finetune_recipe
from bertkit.finetune.checks import check_find_errors
from bertkit.finetune.clinic.doubts import Doubt, doubt_label_sets, doubt_texts, doubt_words
from bertkit.finetune.clinic.find_errors import FOLDER, LIST, find_errors
from bertkit.finetune.clinic.folds import folds_of
from bertkit.finetune.clinic.suspects import find_suspects
from bertkit.finetune.windows import Row
from bertkit.run import loop
from data_pipelines.labels.sentence import Sentence

torch.set_num_threads(1)
SHAPE = ["model.init=", "model.like=bert-tiny", "train.epochs=4", "train.global_batch=8", "optim.lr=0.005"]


def sentence(words: str, tags: str, line: int = 1) -> Sentence:
    return Sentence(words.split(), tags.split(), "train.conll", list(range(line, line + len(words.split()))))


def asked(sentences: list[Sentence], prob: list[list[float]]):
    """A model that finds these probabilities, a row for each word of all sentences, and the rows to ask it with."""
    counts = [len(sentence.words) for sentence in sentences]
    rows = [Row(np.arange(n), np.arange(n), np.arange(n), index) for index, n in enumerate(counts)]
    return lambda rows: [(list(range(len(rows))), np.log(np.array(prob, np.float32)))], sentences, rows


def test_copies_of_a_sentence_share_a_fold_and_folds_are_of_equal_size():
    sentences = [sentence(f"word {number % 40}", "A B") for number in range(100)]
    fold_S = folds_of(sentences, 5, seed=3)
    assert all(fold_S[number] == fold_S[number % 40] for number in range(100))
    assert [fold_S[:40].count(fold) for fold in range(5)] == [8] * 5
    assert folds_of(sentences, 5, seed=3) == fold_S != folds_of(sentences, 5, seed=4)
    with pytest.raises(ValueError, match=r"41.*40"):
        folds_of(sentences, 41, seed=0)


def test_documents_stay_whole_where_their_sentences_are_read_together():
    sentences = [sentence(f"word {number}", "A B")._replace(follows=number % 4 > 0) for number in range(40)]
    fold_S = folds_of(sentences, 5, seed=0, documents=True)
    assert all(len(set(fold_S[start : start + 4])) == 1 for start in range(0, 40, 4))
    assert [fold_S.count(fold) for fold in range(5)] == [8] * 5


def test_a_plain_tag_is_doubted_by_its_own_probability():
    (doubts,) = doubt_words(
        *asked([sentence("a b", "X Y")], [[0.7, 0.2, 0.1], [0.6, 0.3, 0.1]]), ["X", "Y", "Z"], {"scheme": "plain"}
    )
    assert [(doubt.given, doubt.suggested, doubt.differs) for doubt in doubts] == [("X", "X", False), ("Y", "X", True)]
    assert doubts[1].probability == pytest.approx(0.3)
    assert doubts[1].suggested_probability == pytest.approx(0.6)


def test_spans_are_doubted_as_a_whole_and_those_nobody_marked_are_found():
    labels = ["O", "B-P", "I-P"]
    tags = "B-P O O O B-P O"
    prob = [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.98, 0.01, 0.01], [0.9, 0.05, 0.05]]
    settings = {"scheme": "iob2", "format": 1}
    (doubts,) = doubt_words(*asked([sentence("a b c d e f", tags)], prob), labels, settings)
    spans = {doubt.words: doubt for doubt in doubts if doubt.unit == "span"}
    assert [len(doubts) - len(spans), len(spans)] == [6, 3]
    assert (spans[0, 1].suggested, spans[0, 1].suggested_words) == ("P", (0, 2))
    assert (spans[4, 5].given, spans[4, 5].suggested) == ("P", "O")
    assert (spans[3, 4].given, spans[3, 4].suggested) == ("O", "P")
    assert spans[3, 4].probability < 0.15 < 0.7 < spans[3, 4].suggested_probability
    # By hand: all 3^6 sequences with this span, of those that IOB2 allows.
    exact = _span_probability(np.array(prob), labels, 0, 1)
    assert spans[0, 1].probability == pytest.approx(exact, abs=1e-5)


def _span_probability(prob: np.ndarray, labels: list[str], start: int, end: int) -> float:
    """Of all legal sequences, the share of those that have a span of P just there."""
    total = found = 0.0
    for number in range(3 ** len(prob)):
        path = [number // 3**place % 3 for place in range(len(prob))]
        legal = all(here != 2 or before in (1, 2) for before, here in zip([0, *path], path, strict=False))
        if legal:
            share = math.prod(prob[place, label] for place, label in enumerate(path))
            there = path[start] == 1 and all(path[place] == 2 for place in range(start + 1, end))
            total += share
            found += share * (there and (end == len(path) or path[end] != 2))
    return found / total


def test_texts_are_doubted_by_their_label_or_by_all_their_labels_at_once():
    one = Sentence(["some text"], ["b"], "f", [1])
    ((doubt,),) = doubt_texts(*asked([one], [[0.9, 0.1]]), ["a", "b"], {})
    assert (doubt.given, doubt.suggested, round(doubt.probability, 4)) == ("b", "a", 0.1)
    several = Sentence(["some text"], ["a", "c"], "f", [1])
    _, texts, rows = asked([several], [[1, 1, 1]])
    ((doubt,),) = doubt_label_sets(
        lambda rows: [([0], np.array([[math.log(9), math.log(3), -math.log(4)]], np.float32))],
        texts,
        rows,
        ["a", "b", "c"],
        {},
    )
    assert (doubt.given, doubt.suggested) == ("a, c", "a, b")
    assert (doubt.probability, doubt.suggested_probability) == pytest.approx((0.9 * 0.25 * 0.2, 0.9 * 0.75 * 0.8))


def test_the_least_probable_label_comes_first_and_likely_needs_a_far_better_suggestion():
    def doubt(given, probability, suggested, other):
        return Doubt("word", (0, 1), given, probability, suggested, other, (0, 1))

    doubts_S = [
        [doubt("X", 0.9, "X", 0.9)],
        [doubt("Y", 0.3, "X", 0.7)],
        [doubt("Y", 0.01, "X", 0.95)],
        [doubt("Y", 0.02, "X", 0.98)],
    ]
    suspects = find_suspects(doubts_S)
    assert [(suspect.sentence, suspect.likely) for suspect in suspects] == [(2, True), (3, False), (1, False)]


class Died(BaseException):
    """Ends a run as a kill would."""


def changes(data: Path, folder: Path) -> list[str]:
    return [f"data.train={data}", "data.tag_column=2", f"run.dir={folder}", *SHAPE]


def run(data: Path, folder: Path, folds: int = 3) -> tuple[int, dict | None]:
    return find_errors(read_finetune_recipe("ner", changes(data, folder)), folds)


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> tuple[Path, set[str]]:
    """A labeled file in which one word of 37 has the part of speech of another, and where these are."""
    path = write_conll(tmp_path_factory.mktemp("planted") / "train.conll", 90)
    lines, places = path.read_text().splitlines(), set()
    for number in range(3, len(lines), 37):
        if lines[number]:
            word, part, span = lines[number].split("\t")
            lines[number] = "\t".join([word, "VERB" if part != "VERB" else "NOUN", span])
            places.add(f"{path}:{number + 1}")
    path.write_text("\n".join(lines) + "\n")
    return path, places


@pytest.fixture(scope="module")
def undisturbed(planted, tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    exit_code, found = run(planted[0], folder)
    assert exit_code == 0
    assert found is not None
    return folder, found


def test_planted_mistakes_come_first(planted, undisturbed):
    _, places = planted
    folder, found = undisturbed
    first = found["suspects"][: len(places)]
    assert {record["place"] for record in first} == places
    assert any(record["likely"] for record in first)
    listed = [json.loads(line) for line in (folder / FOLDER / LIST).read_text().splitlines()]
    assert listed == found["suspects"]
    assert found["units"]["word"]["suspected"] == len(listed)
    assert not list((folder / FOLDER).glob("fold-*/checkpoints"))


def test_a_kill_in_any_fold_does_not_change_the_list(planted, undisturbed, tmp_path):
    def dying(*args, **options):
        calls.append(options["step"])
        if len(calls) in (4, 17, 40):
            raise Died
        return real(*args, **options)

    real, calls = loop.train_step, []
    for _ in range(3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "train_step", dying)
            with pytest.raises(Died):
                run(planted[0], tmp_path / "run")
    assert run(planted[0], tmp_path / "run")[0] == 0
    lists = [(folder / FOLDER / LIST).read_bytes() for folder in (tmp_path / "run", undisturbed[0])]
    assert lists[0] == lists[1]


def test_the_same_command_then_trains_the_model_and_other_folds_are_refused(planted, undisturbed, tmp_path, capsys):
    data, folder = planted[0], undisturbed[0]
    with pytest.raises(ValueError, match=r"folds.*3 of seed 0.*4 of seed 0"):
        run(data, folder, folds=4)
    recipe = ["finetune", "ner", *changes(data, folder)]
    assert main([*recipe, "--find-errors", "--folds", "3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["suspects"] == undisturbed[1]["suspects"]
    assert Path(facts["page"]).read_text().count("<tr>") > len(facts["suspects"])
    assert main(recipe) == 0
    assert (folder / "export").is_dir()
    assert main([*recipe, "--folds", "3"]) == 2


def test_what_cannot_be_split_is_refused(planted, tmp_path):
    recipe = read_finetune_recipe("ner", changes(planted[0], tmp_path / "run"))
    with pytest.raises(ValueError, match=r"--folds.*1"):
        check_find_errors(recipe, 1)
    with pytest.raises(ValueError, match=r"run.seeds=\[0, 1\]"):
        check_find_errors(read_finetune_recipe("ner", [*changes(planted[0], tmp_path), "run.seeds=[0,1]"]), 3)
    with pytest.raises(ValueError, match=r"task=regression.*tagging.*multi-label"):
        check_find_errors(read_finetune_recipe("regression", changes(planted[0], tmp_path)), 3)
