"""A report shows what the run recorded, loads nothing, runs only its own scripts, and survives damaged folders."""

import json
import math
import re

import pytest
import torch
from report_runs import EVIL, text_of, write_run

from bertkit.cli import main
from bertkit.report.curves import LEARNING, MOST_POINTS, chart_data, thinned, written
from bertkit.report.runs import read_runs
from bertkit.report.training_report import training_report, write_report

torch.set_num_threads(1)


def training(*losses: float) -> list[dict]:
    return [{"kind": "train", "step": step, "loss": loss} for step, loss in enumerate(losses, start=1)]


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_a_page_tells_what_the_run_recorded(run, pages):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "eval"][-1]
    page = pages["run"].read_text()
    shown = text_of(page)
    for told in (f"{last['loss']:.3f}", written(last["accuracy"], "percent"), f"{last['targets']:,}", "rarer tokens"):
        assert told in shown
    loss = data_of(page)["charts"]["loss"]
    held_out = next(series for series in loss["series"] if series["label"] == "held out")
    assert held_out["y"] == pytest.approx([line["loss"] for line in lines if line["kind"] == "eval"], rel=1e-5)
    steps = data_of(page)["columns"][held_out["column"]]["step"]
    assert steps == [line["step"] for line in lines if line["kind"] == "eval"]


def test_masks_are_measured_and_filled_from_the_run_itself(pages):
    shown = text_of(pages["run"].read_text())
    assert "replaced by [MASK], of the selected" in shown
    assert "special tokens touched00.00%0" in shown
    page = pages["run"].read_text()
    assert page.count('<mark class="') >= 6
    assert page.count('<mark class="') == page.count('<span class="verdict')


def test_what_cannot_be_computed_is_left_out_with_the_reason(run, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("metrics.jsonl", "recipe.yaml", "run.json"):
        text = (run / name).read_text()
        (moved / name).write_text(re.sub(r"cache_dir: .*", f"cache_dir: {tmp_path / 'gone'}", text))
    shown = text_of(training_report(read_runs([moved])))
    assert shown.count("the prepared rows of the run are no longer in") == 2
    bare = write_run(tmp_path / "bare", training(3.0, 2.0))
    assert "the folder holds no recipe.yaml" in text_of(training_report(read_runs([bare])))


def test_a_run_that_has_not_begun_gets_a_page(tmp_path):
    shown = text_of(training_report(read_runs([write_run(tmp_path / "run", [])])))
    assert "no step has been recorded yet" in shown


def test_a_folder_that_is_no_run_is_refused_by_name(tmp_path, capsys):
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "nowhere is no folder" in capsys.readouterr().err
    assert main(["report", str(tmp_path)]) == 2
    assert "metrics.jsonl" in capsys.readouterr().err


def test_damaged_lines_are_counted_and_left_out(tmp_path):
    folder = write_run(tmp_path / "run", training(3.0, math.nan, 2.0))
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('[1]\n{"step": 4}\n{"kind": "train", "step": "x"}\n{"kind": "tra')
    page = training_report(read_runs([folder]))
    assert "4 lines of metrics.jsonl could not be read" in text_of(page)
    assert data_of(page)["charts"]["loss"]["series"][0]["y"] == [3.0, None, 2.0]


@pytest.mark.parametrize(
    "scores",
    [
        [1],
        {"seeds": [{"dev": {"confusions": [3, [1, 2, "x"]], "worst": [None, {"words": 1}], "f1": {}}}]},
        {"seeds": 3},
        {},
    ],
)
def test_scores_in_another_form_do_not_break_the_page(tmp_path, scores):
    folder = write_run(tmp_path / "run", training(3.0), scores=scores)
    assert "Learning" in text_of(training_report(read_runs([folder])))


def test_a_tagger_beside_an_encoder_gets_no_masks_and_no_targets(run, tmp_path):
    """It has neither; saying so four times, with the name of its recipe's verb, helps nobody."""
    evaluation = {"kind": "dev", "step": 2, "accuracy": 0.5}
    tagger = write_run(tmp_path / "tagger", [*training(3.0, 2.0), evaluation], scores={})
    (tagger / "recipe.yaml").write_text(json.dumps({"task": "tagging"}))
    page = training_report(read_runs([run, tagger]))
    for id in ("buckets", "samples", "masks"):
        part = re.search(rf'<section id="{id}".*?</section>', page, re.DOTALL)[0]
        assert "Left out" not in part
        assert "tagger" not in part
        assert "run-1" not in part


def test_texts_with_a_label_are_not_called_words_or_sentences(tmp_path):
    worst = [{"words": ["a whole text"], "gold": ["x"], "predicted": ["y"]}]
    dev = {"accuracy": 0.8, "words": 41, "tags": {"x": {"f1": 0.5}}, "worst": worst}
    scores = {"score": "accuracy", "best_seed": 0, "seeds": [{"seed": 0, "dev": dev}], "dev": {"mean": 0.8}}
    folder = write_run(tmp_path / "run", training(1.0), scores=scores)
    (folder / "recipe.yaml").write_text(json.dumps({"task": "classification"}))
    shown = text_of(training_report(read_runs([folder])))
    for told in ("Classification", "texts41", "By label", "Worst texts", "Under a text its gold label"):
        assert told in shown
    for untrue in ("Tagging", "sentence", "word"):
        assert untrue not in shown


def test_a_task_that_nobody_here_knows_is_shown_all_the_same(tmp_path):
    """Of a plugin, say, that is not named when the report is made."""
    dev = {"exact": 0.8, "worst": [{"words": ["w"], "gold": ["x"], "predicted": ["y"]}]}
    scores = {"score": "exact", "best_seed": 0, "seeds": [{"seed": 0, "dev": dev}], "dev": {"mean": 0.8}}
    folder = write_run(tmp_path / "run", training(1.0), scores=scores)
    (folder / "recipe.yaml").write_text(json.dumps({"task": "spelling"}))
    shown = text_of(training_report(read_runs([folder])))
    for told in ("Spelling", "exact80.0%", "Worst examples"):
        assert told in shown


def test_what_makes_scores_doubtful_stands_before_them(tmp_path):
    scores = {"score": "f1", "best_seed": 0, "seeds": [{"seed": 0, "dev": {"f1": 0.5}}], "dev": {"mean": 0.5}}
    folder = write_run(tmp_path / "run", training(1.0), scores={**scores, "warnings": ["below <a> baseline"]})
    page = training_report(read_runs([folder]))
    assert page.index("below &lt;a&gt; baseline") < page.index("of every seed")


def test_captions_of_scores_say_what_was_counted(tmp_path):
    unknown = {"share": 0.2, "accuracy": 0.4, "words": 1841}
    dev = {"accuracy": 0.8, "unknown": unknown, "tags": {"X": {"f1": 0.5}}}
    scores = {"score": "accuracy", "best_seed": 0, "seeds": [{"seed": 0, "dev": dev}], "dev": {"mean": 0.8}}
    page = training_report(read_runs([write_run(tmp_path / "run", training(1.0), scores=scores)]))
    captions = re.findall(r"<caption>([^<]*)</caption>", page)
    assert "unknown" not in captions
    assert "Unknown words, those that no training sentence has (share: of all words)" in captions
    assert "By tag" in captions


def test_a_taggers_scores_confusion_and_worst_sentences_are_shown(pages):
    shown = text_of(pages["tagger"].read_text())
    for told in ("f181.2%", "1,234", "4,321", "AnnaB-PERB-LOC", EVIL):
        assert told in shown
    assert "Filled masks" not in shown


def scored(folder, f1: float, num_seeds: int = 1):
    """A run with scores on dev and test, two kinds of spans, and a baseline."""
    kinds = {"AAA": {"f1": 0.1, "gold": 3}, "ZZZ": {"f1": 0.9, "gold": 300}}
    seeds = [
        {"seed": seed, **{part: {"f1": f1, "types": kinds} for part in ("dev", "test")}} for seed in range(num_seeds)
    ]
    summary = {
        "mean": f1,
        "deviation": 0.0123,
        "baselines": {"most frequent tag": {"f1": 0.222}, "majority": {"f1": 0.111}},
    }
    scores = {"score": "f1", "best_seed": 0, "seeds": seeds, "dev": summary, "test": {**summary, "mean": f1 - 0.1}}
    return write_run(folder, [*training(1.0), {"kind": "dev", "step": 1, "f1": f1}], scores=scores)


def test_scores_come_first_with_test_beside_dev_and_no_deviation_of_one_seed(tmp_path):
    page = training_report(read_runs([scored(tmp_path / "run", 0.5)]))
    shown = text_of(page)
    assert page.index('id="scores"') < page.index('id="learning"')
    assert (
        "F1devtestseed 050.0%50.0%without a model: majority11.1%11.1%without a model: most frequent tag22.2%" in shown
    )
    assert "deviation" not in shown
    assert "dev f1dev goldtest f1test goldZZZ90.0%30090.0%300AAA" in shown
    assert {(level["label"], level["y"]) for level in data_of(page)["charts"]["f1"]["levels"]} == {
        ("majority", 0.111),
        ("most frequent tag", 0.222),
    }


def test_runs_of_a_task_stand_side_by_side_with_their_baselines_once(tmp_path):
    runs = [scored(tmp_path / "one", 0.5), scored(tmp_path / "three", 0.6, num_seeds=3)]
    shown = text_of(training_report(read_runs(runs)))
    assert "F1devtestone50.0%40.0%three60.0% ± 1.2%50.0% ± 1.2%without a model: majority11.1%11.1%without" in shown
    assert shown.count("without a model: majority") == 1


def test_seeds_splits_and_baselines_are_shown(tmp_path):
    """What a fine-tuning of two seeds leaves: a folder for each, and the scores of both beside the baselines."""

    def result(f1: float) -> dict:
        strict = {"f1": f1 - 0.1, "types": {"LOC": {"f1": 0.111}}}
        mistakes = {
            "confusions": [["B-PER", "B-LOC", 17]],
            "worst": [{"words": ["x"], "gold": ["A"], "predicted": ["B"]}],
        }
        return {"f1": f1, "strict": strict, **mistakes}

    seeds = [{"seed": seed, "dev": result(f1), "test": result(f1 - 0.2)} for seed, f1 in ((3, 0.515), (4, 0.625))]
    baselines = {"majority tag": {"f1": 0.071}}
    summary = {"dev": {"mean": 0.57, "deviation": 0.055, "baselines": baselines}, "test": {"mean": 0.37}}
    scores = {"score": "f1", "best_seed": 4, "seeds": seeds, **summary}
    for seed in (3, 4):
        write_run(tmp_path / "run" / f"seed-{seed}", [*training(seed), {"kind": "dev", "step": 1, "f1": 0.625}])
    (tmp_path / "run" / "scores.json").write_text(json.dumps(scores))
    page = training_report(read_runs([tmp_path / "run"]))
    shown = text_of(page)
    for told in (
        *("seed 351.5%31.5%", "seed 462.5%42.5%", "mean of the seeds57.0%37.0%", "majority tag7.1%–"),
        *(
            "Most frequent mistakes in test",
            "Worst sentences of dev",
            "Strict, by kind of span",
            "LOC11.1%",
            "B-PERB-LOC17",
            "The curves are those of seed-4",
        ),
    ):
        assert told in shown
    charts = data_of(page)["charts"]
    assert charts["loss"]["series"][0]["y"] == [4]
    assert charts["f1"]["series"][0]["y"] == [0.625]


def test_runs_have_distinct_names_and_are_shown_once(tmp_path):
    folders = [write_run(tmp_path / part / "run", training(1.0)) for part in ("a", "b")]
    assert [run.name for run in read_runs([*folders, folders[0]])] == ["a/run", "b/run"]


def test_evaluations_get_their_place_in_tokens_and_minutes_from_the_training_lines(tmp_path):
    records = [
        {"kind": "train", "step": 10, "loss": 1, "tokens": 1000, "seconds": 60},
        {"kind": "train", "step": 20, "loss": 1, "tokens": 3000, "seconds": 120},
        {"kind": "eval", "step": 15, "loss": 1},
    ]
    data = chart_data(LEARNING, read_runs([write_run(tmp_path / "run", records)]))
    assert data["columns"][1] == {"step": [15], "tokens": [2000], "minutes": [1.5]}


def test_long_curves_are_thinned_without_losing_ends_and_spikes():
    records = training(*(1.0 for _ in range(20_000)))
    records[7000]["loss"], records[9000]["loss"] = 50.0, 0.01
    kept = thinned(records)
    assert len(kept) <= MOST_POINTS
    assert {1, 7001, 9001, 20_000} <= {record["step"] for record in kept}
    assert [record["step"] for record in kept] == sorted({record["step"] for record in kept})


def test_a_report_lies_in_its_run_and_is_replaced(tmp_path, capsys):
    folder = write_run(tmp_path / "run", training(1.0))
    for _ in range(2):
        assert main(["report", str(folder)]) == 0
        assert capsys.readouterr().out.strip() == str(folder / "report.html")
    assert sorted(path.name for path in folder.iterdir()) == ["metrics.jsonl", "report.html"]


def test_several_runs_have_their_report_beside_them(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    one, other, far = (write_run(tmp_path / name, []) for name in ("runs/one", "runs/other", "far/run"))
    assert write_report([one, other]).resolve() == tmp_path / "runs" / "report.html"
    assert write_report([one, far]).resolve() == tmp_path / "here" / "report.html"
    assert write_report([one, far], tmp_path / "told.html") == tmp_path / "told.html"


def test_runs_of_different_tasks_are_told_apart(tmp_path):
    for name, task in (("encoder", {}), ("tagger", {"task": "tagging"}), ("another", {"task": "tagging"})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").write_text(json.dumps(task))
    mixed = training_report(read_runs([tmp_path / "encoder", tmp_path / "tagger"]))
    alike = training_report(read_runs([tmp_path / "tagger", tmp_path / "another"]))
    assert "do not compare" in mixed
    assert "do not compare" not in alike


def test_each_task_has_charts_and_a_table_of_its_own(tmp_path):
    """The loss of an encoder and that of a tagger on one axis would look like a comparison."""
    for name, recipe in (("encoder", {}), ("tagger", {"task": "tagging"}), ("another", {"task": "tagging"})):
        write_run(tmp_path / name, [*training(3.0, 2.0), {"kind": "eval", "step": 2, "accuracy": 0.5}])
        (tmp_path / name / "recipe.yaml").write_text(json.dumps(recipe))
    page = training_report(read_runs([tmp_path / name for name in ("encoder", "tagger", "another")]))
    charts = data_of(page)["charts"]
    runs = {id: [series["run"] for series in chart["series"]] for id, chart in charts.items()}
    assert runs == {
        "loss-pretraining": [0],
        "accuracy-pretraining": [0],
        "loss-tagging": [1, 2],
        "accuracy-tagging": [1, 2],
    }
    titles = {"Loss, pretraining", "Loss, tagging", "Accuracy, pretraining", "Accuracy, tagging"}
    assert {chart["title"] for chart in charts.values()} == titles
    assert titles <= set(re.findall(r'<h3 id="[^"]*-title">([^<]*)</h3>', page))
    glances = re.findall(r'<table class="numbers glance[^"]*"><caption>([^<]*)</caption>', page)
    assert glances == ["pretraining, at a glance", "tagging, at a glance"]
    assert "held-out targets" not in page[page.index('data-chart="loss-tagging"') :]
