"""A person reads scores beside baselines, what was confused, and the worst sentences word by word."""

import pytest

from bertkit.finetune.score_tables import print_results, score_line, worst_text
from bertkit.finetune.tasks import TASKS

TYPE = {"precision": 0.5, "recall": 0.25, "f1": 1 / 3, "gold": 4}
SPANS = {"f1": 0.5, "precision": 0.4, "recall": 0.6, "strict": {"f1": 0.3}, "accuracy": 0.9}
WORST = {"place": "dev.conll:7", "words": ["anna", "sings"], "gold": ["B-PER", "O"], "predicted": ["O", "O"]}


def found(seed: int, scores: dict = SPANS | {"types": {"PER": TYPE}}, **changes) -> dict:
    mistakes = {"confusions": [["B-PER", "O", 1234]], "worst": [WORST]}
    return {"seed": seed, "step": 30, "dev": scores | mistakes | changes}


def results(*seeds: dict, score: str = "f1", task: str = "tagging") -> dict:
    baselines = {"majority tag": SPANS | {"f1": 0.0, "macro_f1": 0.1, "unknown": {"accuracy": 0.2}}}
    dev = {"mean": 0.55, "deviation": 0.05, "baselines": baselines}
    places = {"export": "runs/x/export", "worst": "runs/x/worst.txt"}
    told = {"task": task, "score": score, "best_seed": seeds[0]["seed"], **places}
    return {**told, "seeds": list(seeds), "dev": dev}


def shown(capsys, values: dict) -> str:
    print_results(TASKS[values["task"]], values)
    return capsys.readouterr().out


def test_scores_stand_beside_baselines_with_both_readings(capsys):
    text = shown(capsys, results(found(0)))
    assert "baseline: majority tag" in text
    assert "strict F1" in text
    assert "seed 0 (step 30)" in text
    assert "±" not in text, "one seed has no deviation"
    assert "runs/x/export" in text
    assert "runs/x/worst.txt" in text
    assert "seed 0 (step 30)" in text.rstrip().splitlines()[-2], "the scores end the output"


def test_several_seeds_have_mean_and_deviation(capsys):
    last = shown(capsys, results(found(0), found(1))).rstrip().splitlines()[-2]
    assert "mean of 2 seeds" in last
    assert "55.00% ± 5.00%" in last


def test_mistakes_are_shown_as_counts_and_worst_sentences_are_kept_for_the_file(capsys):
    text = shown(capsys, results(found(0)))
    assert any("B-PER" in line and "1,234" in line for line in text.splitlines())
    assert "anna" not in text
    assert worst_text(found(0)) == "# dev: dev.conll:7\nanna\tB-PER\tO\t<<<\nsings\tO\tO\n\n"
    assert worst_text({"dev": {"worst": []}}) == ""


def test_kinds_come_by_how_often_they_are(capsys):
    kinds = {"AAA": TYPE, "ZZZ": TYPE | {"gold": 900}}
    text = shown(capsys, results(found(0, SPANS | {"types": kinds})))
    assert text.index("ZZZ") < text.index("AAA")


def test_texts_with_a_label_are_not_called_words(capsys):
    plain = {"accuracy": 0.8, "macro_f1": 0.7, "tags": {"sport": TYPE}}
    worst = WORST | {"words": ["anna sings"], "gold": ["music"], "predicted": ["sport"]}
    seed = found(0, plain, worst=[worst])
    text = shown(capsys, results(seed, score="accuracy", task="classification"))
    assert "word" not in text
    lines = text.splitlines()
    assert any(line.split()[1::2] == ["gold", "predicted", "texts"] for line in lines)


def test_text_of_files_is_neither_markup_nor_control_code(capsys):
    hostile = WORST | {"words": ["[red]a[/red]", "b\x1b[31m"], "place": "[bold]x[/bold]:1"}
    hostile_seed = found(0, worst=[hostile], confusions=[["[b]", "\x07", 1]])
    text = shown(capsys, results(hostile_seed)) + worst_text(hostile_seed)
    assert "[red]a[/red]" in text
    assert "[bold]x[/bold]:1" in text
    assert "[b]" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_plain_tags_have_accuracy_macro_f1_and_unknown_words(capsys):
    plain = {"accuracy": 0.8, "macro_f1": 0.7, "unknown": {"share": 0.1, "accuracy": 0.6}}
    text = shown(capsys, results(found(0, plain | {"tags": {"NOUN": TYPE}}), score="accuracy"))
    assert "macro-F1" in text
    assert "unknown words" in text
    assert "NOUN" in text


@pytest.mark.parametrize(
    ("task", "scores", "line"),
    [
        ("tagging", SPANS, "precision 40.00%, recall 60.00%, F1 50.00%, strict F1 30.00%, accuracy 90.00%"),
        ("classification", {"accuracy": 0.8, "macro_f1": 0.7}, "accuracy 80.00%, macro-F1 70.00%"),
        (
            "tagging",
            {"accuracy": 0.8, "macro_f1": 0.7, "unknown": {"share": 0.1, "accuracy": 0.6}},
            "accuracy 80.00%, macro-F1 70.00%, unknown words 60.00%",
        ),
    ],
)
def test_an_evaluation_is_one_line(task, scores, line):
    assert score_line(TASKS[task], scores) == line
