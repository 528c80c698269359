"""Whatever stands on the command line is done, or refused by name in one line before anything heavy happens."""

import json

import pytest
from telling import tells

from bertkit.cli import main
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

NUMBERS = {
    "train.steps": ["-1", "nan", "inf", "1.5", "ten", "1" + "0" * 20, "1" + "0" * 400, "-0x10", ""],
    "train.minutes": ["-1", "0", "nan", "inf", "1e400", "1" + "0" * 400, "soon"],
    "train.tokens": ["-1", "0", "nan", "-inf", "1e30", "1" + "0" * 400],
    "train.global_batch": ["0", "-8", "nan", "1e20", "1" + "0" * 30],
    "train.micro_batch": ["0", "-1", "1e300", "1" + "0" * 30],
    "train.clip_norm": ["-1", "nan", "inf", "1" + "0" * 400],
    "optim.lr": ["0", "-1", "nan", "inf", "1" + "0" * 400],
    "optim.betas": ["0.9", "1,2", "nan,0.9", "[0.9, 0.98", "a,b"],
    "optim.warmup": ["-0.1", "1.1", "nan"],
    "mask.rate": ["0", "1", "-1", "nan", "15%"],
    "mask.span_max": ["0", "65", "1" + "0" * 400],
    "data.seq_len": ["0", "-16", "7", "1e9", "1" + "0" * 400],
    "data.validation_share": ["-0.1", "1", "nan"],
    "data.shard_tokens": ["0", "1e20"],
    "tokenizer.vocab_size": ["0", "-5", "1e12", "nan"],
    "tokenizer.sample_mb": ["0", "1" + "0" * 30],
    "tokenizer.max_word_chars": ["0", "1" + "0" * 30],
    "model.hidden_size": ["0", "-64", "1e12", "1" + "0" * 400],
    "model.num_hidden_layers": ["0", "1e9", "nan"],
    "model.num_attention_heads": ["0", "3", "-2"],
    "model.intermediate_size": ["0", "1e15"],
    "model.max_position_embeddings": ["0", "1e15"],
    "run.seed": ["-1", "1" + "0" * 30, "nan"],
    "run.save_every": ["0", "-5"],
    "run.keep": ["0", "1", "-1"],
    "run.num_workers": ["-1", "65", "1e9"],
    "eval.every": ["-1", "nan"],
    "eval.mask_rate": ["0", "1", "nan"],
}


@pytest.mark.parametrize("key", NUMBERS)
def test_a_wrong_number_is_refused_by_its_key(tmp_path, tried, capsys, key):
    """Row 22: negative, not finite, huge, not whole, no number at all."""
    (tmp_path / "text.txt").write_text("anna paints the old house")
    places = [f"data.corpus={tmp_path / 'text.txt'}", f"run.dir={tmp_path / 'run'}", f"data.cache_dir={tmp_path / 'c'}"]
    for value in NUMBERS[key]:
        assert main(["pretrain", "bert-mini", *places, f"{key}={value}"]) == 2, value
        said = capsys.readouterr().err.strip()
        assert said.startswith("bertkit: ")
        assert "\n" not in said
        assert key in said or key.partition(".")[2] in said, said
        assert len(said) < 600, "a huge value is not repeated in full"
        assert not (tmp_path / "run").exists()
        tried()


MEANT = {
    "data.corpus=text.txt@-1": "'text.txt' … (0, 1000] … -1",
    "data.corpus=text.txt@nan": "'text.txt' … (0, 1000] … nan",
    "data.corpus=[text.txt@inf]": "'text.txt' … (0, 1000] … inf",
    "data.corpus=text.txt train.minutes=1:30": "train.minutes … 1:30 … 90",
    "data.corpus=text.txt train.steps=010": "train.steps … 010 … 10",
    "data.corpsu=text.txt": "'data.corpsu' … 'data.corpus'",
    "data.corpus=text.txt train.steps=" + "9" * 5000: "train.steps … (5,002 characters)",
    "data.corpus=text.txt run.seed=" + "9" * 5000: "run.seed … (5,002 characters)",
    "data.corpus=text.txt optim.betas=0.9," + "9" * 5000: "optim.betas[1] … (5,002 characters)",
}


@pytest.mark.parametrize("changes", MEANT, ids=lambda changes: changes[:40])
@pytest.mark.parametrize("written", ["command", "recipe"])
def test_what_was_meant_is_told(tmp_path, monkeypatch, tried, capsys, changes, written):
    """Row 37: whether the value stands on the command line or in a recipe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("anna paints the old house")
    words = changes.split(" ")
    if written == "recipe":
        lines = [f"{section}:\n  {key}: {value}\n" for section, key, value in map(_parts, words)]
        (tmp_path / "mine.yaml").write_text("base: bert-mini\n" + "".join(lines))
    assert main(["pretrain", *(["mine.yaml"] if written == "recipe" else ["bert-mini", *words])]) == 2
    said = capsys.readouterr().err.strip()
    assert tells(said, MEANT[changes]), said
    assert "\n" not in said
    assert len(said) < 600
    assert not (tmp_path / "runs").exists()
    tried()


def _parts(change: str) -> tuple[str, str, str]:
    key, _, value = change.partition("=")
    section, _, key = key.partition(".")
    return section, key, f"[{value}]" if key == "betas" else value


def double_ids(vocabulary: dict[str, int]) -> None:
    vocabulary["[UNK]"] = vocabulary["[MASK]"]


def leave_a_gap(vocabulary: dict[str, int]) -> None:
    vocabulary[max(vocabulary, key=vocabulary.__getitem__)] = 5000


@pytest.mark.parametrize(("damage", "told"), [(double_ids, "[MASK]"), (leave_a_gap, "5000")])
def test_a_tokenizer_with_double_ids_or_gaps_is_refused(home, tmp_path, tried, capsys, damage, told):
    """Row 37: before rows are made with it."""
    corpus = CorpusConfig(corpus=[str(home.corpus)])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=120), tmp_path / "tokenizer")
    file = tmp_path / "tokenizer" / "tokenizer.json"
    content = json.loads(file.read_bytes())
    damage(content["model"]["vocab"])
    file.write_text(json.dumps(content))
    assert main([*home.argv(tmp_path / "run"), f"tokenizer.path={tmp_path / 'tokenizer'}"]) == 2
    said = capsys.readouterr().err
    assert str(tmp_path / "tokenizer") in said
    assert told in said
    assert not (tmp_path / "run" / "run.json").exists()
    tried()


TYPOS = {
    "pretrain bert-mini data.corpus=x train.stpes=3": "did you mean 'train.steps'?",
    "pretrain bert-mini data.corpus=x trian.steps=3": "did you mean 'train'?",
    "pretrain bert-mini data.corpus=x steps=3": "did you mean 'train.steps'?",
    "pretrain bert-mini data.corpus=x model.hiden_size=3": "did you mean 'model.hidden_size'?",
    "pretrain bert-mini data.corpus=x model.architecture=brt": "did you mean 'bert'?",
    "pretrain bert-mini data.corpus=x optim.schedule=cosin": "did you mean 'cosine'?",
    "pretrain bert-mini train.steps": "expected key=value",
    "pretrain bert-mini data.corpus=x train=3": "train is a group of keys",
    "pretrain bert-mini data.corpus=x train.steps.more=3": "train.steps",
    "pretrain bert-mini =3": "expected key=value",
    "pretrain bert-mini data.corpus=text.txt --print-confg": "did you mean '--print-config'?",
    "pretrain bert-mni": "did you mean 'bert-mini'?",
    "pretrain ner": "bertkit finetune",
    "pretrain": "RECIPE",
    "pretrian bert-mini": "did you mean 'pretrain'?",
    "finetune nre": "did you mean 'ner'?",
    "finetune ner data.trian=x": "did you mean 'data.train'?",
    "tokenizer trian": "did you mean 'train'?",
    "tokenizer train --vocab-sze 9": "did you mean '--vocab-size'?",
    "tokenizer train --corpus absent.txt --out x --vocab-size -3": "vocab",
    "prepare --corpus absent.txt --tokenizer absent --out x --seq-len nan": "seq",
    "fill --model absent --top-k 0 x": "--top-k must be at least 1",
    "fill --model absent --top-k x x": "--top-k",
    "inspect-masks --data absent --rate 7": "rate",
    "info absent --seq-len -4": "--seq-len must be at least 1",
    "tag --modl absent": "did you mean '--model'?",
    "evaluate absent absent.txt --mask-rate nan": "mask",
    "report absent": "absent",
    "bench stp": "did you mean 'step'?",
}


@pytest.mark.parametrize("line", TYPOS)
def test_a_typo_names_the_nearest(tmp_path, monkeypatch, tried, capsys, line):
    """Row 22: keys, values, flags, verbs and recipes."""
    monkeypatch.chdir(tmp_path)
    assert main(line.split()) == 2
    said = capsys.readouterr().err
    assert TYPOS[line] in said, said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
    tried()
