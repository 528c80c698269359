"""Rows prepared from S3 and on S3 are those of the disk, and training from S3 gives the same bits."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from grammar import documents as generated
from runs import SMALL

from bertkit.cli import main
from bertkit.config.recipe import read_recipe
from bertkit.pretrain.data import rows_of_run
from bertkit.pretrain.stored_rows import prepared_folder
from data_pipelines.places import cache_folder
from data_pipelines.rows import shards
from data_pipelines.rows.manifest import read_manifest
from data_pipelines.rows.shards import open_rows
from data_pipelines.rows.stored import open_stored, read_origin
from data_pipelines.text.config import CorpusConfig
from data_pipelines.text.transfer import read_stored
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

TEXT = "\n\n".join(generated(150, seed=0))
URL = "s3://bucket/rows"
FAULTS = ["503", "", "cut", "500", "", "503", "503", "", "cut", ""]
PREPARE = ["--tokenizer", "tokenizer", "--seq-len", "16", "--shard-tokens", "700", "--validation-share", "0.1"]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr("data_pipelines.rows.prepare._BATCH_TOKENS", 256)  # a shard is closed after a batch


@pytest.fixture
def text(store, tokenizer, tmp_path):
    store.objects["text.txt"] = TEXT.encode()
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "tokenizer").symlink_to(tokenizer)
    return store


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text(TEXT)
    corpus = CorpusConfig(corpus=[str(folder / "text.txt")])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=160), folder / "tokenizer")
    return folder / "tokenizer"


@pytest.fixture
def rows(text, made):
    """The same rows at the URL and in a folder; the store has failed on the way."""
    if not made:
        assert main(["prepare", "--corpus", "text.txt", *PREPARE, "--out", "rows"]) == 0
        text.faults += FAULTS
        assert main(["prepare", "--corpus", "s3://bucket/text.txt", *PREPARE, "--out", URL]) == 0
        assert not text.faults
        made |= {"folder": Path("rows").resolve(), "objects": dict(text.objects)}
    text.objects |= made["objects"]
    if not Path("rows").exists():
        Path("rows").symlink_to(made["folder"])
    assert len(open_rows("rows").rows_of_shards) == 8
    return text


@pytest.fixture(scope="module")
def made():
    """What the first test that needs rows has made."""
    return {}


def train(prepared: str, folder: str, *changes: str, mixed: int | None = 2) -> int:
    shape = [change for change in SMALL if not change.startswith(("data.", "tokenizer."))]
    places = [f"data.prepared={prepared}", f"run.dir={folder}", "train.steps=20"]
    places += [] if mixed is None else [f"data.mix_shards={mixed}"]
    small = ["train.global_batch=24", "model.hidden_size=16", "model.intermediate_size=32"]
    return main(["pretrain", "bert-mini", *shape, *places, *small, "model.embeddings=random", *changes])


def weights(folder: str) -> str:
    return hashlib.sha256(Path(folder, "export", "model.safetensors").read_bytes()).hexdigest()


def test_rows_written_to_a_store_are_those_of_the_disk(rows, capsys):
    assert read_manifest(URL)["shards"] == read_manifest("rows")["shards"]
    for path in Path("rows").glob("*.tokens"):
        assert rows.objects[f"rows/{path.name}"] == path.read_bytes()
    assert not list(Path("cache/outgoing").iterdir())
    capsys.readouterr()
    assert main(["prepare", "--corpus", "s3://bucket/text.txt", *PREPARE, "--out", URL]) == 0
    assert "nothing to do" in capsys.readouterr().out
    rows.objects["text.txt"] += b"more"
    assert main(["prepare", "--corpus", "s3://bucket/text.txt", *PREPARE, "--out", URL]) == 2
    assert URL in capsys.readouterr().err


def test_no_bucket_is_made_for_a_url_with_a_typo(text, capsys):
    assert main(["prepare", "--corpus", "text.txt", *PREPARE, "--out", "s3://bukcet/rows"]) == 2
    assert "bucket 's3://bukcet/rows'" in capsys.readouterr().err
    assert "PUT another bucket" in text.asked  # a file, which was refused
    assert not Path("cache/outgoing").is_dir() or not list(Path("cache/outgoing").iterdir())


def test_the_manifest_comes_last_and_an_interrupted_copy_continues(text, monkeypatch, capsys):
    from data_pipelines.rows import publish

    sent, put_file = [], publish.put_file

    def dying(source, url):
        if len(sent) == 7:
            raise ValueError(f"{url}: failed")
        sent.append(url)
        put_file(source, url)

    monkeypatch.setattr(publish, "put_file", dying)
    command = ["prepare", "--corpus", "text.txt", *PREPARE, "--out", URL]
    assert main(command) == 2
    assert "rows/manifest.json" not in text.objects
    monkeypatch.setattr(publish, "put_file", lambda source, url: sent.append(url) or put_file(source, url))
    assert main(command) == 0
    assert len(sent) == len(set(sent))
    assert sent[-1] == f"{URL}/manifest.json"


def test_parts_on_a_store_make_one_set(text, capsys):
    for part in ("1/2", "2/2"):
        for out in (URL, "parts"):
            assert main(["prepare", "--corpus", "text.txt", *PREPARE, "--out", out, "--part", part]) == 0
    assert main(["prepare", "--merge", "parts"]) == 0
    cut = next(name for name in text.objects if name.endswith("train-00000.tokens"))
    whole = text.objects[cut]
    text.objects[cut] = whole[:-1]
    assert main(["prepare", "--merge", URL]) == 2
    assert cut in capsys.readouterr().err
    text.objects[cut] = whole
    assert main(["prepare", "--merge", URL]) == 0
    assert json.loads(read_stored(f"{URL}/manifest.json"))["fingerprint"] == read_manifest("parts")["fingerprint"]


def test_an_engine_leaves_its_parts_on_a_store(text, capsys):
    """The text comes from there, too."""
    command = ["prepare", "--corpus", "s3://bucket/text.txt", *PREPARE, "--engine", "local", "--parts", "2", "--out"]
    text.faults += ["503", "", "500"]
    assert main([*command, URL]) == main([*command, "parts"]) == 0
    assert not text.faults
    assert read_manifest(URL)["fingerprint"] == read_manifest("parts")["fingerprint"]
    assert not list(Path("cache/outgoing").iterdir())
    asked = len(text.asked)
    capsys.readouterr()
    assert main([*command, URL]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert not [word for word in text.asked[asked:] if word.startswith("PUT")]
    assert main([*command, URL, "--seq-len", "8"]) == 2
    assert "seq_len" in capsys.readouterr().err


def test_training_from_a_failing_store_gives_the_bits_of_the_disk(rows, stopped_after, capfd):
    """Of eight shards three fit the folder; each is fetched when its turn comes, and in the second epoch again.
    The run is stopped and resumed."""
    shard = max(open_rows("rows").bytes_of_shards)
    assert train("rows", "here") == 0
    rows.faults += 2 * FAULTS
    changes = (f"data.cache_gb={3 * shard / 1e9}", "run.num_workers=1")
    with stopped_after(11):
        assert train(URL, "there", *changes) == 143
    assert train(URL, "there", *changes) == 0
    assert not rows.faults
    assert weights("there") == weights("here")
    data = read_recipe("there/recipe.yaml").data
    folder = prepared_folder(data, "there", cache_folder())
    assert read_origin(folder) == (URL, 3 * shard)
    assert 0 < len(list(folder.glob("train-*.tokens"))) <= 3
    assert rows_of_run(Path("there")) == folder


def test_a_store_that_mixes_all_rows_is_fetched_first(rows, capfd):
    changes = ("data.mix_shards=0", "train.steps=3")
    assert train("rows", "here", *changes) == train(URL, "there", *changes) == 0
    assert weights("there") == weights("here")
    assert train(URL, "small", "data.mix_shards=0", "data.cache_gb=1e-6") == 2
    said = capfd.readouterr().err
    assert "data.mix_shards" in said
    assert "data.cache_gb" in said


def test_a_step_that_needs_more_shards_than_may_be_here_is_told(rows, capfd):
    """It would wait for room that only its own end could make."""
    shard = max(open_rows("rows").bytes_of_shards)
    assert (
        train(URL, "there", f"data.cache_gb={3 * shard / 1e9}", "train.global_batch=240", "train.micro_batch=24") == 2
    )
    said = capfd.readouterr().err
    assert "data.cache_gb" in said
    assert "train.global_batch" in said


def test_rows_of_a_store_are_mixed_by_shards_unless_told_otherwise(rows, stopped_after, capfd):
    """The run says so once, and remembers it: a resume with another number is refused."""
    changes, told = ("train.steps=6", "run.save_every=3"), "data.mix_shards=0"
    with stopped_after(3):
        assert train(URL, "there", *changes, mixed=None) == 143
    assert told in capfd.readouterr().err
    assert train(URL, "there", *changes, "data.mix_shards=0", mixed=None) == 2
    assert "data.mix_shards: 8 -> 0" in capfd.readouterr().err
    assert train(URL, "there", *changes, mixed=None) == 0
    assert told not in capfd.readouterr().err
    assert read_recipe("there/recipe.yaml").data.mix_shards == 8
    assert read_recipe("bert-mini", ["data.prepared=rows"]).data.mix_shards == 0
    assert train("rows", "here", *changes, mixed=8) == 0
    assert weights("there") == weights("here")


@pytest.mark.parametrize(
    "counted", ["model.embeddings=random", "model.embeddings=neighbors", "train.objective=hard-targets"]
)
def test_the_first_step_waits_for_one_shard(rows, counted, capfd):
    """Whatever is counted before it. What the disk counts is the same."""
    rows.asked.clear()
    changes = ("train.steps=1", "train.global_batch=1", "eval.max_rows=1", counted)
    assert train(URL, "there", *changes) == 0
    fetched = [name for name in rows.asked if name.startswith("GET rows/train") and name.endswith("tokens")]
    assert len(fetched) == 1
    assert train("rows", "here", *changes) == 0
    assert weights("there") == weights("here")


@pytest.mark.parametrize(("objective", "counts"), [("masked-lm", False), ("hard-targets", True)])
def test_a_resume_fetches_the_first_shard_only_to_count_it(rows, stopped_after, objective, counts, capfd):
    """Its folder here is gone; the last step of the epoch needs other shards."""
    last = sum(open_rows("rows").rows_of_shards) // 24 - 1
    changes = (f"train.steps={last + 1}", "eval.max_rows=1", f"train.objective={objective}")
    rows.asked.clear()
    with stopped_after(last):
        assert train(URL, "there", *changes) == 143
    first = next(name for name in rows.asked if name.startswith("GET rows/train") and name.endswith("tokens"))
    shutil.rmtree("cache")
    rows.asked.clear()
    assert train(URL, "there", *changes) == 0
    assert (first in rows.asked) == counts
    assert train("rows", "here", *changes) == 0
    assert weights("there") == weights("here")


def test_a_shard_that_is_removed_while_a_worker_opens_it_is_waited_for(rows, tmp_path, monkeypatch):
    """Left from an earlier epoch, it is dropped for another one, and fetched again when its turn comes."""
    open_stored(URL, tmp_path / "cache", max_bytes=10**6)
    stored, real, steps = open_rows(tmp_path / "cache"), shards._map, iter(["drop", "", "fetch"])
    stored.fetch(0)

    def mapped(path, kind):
        step = next(steps, "")
        if step:
            getattr(stored, step)(0)
        return real(path, kind)

    monkeypatch.setattr(shards, "_map", mapped)
    wanted = np.arange(5)
    assert stored.waiting().gather(wanted).ids_T.tolist() == open_rows("rows").gather(wanted).ids_T.tolist()


def test_a_shard_that_is_damaged_or_gone_ends_with_its_url(rows, capfd, monkeypatch):
    from data_pipelines.masks import ahead

    monkeypatch.setattr(ahead, "_PAUSE_SECONDS", 0.01)
    names = [name for name in rows.objects if name.endswith(".tokens") and "train" in name]
    whole = {name: rows.objects[name] for name in names}
    rows.objects |= {name: tokens[::-1] for name, tokens in whole.items()}
    rows.asked.clear()
    assert train(URL, "there") == 2
    (first,) = {name for name in names if f"GET {name}" in rows.asked}
    assert f"s3://bucket/{first} is damaged" in capfd.readouterr().err
    rows.objects[first] = whole[first]
    assert train(URL, "there") == 2  # in the midst of training
    assert f"{URL}/train" in (said := capfd.readouterr().err)
    assert "is damaged" in said
    assert first not in said
    for name in names:
        del rows.objects[name]
    assert train(URL, "there") == 2
    assert f"there is no file, folder or bucket '{URL}/train" in capfd.readouterr().err
    rows.faults += ["500"] * 50
    assert train(URL, "there") == 75
    assert URL in capfd.readouterr().err
