"""Nothing that others wrote is executed, nothing is written outside its folder, nobody is called unasked."""

import ast
import json
import os
import re
import socket
from pathlib import Path

import pytest
import torch
from grammar import write_conll, write_corpus

import bertkit
from bertkit.cli import main, printable
from bertkit.model import BertConfig, MaskedLM, TokenTagger, build_encoder
from bertkit.run.checkpoint import Checkpoint, checkpoints, save_checkpoint
from bertkit.run.folder import make_places
from bertkit.run.lock import locked
from data_pipelines import durable
from data_pipelines.rows.config import PrepareConfig
from data_pipelines.rows.prepare import prepare
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer

torch.set_num_threads(1)
ROOT = Path(__file__).parent.parent.parent
SOURCES = sorted(path for room in ("bertkit", "data_pipelines") for path in (ROOT / room).rglob("*.py"))

# Modules that run code found in data, unpack archives, open servers or start shells.
FORBIDDEN_MODULES = {
    *("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "dbm", "copyreg"),
    *("tarfile", "zipfile", "http.server", "socketserver", "xmlrpc", "ftplib", "telnetlib", "code", "pty"),
}
FORBIDDEN_CALLS = {
    *("eval", "exec", "compile", "__import__"),
    *("torch.load", "torch.save", "torch.jit.load", "torch.hub.load", "pandas.read_pickle", "pd.read_pickle"),
    *("os.system", "os.popen", "shutil.unpack_archive", "shutil.make_archive", "yaml.unsafe_load", "yaml.full_load"),
    *("torch.distributed.broadcast_object_list", "torch.distributed.all_gather_object", "dist.all_gather_object"),
    *("accelerate.utils.broadcast_object_list", "broadcast_object_list", "gather_object", "scatter_object_list"),
}
# torch.compile is a setting of a recipe; re.compile compiles an expression.
HARMLESS = {"re.compile", "torch.compile"}


def calls(path: Path) -> list[tuple[str, ast.Call]]:
    return [
        (ast.unparse(node.func), node)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_source_unpickles_evaluates_or_unpacks(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        else:
            continue
        assert not names & FORBIDDEN_MODULES, f"line {node.lineno}"
        assert not {name.partition(".")[0] for name in names} & FORBIDDEN_MODULES, f"line {node.lineno}"
    for name, call in calls(path):
        assert name in HARMLESS or name not in FORBIDDEN_CALLS, f"line {call.lineno}: {name}"
        for keyword in call.keywords:
            where = f"line {call.lineno}: {name}({keyword.arg}=...)"
            assert keyword.arg != "trust_remote_code", where
            truth = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            assert not (keyword.arg in ("allow_pickle", "shell") and truth), where
            assert not (keyword.arg == "weights_only" and not truth), where
        if name in ("np.load", "numpy.load", "np.memmap", "np.lib.format.open_memmap"):
            pickles = [keyword.value for keyword in call.keywords if keyword.arg == "allow_pickle"]
            assert all(isinstance(value, ast.Constant) and value.value is False for value in pickles), name


def test_yaml_is_read_by_safe_loaders_only():
    for path in SOURCES:
        for name, call in calls(path):
            if name in ("yaml.load", "yaml.load_all"):
                loader = ast.unparse(call.args[1]) if len(call.args) > 1 else ""
                assert loader == "PlainLoader", f"{path}: {ast.unparse(call)}"
    from bertkit.config.yaml_text import PlainLoader

    assert "SafeLoader" in {base.__name__ for base in PlainLoader.__mro__}


def test_the_network_is_named_in_few_places_and_nothing_listens():
    """Sockets are used to look whether the hub or a Ray cluster is there, to name this machine in a lock, and for ranks
    to meet."""
    network = {"socket", "urllib", "urllib.request", "http", "http.client", "requests", "httpx", "huggingface_hub"}
    allowed = {
        "data_pipelines/text/hub.py",
        "bertkit/engines/ray.py",
        "bertkit/hf/folder.py",
        "bertkit/run/lock.py",
        "bertkit/run/heartbeat.py",
    }
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        imported = set(re.findall(r"^\s*(?:import|from)\s+([\w.]+)", text, re.MULTILINE))
        if {name for name in imported if name.partition(".")[0] in {n.partition(".")[0] for n in network}}:
            assert str(path.relative_to(ROOT)) in allowed, path
        for name, call in calls(path):
            assert not name.endswith((".bind", ".listen", "create_server")), f"{path}:{call.lineno}"


class Called(BaseException):
    """Somebody wanted to talk to the network."""


@pytest.fixture
def no_network(monkeypatch):
    def refuse(self, address, *arguments):
        if self.family != socket.AF_UNIX:
            raise Called(address)

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **options: refuse(socket.socket(), arguments))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


@pytest.mark.usefixtures("no_network")
def test_no_verb_uses_the_network_without_being_asked(tmp_path, monkeypatch, capsys):
    """From raw text to a report, on this machine alone."""
    monkeypatch.setenv("BERTKIT_CACHE", str(tmp_path / "cache"))
    corpus, run = write_corpus(tmp_path / "text.txt", 30), tmp_path / "run"
    shape = ["model.hidden_size=16", "model.num_hidden_layers=1", "model.num_attention_heads=2"]
    shape += ["model.intermediate_size=32", "tokenizer.vocab_size=130", "data.seq_len=32", "train.global_batch=4"]
    small = [*shape, "train.steps=1", "run.num_workers=0", "data.validation_share=0.2"]
    assert main(["pretrain", "bert-mini", f"data.corpus={corpus}", f"run.dir={run}", *small]) == 0
    tokenizer = str(run / "export")
    assert main(["tokenizer", "doctor", "--tokenizer", tokenizer, "--corpus", str(corpus)]) == 0
    assert main(["prepare", "--tokenizer", tokenizer, "--corpus", str(corpus), "--out", str(tmp_path / "rows")]) == 0
    assert main(["fill", "--model", str(run), "anna [MASK] the house"]) == 0
    assert main(["info", str(run)]) == 0
    assert main(["report", str(run)]) == 0
    assert main(["attention", "--model", str(run), "--out", str(tmp_path / "a.html"), "anna paints"]) == 0
    tagged = write_conll(tmp_path / "train.conll", 4)
    labeled = [f"data.train={tagged}", f"data.dev={tagged}", f"model.init={run}", "train.epochs=1"]
    assert main(["finetune", "ner", *labeled, f"run.dir={tmp_path / 'ner'}", "run.seeds=0"]) == 0
    assert main(["tag", "--model", str(tmp_path / "ner"), str(corpus)]) == 0
    capsys.readouterr()


def test_a_name_that_is_no_folder_is_not_looked_up_on_the_network(no_network, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for argv in (["info", "google/bert"], ["tokenizer", "train", "--corpus", "wikitext", "--out", "x"]):
        assert main(argv) == 2
        assert "hf:" in capsys.readouterr().err


HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\x1b]0;owned\x07\x9b2J\u202e&\"'"


def small_model(folder: Path, tagger: bool = False) -> Path:
    """A model whose vocabulary and labels are hostile."""
    folder.mkdir(parents=True, exist_ok=True)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "anna", "<script>", "\x1b[31mred", "</script>"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    encoder = build_encoder(config, 0)
    labels = ("O", "B-\x1b[31m<b>", "I-\x1b[31m<b>")
    bertkit.save(TokenTagger(encoder, labels, 0) if tagger else MaskedLM(encoder, 0), folder)
    return folder


def obeys_nothing(text: str) -> bool:
    """No control code but the line break and the tab: a terminal takes no order from it."""
    return not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_text_of_others_reaches_a_terminal_without_its_control_codes(tmp_path, capsys):
    assert obeys_nothing(printable(HOSTILE))
    model, tagger = small_model(tmp_path / "model"), small_model(tmp_path / "tagger", tagger=True)
    (tmp_path / "text.txt").write_text(f"anna {HOSTILE}\n", encoding="utf-8")
    (tmp_path / "bad.jsonl").write_text(json.dumps({"\x1b[31mkey": HOSTILE}) + "\n")
    places = ["--corpus", str(tmp_path / "text.txt")]
    for argv in (
        ["fill", "--model", str(model), f"anna [MASK] {HOSTILE}"],
        ["fill", "--model", str(model), HOSTILE],
        ["info", str(tagger)],
        ["tag", "--model", str(tagger), "--output", "view", str(tmp_path / "text.txt")],
        ["tokenizer", "doctor", "--tokenizer", str(model), *places],
        ["tokenizer", "train", "--corpus", str(tmp_path / "bad.jsonl"), "--out", str(tmp_path / "t")],
        ["finetune", "ner", f"data.train={tmp_path / 'bad.jsonl'}", f"run.dir={tmp_path / 'r'}"],
        ["pretrain", "bert-mini", f"data.corpus={HOSTILE}"],
        ["pretrain", f"{HOSTILE}"],
        [HOSTILE],
        ["info", HOSTILE],
        ["report", HOSTILE],
    ):
        main(argv)
        said = capsys.readouterr()
        assert said.out + said.err, argv
        assert obeys_nothing(said.out), (argv, said.out)
        assert obeys_nothing(said.err), (argv, said.err)


def test_text_of_others_is_text_on_a_page(tmp_path, capsys):
    model = small_model(tmp_path / "model")
    page = tmp_path / "attention.html"
    assert main(["attention", "--model", str(model), "--out", str(page), f"anna {HOSTILE}"]) == 0
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text(json.dumps({"data": {"corpus": [HOSTILE]}, "run": {"dir": HOSTILE}}))
    line = {"kind": "train", "step": 1, "loss": 1.0, "lr": 0.1, HOSTILE: 1.0}
    advice = {"kind": "advice", "step": 1, "text": HOSTILE}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n" + json.dumps(advice) + "\n")
    assert main(["report", str(run)]) == 0
    for path in (page, run / "report.html"):
        text = path.read_text(encoding="utf-8")
        assert "alert(1)</script>" not in text
        assert "<img" not in text
        assert "Content-Security-Policy" in text
    capsys.readouterr()


@pytest.fixture
def precious(tmp_path) -> Path:
    """A file outside that links lead to."""
    path = tmp_path / "precious"
    path.write_text("precious")
    yield path
    assert path.read_text() == "precious"
    assert not path.is_symlink()


def test_a_file_is_never_written_through_a_link(precious, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").symlink_to(precious)
    with pytest.raises(OSError):
        durable.write_file(folder / "file", b"new")
    durable.replace_file(folder / "file", b"new")
    assert (folder / "file").read_bytes() == b"new"
    assert not (folder / "file").is_symlink()


def test_a_lock_does_not_empty_what_a_link_leads_to(precious, tmp_path):
    (tmp_path / ".lock").symlink_to(precious)
    with pytest.raises(OSError), locked(tmp_path / ".lock"):
        pass


def test_checkpoints_are_neither_written_nor_pruned_through_links(precious, tmp_path):
    folder, outside = tmp_path / "checkpoints", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").symlink_to(precious)
    folder.mkdir()
    for name in ("step-00000001", ".old-step-00000001", ".tmp-step-00000003", ".old-step-00000002"):
        (folder / name).symlink_to(outside)
    for step in (2, 3, 4, 5):
        try:
            save_checkpoint(folder, Checkpoint(step, {"model": {"a": torch.ones(1)}}, {"step": step}), keep=2)
        except OSError:
            assert step == 3, "its temporary name is taken by a link"
    assert [step for step, _ in checkpoints(folder)][-2:] == [4, 5]
    assert list(outside.iterdir()) == [outside / "kept"]


@pytest.mark.parametrize("name", ["checkpoints", "export", "metrics.jsonl"])
def test_a_run_does_not_write_through_links_in_its_folder(precious, tmp_path, name):
    run = tmp_path / "run"
    run.mkdir()
    (run / name).symlink_to(precious if name == "metrics.jsonl" else tmp_path)
    with pytest.raises(ValueError, match=f"{name} is a link"):
        make_places(run)


def test_a_model_is_saved_beside_what_links_lead_to(precious, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", ".tokenizer.json.tmp", "tokenizer_config.json"):
        (folder / name).symlink_to(precious)
    corpus = CorpusConfig(corpus=[str(write_corpus(tmp_path / "text.txt", 20))])
    tokenizer = train_tokenizer(corpus, TokenizerConfig(vocab_size=100), tmp_path / "tokenizer")
    config = BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    bertkit.save(MaskedLM(build_encoder(config, 0), 0), folder, tokenizer)
    assert not (folder / "model.safetensors").is_symlink()
    bertkit.load(folder)


def test_prepared_rows_are_not_written_through_links(precious, tmp_path):
    corpus = CorpusConfig(corpus=[str(write_corpus(tmp_path / "text.txt", 20))])
    train_tokenizer(corpus, TokenizerConfig(vocab_size=100), tmp_path / "tokenizer")
    names = {path.name for path in prepare(corpus, tmp_path / "tokenizer", PrepareConfig(), tmp_path / "a").iterdir()}
    for name in sorted(names):
        folder = tmp_path / f"with-{name}"
        folder.mkdir()
        (folder / name).symlink_to(precious)
        try:
            prepare(corpus, tmp_path / "tokenizer", PrepareConfig(), folder)
        except (OSError, ValueError):
            continue  # refused; that nothing was written is looked at in the end
        assert not (folder / name).is_symlink()


def test_pages_are_not_written_through_links(precious, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text("data: {}\n")
    (run / "report.html").symlink_to(precious)
    main(["report", str(run)])
    capsys.readouterr()


@pytest.mark.parametrize("name", ["../outside", "a/b", "/etc/passwd", "..", ".", "", "x\0y"])
def test_names_in_files_of_others_cannot_leave_their_folder(tmp_path, name):
    model = small_model(tmp_path / "model")
    os.rename(model / "model.safetensors", tmp_path / "outside")
    (tmp_path / "outside.safetensors").write_bytes(b"")
    for form in (name, f"{name}.safetensors"):
        (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": form}}))
        with pytest.raises(ValueError):
            bertkit.load(model)
