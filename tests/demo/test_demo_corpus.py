"""The demo's data is code of this installation; what dev is made of is nowhere else; roles are what Python says."""

import pytest

from data_pipelines.demo import corpus as demo_corpus
from data_pipelines.demo.corpus import CORPUS, DEV, TRAIN, read_modules, write_demo_data
from data_pipelines.demo.roles import ROLES, code_words, tagged_functions
from data_pipelines.labels.config import TaggedConfig
from data_pipelines.labels.tagged import read_tagged

SOURCE = '''
import os  # the "system
class Shelf(object):
    """Holds 'books'."""

    def find_MODULE(self, title, *others, first=None):
        path = os.path.join(self.place, title + f'.{"MODULE"}')
        try:
            return sorted(Book(path), key=first, reverse=LIMIT)
        except OSError as error:
            print(error, others)
'''
ROLE_OF = {
    "find_MODULE": "function",
    **dict.fromkeys(("self", "title", "others", "first"), "parameter"),
    **dict.fromkeys(("path", "error"), "local"),
    **dict.fromkeys(("join", "place"), "attribute"),
    **dict.fromkeys(("sorted", "OSError", "print"), "builtin"),
    **dict.fromkeys(("key", "reverse"), "argument"),
    "os": "module",
    "Book": "class",
    "LIMIT": "global",
}


@pytest.fixture
def modules(tmp_path, monkeypatch) -> list[str]:
    """Names of the modules of a folder that stands for the standard library."""
    names = [f"m{number}" for number in range(60)]
    (tmp_path / "lib" / "tests").mkdir(parents=True)
    for name in names:
        (tmp_path / "lib" / f"{name}.py").write_text(SOURCE.replace("MODULE", name))
    (tmp_path / "lib" / "tests" / "no.py").write_text(SOURCE)
    (tmp_path / "lib" / "broken.py").write_text("def (")
    (tmp_path / "lib" / "latin.py").write_bytes(b"x = '\xff'")
    (tmp_path / "none").mkdir()
    places = {"stdlib": str(tmp_path / "lib"), "purelib": str(tmp_path / "none")}
    monkeypatch.setattr(demo_corpus.sysconfig, "get_path", places.__getitem__)
    return names


def test_modules_lose_comments_and_what_strings_say(modules):
    code = {module.name: module.code for module in read_modules(10**9)}
    assert set(code) == {f"lib/{name}.py" for name in [*modules, "broken"]}
    assert "system" not in code["lib/m0.py"]
    assert "books" not in code["lib/m0.py"]
    assert 'title + "")' in code["lib/m0.py"]
    assert "\n\n" not in code["lib/m0.py"]


def test_reading_stops_when_there_is_enough(modules):
    sizes = [len(module.code) for module in read_modules(1000)]
    assert 1000 <= sum(sizes) < 1000 + max(sizes)


def test_modules_of_dev_are_nowhere_else(modules, tmp_path):
    sizes = write_demo_data(tmp_path)
    named = {}
    for name in (TRAIN, DEV):
        sentences = list(read_tagged(str(tmp_path / name), TaggedConfig()))
        named[name] = {sentence.words[1] for sentence in sentences}
    assert (sizes.train, sizes.dev) == (len(named[TRAIN]), len(named[DEV]))
    assert named[TRAIN]
    assert named[DEV]
    assert named[TRAIN] | named[DEV] == {f"find_{name}" for name in modules}
    corpus = set(code_words((tmp_path / CORPUS).read_text()))
    assert named[TRAIN] <= corpus
    assert not named[DEV] & corpus


def test_every_definition_is_a_document(modules, tmp_path):
    sizes = write_demo_data(tmp_path)
    documents = (tmp_path / CORPUS).read_text().strip().split("\n\n")
    assert len(documents) == sizes.documents
    assert sum(document.startswith("def find_") for document in documents) == sizes.train


def test_roles_are_what_python_says(modules):
    code = next(module.code for module in read_modules(10**9) if module.name == "lib/m0.py")
    (found,) = tagged_functions(code.replace("m0", "MODULE"))
    assert set(found.tags) <= set(ROLES)
    for before, word, tag in zip(["", *found.words], found.words, found.tags, strict=False):
        expected = "attribute" if (before, word) == (".", "path") else ROLE_OF.get(word, "O")
        assert tag == expected, word


def test_a_function_that_is_too_short_teaches_nothing():
    assert not list(tagged_functions("def f(x):\n    return x\n"))


def test_a_long_function_is_cut():
    (found,) = tagged_functions("def f(x):\n" + "    print(x)\n" * 100)
    assert len(found.words) == len(found.tags) == 100
