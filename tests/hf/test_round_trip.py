"""A folder of transformers comes in and goes out again: the same logits, tokens, fields and answers of pipelines."""

import json
from itertools import pairwise

import pytest
import torch
from reference import reference_transformers

import bertkit
from bertkit.cli import main

transformers = reference_transformers()
torch.set_num_threads(1)
HEADS = {
    "Model": "feature-extraction",
    "ForMaskedLM": "fill-mask",
    "ForTokenClassification": "token-classification",
    "ForSequenceClassification": "text-classification",
}
MODEL_TYPES = ["bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra", "modernbert"]
WORDS = ["paris", "is", "the", "capital", "of", "france", "berlin", "nice", ",", "."]
TEXTS = ["paris is the capital of france .", "berlin , nice", "Nice <ent> paris ! the the", ""]
LABELS = {"id2label": {0: "O", 1: "B-LOC", 2: "I-LOC"}, "label2id": {"O": 0, "B-LOC": 1, "I-LOC": 2}}
SHAPE = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
# Fields that tell who wrote a folder, and where it was read from.
OF_THE_WRITER = {"_name_or_path", "name_or_path", "transformers_version", "is_local", "local_files_only", "vocab_file"}
# What older versions of transformers read in place of what newer ones write.
FOR_OLDER_READERS = {"global_attn_every_n_layers"}


def tokenizer_of(model_type):
    """A tokenizer of the class that the model's folders name, none of its settings the usual one."""
    options = {
        "model_max_length": 20,
        "padding_side": "left",
        "truncation_side": "left",
        "extra_special_tokens": ["<ent>", "<rel>"],
        "my_note": {"kept": [1, None]},
    }
    if model_type in ("bert", "distilbert", "electra"):
        names = {"bert": "BertTokenizer", "distilbert": "DistilBertTokenizer", "electra": "ElectraTokenizer"}
        tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "pari", "!"]
        vocab = {token: index for index, token in enumerate(tokens)}
        return getattr(transformers, names[model_type])(vocab=vocab, do_lower_case=False, **options)
    if model_type == "roberta":
        letters = sorted({letter for word in WORDS for letter in word} | {"Ġ", "N", "!"})
        tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *letters, "Ġt", "Ġth", "Ġthe", "Ġp"]
        merges = [("Ġ", "t"), ("Ġt", "h"), ("Ġth", "e"), ("Ġ", "p")]
        vocab = {token: index for index, token in enumerate(tokens)}
        return transformers.RobertaTokenizer(vocab=vocab, merges=merges, **options)
    if model_type in ("xlm-roberta", "camembert"):
        unused = "" if model_type == "xlm-roberta" else "NOTUSED"
        first = [f"<s>{unused}", "<pad>", f"</s>{unused}", "<unk>"]
        pieces = [*first, *(f"▁{word}" for word in WORDS), "▁", *"abcdefilnoprst"]
        vocab = [(piece, 0.0 if index < 4 else -float(index)) for index, piece in enumerate(pieces)]
        name = "XLMRobertaTokenizer" if model_type == "xlm-roberta" else "CamembertTokenizer"
        return getattr(transformers, name)(vocab=[*vocab, ("<mask>", 0.0)] if name[0] == "X" else vocab, **options)
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    backend = Tokenizer(models.WordLevel({token: index for index, token in enumerate(tokens)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, model_input_names=["input_ids", "attention_mask"], **roles, **options
    )


def config_of(model_type, tokenizer, **values):
    values = SHAPE | {"max_position_embeddings": 24, "initializer_range": 0.2} | LABELS | values
    if model_type == "distilbert":
        theirs = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"}
        values = {(theirs | {"intermediate_size": "hidden_dim"}).get(key, key): value for key, value in values.items()}
    if model_type == "electra":
        values["embedding_size"] = 16
    return transformers.AutoConfig.for_model(
        model_type, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **values
    )


@pytest.fixture(
    scope="module", params=[(model_type, head) for model_type in MODEL_TYPES for head in HEADS], ids="-".join
)
def folders(request, tmp_path_factory):
    """What transformers wrote, and what came back after an import and an export."""
    model_type, head = request.param
    folder = tmp_path_factory.mktemp("round-trip")
    return head, *round_trip(folder, model_type, head)


def round_trip(folder, model_type, head, **values):
    tokenizer = tokenizer_of(model_type)
    torch.manual_seed(0)
    model = getattr(transformers, f"AutoModel{head.removeprefix('Model')}").from_config(
        config_of(model_type, tokenizer, my_field="kept", **values)
    )
    model.save_pretrained(folder / "theirs")
    tokenizer.save_pretrained(folder / "theirs")
    for verb, source, target in (("import", "theirs", "ours"), ("export", "ours", "back")):
        with pytest.warns(UserWarning, match="my_field"):
            assert main([verb, str(folder / source), str(folder / target)]) == 0
    return folder / "theirs", folder / "back"


def both(head, *folders):
    model = getattr(transformers, f"AutoModel{head.removeprefix('Model')}")
    return [model.from_pretrained(folder).eval() for folder in folders]


def test_every_field_of_a_file_stays(folders):
    _, theirs, ours = folders
    for name in ("config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        if (theirs / name).is_file():
            before, after = (json.loads((folder / name).read_text()) for folder in (theirs, ours))
            for key in before.keys() - OF_THE_WRITER:
                assert after[key] == before[key], (name, key)
    before, after = (json.loads((folder / "tokenizer.json").read_text()) for folder in (theirs, ours))
    assert after == before


def test_transformers_reads_the_same_config(folders):
    _, theirs, ours = folders
    before, after = (transformers.AutoConfig.from_pretrained(folder).to_dict() for folder in (theirs, ours))
    assert after.keys() - before.keys() <= FOR_OLDER_READERS
    for key in before.keys() - OF_THE_WRITER:
        assert after[key] == before[key], key


def test_transformers_reads_the_same_tokenizer(folders):
    _, theirs, ours = folders
    before, after = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (theirs, ours))
    assert type(after) is type(before)
    for name in ("model_input_names", "model_max_length", "padding_side", "truncation_side", "special_tokens_map",
                 "all_special_ids", "extra_special_tokens", "added_tokens_decoder", "vocab_size"):  # fmt: skip
        assert getattr(after, name) == getattr(before, name), name
    assert after.get_vocab() == before.get_vocab()
    kept = {key: value for key, value in before.init_kwargs.items() if key not in OF_THE_WRITER}
    assert {key: after.init_kwargs.get(key) for key in kept} == kept
    for options in ({}, {"padding": True}, {"truncation": True}, {"padding": "max_length", "max_length": 8}):
        for batch in ([TEXTS], [TEXTS, TEXTS[::-1]], [[" ".join(TEXTS * 3)]]):
            assert dict(after(*batch, **options)) == dict(before(*batch, **options)), (options, batch)


def test_logits_are_equal(folders):
    head, *pair = folders
    # Where rows are padded on the left, we count positions from the first token and transformers from the padding.
    tokenizer = transformers.AutoTokenizer.from_pretrained(pair[0], padding_side="right")
    inputs = tokenizer(TEXTS, TEXTS[::-1], padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        theirs, ours = (model(**inputs)[0] for model in both(head, *pair))
        found = bertkit.load(pair[0])(**inputs)
    assert torch.equal(ours, theirs)
    attended = inputs["attention_mask"].bool()
    if found.dim() == 3:
        found, theirs = found[attended], theirs[attended]
    torch.testing.assert_close(found, theirs, atol=2e-6, rtol=2e-5)


def test_pipelines_answer_the_same(folders):
    head, *pair = folders
    task = HEADS[head]
    theirs, ours = (transformers.pipeline(task, str(folder)) for folder in pair)
    texts, options = [*TEXTS[:3], " ".join(TEXTS * 9)], {}
    if task == "fill-mask":
        texts = [f"paris is {theirs.tokenizer.mask_token} ."]
    elif task == "token-classification":
        options = {"aggregation_strategy": "first"}
    elif task == "text-classification":
        pairs = [{"text": text, "text_pair": other} for text, other in pairwise(texts)]
        texts, options = texts + pairs, {"top_k": None, "truncation": True}
    else:
        options = {"truncation": True}
    for text in texts:
        assert_same(ours(text, **options), theirs(text, **options))


def assert_same(found, expected):
    """Equal, with numbers that differ by rounding alone."""
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_same(found[key], expected[key])
    else:
        assert found == (pytest.approx(expected, abs=1e-6) if isinstance(expected, float) else expected)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize(
    ("problem_type", "labels"),
    [("multi_label_classification", 3), ("regression", 1), ("single_label_classification", 3)],
)
def test_what_a_classifier_decides_stays(problem_type, labels, model_type, tmp_path):
    names = {"id2label": {i: f"L{i}" for i in range(labels)}, "label2id": {f"L{i}": i for i in range(labels)}}
    pair = round_trip(tmp_path, model_type, "ForSequenceClassification", problem_type=problem_type, **names)
    theirs, ours = (transformers.pipeline("text-classification", str(folder), top_k=None) for folder in pair)
    assert ours.model.config.problem_type == problem_type
    for text in (TEXTS[0], {"text": TEXTS[0], "text_pair": TEXTS[1]}):
        assert_same(ours(text, truncation=True), theirs(text, truncation=True))


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("head", ["ForQuestionAnswering", "ForMultipleChoice"])
def test_heads_that_we_do_not_have_are_refused_by_name(head, model_type, tmp_path):
    tokenizer = tokenizer_of(model_type)
    model = getattr(transformers, f"AutoModel{head}").from_config(
        config_of(model_type, tokenizer, id2label={0: "a", 1: "b"}, label2id={"a": 0, "b": 1})
    )
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=rf"architectures.*{head}.*ForTokenClassification"):
        bertkit.load(tmp_path)
