"""A task is one row: it is named without torch, refused with the nearest name, and asked wherever tasks differ."""

import dataclasses
import json
import subprocess
import sys

import pytest

from bertkit.config.finetune import LabeledSection, read_finetune_recipe
from bertkit.finetune.checks import check_finetune
from bertkit.finetune.labeled import TRAINING
from bertkit.finetune.tasks import TASKS
from bertkit.model.heads import HEADS


def test_reading_the_rows_imports_no_torch():
    code = "import sys; from bertkit.finetune.tasks import TASKS; assert 'numpy' not in sys.modules; "
    code += "print([TASKS[name].unit for name in TASKS]); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_an_unknown_task_is_refused_with_the_nearest(tmp_path):
    (tmp_path / "x.conll").write_text("anna\tB-PER\n")
    changes = [f"data.train={tmp_path / 'x.conll'}", f"run.dir={tmp_path / 'run'}", "task=taging"]
    with pytest.raises(ValueError, match=r"^task .*'taging'.* 'tagging'"):
        check_finetune(read_finetune_recipe("ner", changes))


EXAMPLES = {
    "tagging": {"tokens": ["anna", "runs"], "tags": ["N", "V"]},
    "multi-label": {"text": "anna runs", "labels": ["new", "old"]},
    "regression": {"text": "anna runs", "score": 2.5},
    "similarity": {"text1": "anna runs", "text2": "she runs", "score": 2.5},
    "pairs": {"text1": "anna runs", "text2": "she runs", "label": "old"},
    "rewrite": {"source": "anna", "target": "Anna"},
}


@pytest.mark.parametrize("name", list(TASKS))
def test_baselines_need_nothing_that_a_plugin_would_have_to_read(name, tmp_path):
    examples = [EXAMPLES.get(name, {"text": "anna runs", "label": "old"})] * 2
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(example) + "\n" for example in examples))
    task = TASKS[name]
    labeled = task.read(LabeledSection(train=[str(tmp_path / "train.jsonl")]))
    bare = labeled._replace(settings={key: value for key, value in labeled.settings.items() if key != TRAINING})
    assert len(bare.settings) < len(labeled.settings)
    assert task.baselines(bare, bare.train) == task.baselines(labeled, labeled.train)


@pytest.mark.parametrize("name", list(TASKS))
def test_a_row_names_a_head_and_scores_that_it_shows(name, tmp_path):
    task = TASKS[name]
    assert task.head in HEADS
    assert "jsonl" in task.outputs
    assert any(column.about for column in task.columns), "no score has a curve"
    assert dataclasses.replace(task, unit="x").unit == "x"
