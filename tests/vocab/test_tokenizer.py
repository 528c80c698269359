"""Trained tokenizers are the same in every process; foreign ones are taken without their padding and truncation."""

import hashlib
import json
import os
import random
import subprocess
import sys

import pytest
from grammar import documents, write_corpus
from reference import reference_transformers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

from bertkit.cli import main
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import SPECIAL_TOKENS, load_tokenizer, train_tokenizer
from data_pipelines.vocab.tokenizer_file import find_tokenizer

CHINESE = ["我爱北京天安门。", "北京是中国的首都。", "天安门在北京。", "中国人爱中国。"]
ACCENTS = ["Über Größe naïve café e\u0301cole", "İstanbul Ångström ﬁn", "가나다 한국어 서울", "a\u200bb\u00adc x™y 3°C"]


def corpus(path, texts) -> CorpusConfig:
    path.write_text("\n\n".join(texts), encoding="utf-8")
    return CorpusConfig(corpus=[str(path)])


def trained(folder, texts=None, **options):
    folder.mkdir(exist_ok=True)
    config = corpus(folder / "corpus.txt", texts or documents(200) + CHINESE * 5 + ACCENTS * 5)
    return train_tokenizer(config, TokenizerConfig(**({"vocab_size": 400} | options)), folder / "tokenizer")


TRAIN = """
import sys
from bertkit.cli import main
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
from data_pipelines.vocab.tokenizer import train_tokenizer
options = {"kind": sys.argv[1], "lowercase": sys.argv[2] == "True", "vocab_size": 400}
train_tokenizer(CorpusConfig(corpus=[sys.argv[3]]), TokenizerConfig(**options), sys.argv[4])
"""


@pytest.mark.parametrize(("kind", "lowercase"), [("wordpiece", True), ("wordpiece", False), ("bpe", True)])
def test_training_gives_the_same_ids_in_every_process(tmp_path, kind, lowercase):
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyzäöüßéあいうк", k=rng.randint(1, 9))) for _ in range(800)]
    # Every word as often as every other: all merges are ties.
    corpus(tmp_path / "corpus.txt", [" ".join(words), " ".join(reversed(words)), *CHINESE * 2, *ACCENTS * 2])
    found = set()
    for seed in range(3):
        arguments = [kind, str(lowercase), tmp_path / "corpus.txt", tmp_path / f"{seed}"]
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        subprocess.run([sys.executable, "-c", TRAIN, *arguments], env=environment, check=True, timeout=240)
        found.add(hashlib.sha256((tmp_path / f"{seed}" / "tokenizer.json").read_bytes()).hexdigest())
    assert len(found) == 1


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_special_tokens_have_fixed_ids_and_frame_every_text(tmp_path, kind):
    tokenizer = trained(tmp_path, kind=kind)
    special = tokenizer.special
    assert (special.pad_id, special.unk_id, special.cls_id, special.sep_id, special.mask_id) == (0, 1, 2, 3, 4)
    assert special.special_ids == frozenset(range(5))
    assert tokenizer.backend.encode("anna paints").tokens[0] == "[CLS]"
    assert tokenizer.backend.encode("anna paints").tokens[-1] == "[SEP]"
    assert tokenizer.backend.encode("a", "b").type_ids == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_the_vocabulary_is_dense_and_no_larger_than_asked_for(tmp_path, kind):
    tokenizer = trained(tmp_path, kind=kind)
    assert sorted(tokenizer.backend.get_vocab().values()) == list(range(tokenizer.vocab_size))
    assert tokenizer.vocab_size <= 400


@pytest.mark.parametrize("lowercase", [True, False])
def test_every_character_of_the_training_text_is_known(tmp_path, lowercase):
    tokenizer = trained(tmp_path, lowercase=lowercase, vocab_size=1000)
    for text in documents(50) + CHINESE + ACCENTS:
        assert tokenizer.special.unk_id not in tokenizer.backend.encode(text).ids


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_pieces_handed_over_are_those_the_library_would_find(tmp_path, lowercase):
    """The characters are looked for by ourselves; a missing one would be numbered by chance, one too many is waste."""
    from data_pipelines.vocab.sample import count_letters

    backend = trained(tmp_path, lowercase=lowercase).backend
    texts = documents(50) + CHINESE + ACCENTS
    letters, inside = count_letters(iter(texts), backend)
    words = [
        word
        for text in texts
        for word, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))
    ]
    assert set(letters) == set("".join(words))
    assert inside == {letter for word in words for letter in word[1:]}


def test_the_rarest_characters_of_a_large_script_stay_out(tmp_path):
    characters = [chr(0x4E00 + i) for i in range(300)]
    texts = ["".join(char * (300 - i) for i, char in enumerate(characters))]
    tokens = trained(tmp_path, texts, vocab_size=400).backend.get_vocab()
    assert [char for char in characters if char in tokens] == characters[:100]


def test_case_and_accents_are_folded_on_request(tmp_path):
    for lowercase, expected in ((True, True), (False, False)):
        backend = trained(tmp_path, lowercase=lowercase).backend
        assert (backend.encode("CAFÉ").ids == backend.encode("cafe").ids) is expected


def test_chinese_characters_are_split_and_come_back(tmp_path):
    tokenizer = trained(tmp_path)
    for text in CHINESE:
        encoding = tokenizer.backend.encode(text, add_special_tokens=False)
        assert encoding.tokens == list(text)
        assert tokenizer.backend.decode(encoding.ids).replace(" ", "") == text
    byte_level = trained(tmp_path, kind="bpe")
    for text in CHINESE + ACCENTS:
        assert byte_level.backend.decode(byte_level.backend.encode(text).ids) == text


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_the_sample_is_capped_and_taken_from_the_whole_corpus(tmp_path, kind):
    texts = [f"{part}{i} " * 2000 for i in range(100) for part in ("early " if i < 50 else "late ")[:-1:4]]
    read = []
    train_tokenizer(
        corpus(tmp_path / "c.txt", texts * 3),
        TokenizerConfig(kind=kind, vocab_size=300, sample_mb=1),
        tmp_path / "t",
        report=lambda done, total: read.append((done, total)),
    )
    done, total = read[-1]
    assert abs(done - 2**20) < 30_000
    assert total == 2**20
    tokens = load_tokenizer(tmp_path / "t").backend.get_vocab()
    assert {"e", "l"} <= {token.lstrip("Ġ")[:1] for token in tokens}


def test_one_giant_document_is_sampled_too(tmp_path):
    trained(tmp_path, ["word and " * 700_000], sample_mb=1, vocab_size=100)


def test_overlong_words_are_cut(tmp_path):
    """A word of megabytes would be one entry of the trainer's table, and its pieces' counts would fill memory."""
    from data_pipelines.vocab.sample import sample

    text = "short " + "x" * 1000 + " end"
    config = corpus(tmp_path / "c.txt", [text])
    (cut,) = sample(config, TokenizerConfig(max_word_chars=256))
    assert max(map(len, cut.split())) == 256
    assert cut.replace(" ", "") == text.replace(" ", "")


def test_training_on_one_word_of_50_megabytes_stays_small(tmp_path):
    (tmp_path / "c.txt").write_bytes(b"ab0" * (50 * 10**6 // 3))
    code = """
import sys
import data_pipelines.vocab.tokenizer as t
from bertkit.bench.measure import most_memory
from data_pipelines.text.config import CorpusConfig
from data_pipelines.vocab.config import TokenizerConfig
before = most_memory()
t.train_tokenizer(CorpusConfig(corpus=[sys.argv[1]]), TokenizerConfig(vocab_size=300), sys.argv[2])
print(int(most_memory() - before))
"""
    command = [sys.executable, "-c", code, tmp_path / "c.txt", tmp_path / "t"]
    assert int(subprocess.run(command, capture_output=True, check=True, timeout=250).stdout) < 300


def test_an_empty_corpus_and_a_vocabulary_too_small_are_refused(tmp_path):
    for kind in ("wordpiece", "bpe"):
        with pytest.raises(ValueError, match="holds no text"):
            train_tokenizer(corpus(tmp_path / "c.txt", [" ", "\n"]), TokenizerConfig(kind=kind), tmp_path / "t")
    with pytest.raises(ValueError, match="at least 261 for bpe"):
        trained(tmp_path, kind="bpe", vocab_size=260)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_the_folder_opens_here_and_in_transformers_with_the_same_ids(tmp_path, kind):
    transformers = reference_transformers()
    ours = trained(tmp_path, kind=kind)
    again = load_tokenizer(tmp_path / "tokenizer")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    assert again.fingerprint == ours.fingerprint
    for text in documents(20, seed=1) + CHINESE + ACCENTS + ["[MASK] it, [CLS]!"]:
        expected = ours.backend.encode(text).ids
        assert again.backend.encode(text).ids == expected
        assert theirs(text)["input_ids"] == expected
    assert (theirs.pad_token_id, theirs.mask_token_id) == (0, 4)
    assert len(theirs) == ours.vocab_size


def foreign(tokens: list[str], special=SPECIAL_TOKENS) -> Tokenizer:
    backend = Tokenizer(models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token=special[1]))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return backend


def test_baked_in_padding_and_truncation_are_switched_off_and_written_again(tmp_path):
    backend = foreign([*SPECIAL_TOKENS, "a", "b"])
    backend.enable_padding(length=16)
    backend.enable_truncation(4)
    backend.save(str(tmp_path / "tokenizer.json"))
    for path in (tmp_path, tmp_path / "tokenizer.json"):
        tokenizer = load_tokenizer(path)
        assert tokenizer.backend.encode("a b a b a b").ids == [5, 6, 5, 6, 5, 6]
    tokenizer.save(tmp_path / "saved")
    before, after = (json.loads((folder / "tokenizer.json").read_text()) for folder in (tmp_path, tmp_path / "saved"))
    assert after == before
    assert before["padding"]
    assert before["truncation"]


@pytest.mark.parametrize("form", ["string", "dict", "map"])
def test_special_tokens_are_found_by_the_names_a_folder_gives_them(tmp_path, form):
    names = {"pad_token": "<p>", "unk_token": "<u>", "cls_token": "<c>", "sep_token": "<e>", "mask_token": "<m>"}
    foreign([*names.values(), "a", "[MASK]"], [*names.values()]).save(str(tmp_path / "tokenizer.json"))
    if form == "dict":
        names = {role: {"__type": "AddedToken", "content": name, "lstrip": True} for role, name in names.items()}
    file = "special_tokens_map.json" if form == "map" else "tokenizer_config.json"
    (tmp_path / file).write_text(json.dumps(names | {"bos_token": None, "model_max_length": 512}))
    tokenizer = load_tokenizer(tmp_path)
    special = tokenizer.special
    assert (special.pad_id, special.unk_id, special.cls_id, special.sep_id, special.mask_id) == (0, 1, 2, 3, 4)
    assert set(range(5)) <= special.special_ids
    assert tokenizer.max_length == 512


def test_roberta_names_are_known_without_a_config(tmp_path):
    tokens = ["<s>", "<pad>", "</s>", "<unk>", "a", "Ġb", "<mask>"]
    backend = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, [], unk_token="<unk>"))
    backend.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    backend.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    backend.save(str(tmp_path / "tokenizer.json"))
    special = load_tokenizer(tmp_path).special
    assert (special.pad_id, special.unk_id, special.cls_id, special.sep_id, special.mask_id) == (1, 3, 0, 2, 6)
    assert special.special_ids == {0, 1, 2, 3, 6}


def test_what_a_tokenizer_lacks_is_none(tmp_path):
    foreign(["[UNK]", "a"], ["[PAD]", "[UNK]"]).save(str(tmp_path / "tokenizer.json"))
    special = load_tokenizer(tmp_path).special
    assert special.unk_id == 0
    assert special.mask_id is special.pad_id is None


def test_unused_slots_stay_ordinary_entries_that_are_never_drawn(tmp_path):
    from data_pipelines.vocab.vocabulary import vocabulary_of

    foreign([*SPECIAL_TOKENS, "[unused0]", "[unused1]", "a"]).save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.vocab_size == 8
    assert vocabulary_of(tokenizer).drawable.tolist() == [7]


def test_a_fingerprint_tells_tokenizers_apart_that_frame_text_otherwise(tmp_path):
    backend = foreign([*SPECIAL_TOKENS, "[BOS]", "a"])
    prints = set()
    for cls_token in ("[CLS]", "[BOS]", "[CLS]"):
        backend.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"cls_token": cls_token}))
        prints.add(load_tokenizer(tmp_path).fingerprint)
    assert len(prints) == 2


def test_a_tokenizer_is_found_in_its_folder_and_goes_before_a_word_list(tmp_path):
    for name in ("vocab.txt", "tokenizer.json"):
        (tmp_path / name).touch()
        assert find_tokenizer(tmp_path) == find_tokenizer(tmp_path / name) == tmp_path / name


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "there is no tokenizer at"),
        ({"vocab.txt": "[PAD]"}, "vocab.txt alone is not enough"),
        ({"tokenizer.json": "{"}, "tokenizer.json"),
        ({"tokenizer.json": None, "tokenizer_config.json": "{"}, "tokenizer_config.json is not JSON"),
        ({"tokenizer.json": None, "tokenizer_config.json": "[]"}, "must hold an object, not list"),
    ],
)
def test_a_folder_that_is_no_tokenizer_is_refused(tmp_path, files, expected):
    for name, content in files.items():
        if content is None:
            foreign([*SPECIAL_TOKENS, "a"]).save(str(tmp_path / name))
        else:
            (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=expected):
        load_tokenizer(tmp_path)


def test_windows_line_breaks_give_the_same_tokenizer_and_tokens(tmp_path):
    write_corpus(tmp_path / "lf.txt")
    (tmp_path / "crlf.txt").write_bytes((tmp_path / "lf.txt").read_bytes().replace(b"\n", b"\r\n"))
    config = TokenizerConfig(kind="bpe", vocab_size=300)
    trained = [
        train_tokenizer(CorpusConfig(corpus=[str(tmp_path / name)]), config, tmp_path / "t")
        for name in ("lf.txt", "crlf.txt")
    ]
    assert trained[0].fingerprint == trained[1].fingerprint


def test_a_name_of_the_hub_is_told_how_to_fetch_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("text")
    with pytest.raises(ValueError, match="hf download some/name --local-dir DIR` and name DIR"):
        load_tokenizer("some/name")
    assert main(["tokenizer", "doctor", "--tokenizer", "some/name", "--corpus", "corpus.txt"]) == 2
    assert "hf download some/name --local-dir DIR` and name DIR" in capsys.readouterr().err
    for here in (tmp_path, "a/longer/path"):
        with pytest.raises(ValueError, match=r"makes one\)$"):
            load_tokenizer(here)
