"""The verb `evaluate`: a masked-language model on any text, a tagger or classifier on labeled files."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path

from bertkit.cli.answers import add_json, answer
from bertkit.cli.models import MODEL, add_backend, only_for
from bertkit.config.fields import add_flags, from_flags
from bertkit.evaluate.config import EvaluateConfig
from data_pipelines.labels.config import TaggedConfig

_WORST = 5
_OF_MASKED = {field.name for field in fields(EvaluateConfig)}
_OF_LABELED = {"worst", *(field.name for field in fields(TaggedConfig))}


def evaluate(parser: ArgumentParser) -> Callable[[Namespace], None]:
    """Arguments of `bertkit evaluate`."""
    parser.epilog = (
        "examples:\n  bertkit evaluate runs/mine other.txt\n  bertkit evaluate runs/ner test.conll --json scores.json"
    )
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    about = "text files, folders, globs or hf:NAME; for a tagger or classifier, labeled files or datasets"
    parser.add_argument("corpus", metavar="FILE", nargs="+", help=about)
    add_backend(parser)
    add_json(parser)
    add_flags(parser.add_argument_group("masked-language models"), EvaluateConfig)
    labeled = parser.add_argument_group("taggers and classifiers")
    add_flags(labeled, TaggedConfig)
    about = f"sentences to show with gold and predicted tags, those with most mistakes (default: {_WORST})"
    labeled.add_argument("--worst", type=int, metavar="N", default=SUPPRESS, help=about)
    return _evaluate


def _evaluate(arguments: Namespace) -> None:
    from bertkit.hf.folder import check_named, resolve

    from_flags(EvaluateConfig, arguments), from_flags(TaggedConfig, arguments)  # are the values fine?
    _check_sources(source for source in arguments.corpus if not Path(source).is_file())
    check_named(arguments.model, graph=True)

    from bertkit.finetune.predict.settings import read_settings, tasks_by_head

    folder = resolve(arguments.model)
    if _kind_of(folder, arguments.backend) not in tasks_by_head(read_settings(folder), folder):
        _refuse(arguments, _OF_LABELED - _OF_MASKED, f"{arguments.model} is not a tagger or classifier")
        _evaluate_masked(arguments)
    else:
        _refuse(arguments, _OF_MASKED - _OF_LABELED, f"{arguments.model} is not a masked-language model")
        _evaluate_labeled(arguments)


def _kind_of(folder: Path, backend: str) -> str:
    """The kind of head that the model has."""
    from bertkit.hf.folder import GRAPHS, choose_backend

    backend = choose_backend(folder, backend)
    if backend in GRAPHS:
        from bertkit.hf.onnx import open_graph

        return open_graph(folder, backend).kind
    from bertkit.hf.models import load_outline

    return load_outline(folder).kind


def _evaluate_masked(arguments: Namespace) -> None:
    _check_sources(arguments.corpus)
    from bertkit.evaluate.folder import evaluate_folder, print_scores

    config = from_flags(EvaluateConfig, arguments)
    scores = evaluate_folder(arguments.model, arguments.corpus, config, arguments.backend)
    answer(arguments.json, scores, lambda: print_scores(scores))


def _evaluate_labeled(arguments: Namespace) -> None:
    from bertkit.finetune.predict.scoring import score_labeled
    from bertkit.finetune.predict.tagger import Tagger
    from bertkit.finetune.score_tables import print_evaluation
    from data_pipelines.labels.tagged import check_source

    worst = getattr(arguments, "worst", _WORST)
    if worst < 0:
        raise ValueError(f"--worst must be at least 0, got {worst}")
    for source in arguments.corpus:
        check_source(source)
    model = only_for(arguments.model, arguments.backend)
    tagger = Tagger.load(model, backend=arguments.backend)
    config = tagger.reading.of_source(arguments.corpus[0]).config
    remembered = {key: value for key, value in vars(config).items() if not hasattr(arguments, key)}
    found = score_labeled(tagger, arguments.corpus, from_flags(TaggedConfig, arguments, **remembered), worst)
    answer(arguments.json, found, lambda: print_evaluation(tagger.task, found))


def _check_sources(sources: Iterable[str]) -> None:
    """Report text that is not there before anything heavy is imported."""
    from data_pipelines.text.config import CorpusConfig
    from data_pipelines.text.corpus import find_sources

    for source in sources:
        find_sources(CorpusConfig(corpus=[source]))


def _refuse(arguments: Namespace, keys: Iterable[str], why: str) -> None:
    for key in sorted(keys):
        if hasattr(arguments, key):
            raise ValueError(f"--{key.replace('_', '-')}: {why}; leave it out")
