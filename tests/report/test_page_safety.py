"""A page loads nothing, runs only its own scripts, shows text of strangers as text, and is written where it is told."""

import base64
import hashlib
import html
import json
import math
import re
import subprocess
import sys

import pytest
from report_runs import text_of, write_run

from bertkit.report.markup import Html, tag
from bertkit.report.page import embedded_json, write_page
from bertkit.report.training_report import write_report

LINE = "\u2028"


def test_markup_escapes_text_and_attributes_but_not_markup():
    made = tag("p", "a<b", 3, None, [tag("i", "&")], Html("<hr>"), title='"<', hidden=None)
    assert made == '<p title="&quot;&lt;">a&lt;b3<i>&amp;</i><hr></p>'


def test_embedded_data_cannot_end_its_element_and_is_json():
    data = {"name": f"</script><!--{LINE}", "loss": [1.5, math.nan, math.inf], "deep": [{"x": -math.inf}]}
    text = embedded_json(data)
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"name": data["name"], "loss": [1.5, None, None], "deep": [{"x": None}]}


@pytest.mark.parametrize("name", ["run", "tagger", "both"])
def test_a_page_names_nothing_outside_itself(pages, name):
    page = pages[name].read_text()
    references = re.findall(r'(?:src|href|action|srcset|data)="([^"]*)"', page)
    assert all(reference.startswith(("#", "data:")) for reference in references), references
    addresses = set(re.findall(r"https?://[^\"' ]+", html.unescape(page)))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert "url(" not in page


@pytest.mark.parametrize("name", ["run", "tagger", "both"])
def test_the_policy_allows_exactly_the_scripts_and_the_style_of_the_page(pages, name):
    page = pages[name].read_text()
    policy = html.unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1])
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    inline = re.findall(r"<script>(.*?)</script>", page, re.DOTALL) + re.findall(
        r"<style>(.*?)</style>", page, re.DOTALL
    )
    hashes = {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in inline}
    assert hashes == set(re.findall(r"'sha256-([^']*)'", policy))
    assert not re.search(r"<[^>]* (?:style|on\w+)=", page), "inline styles and handlers would be refused"


@pytest.mark.parametrize("name", ["run", "tagger", "both"])
def test_text_of_runs_is_shown_as_text(pages, name):
    page = pages[name].read_text()
    assert "<script>window" not in page
    assert "<b>" not in page.replace('"guess"><b>', "")
    assert "script" in text_of(page)


def test_no_link_is_followed_where_a_page_is_written(tmp_path):
    run = write_run(tmp_path / "run", [])
    (tmp_path / "precious").write_text("mine")
    for name in ("report.html", ".report.html.tmp", "report.html.new"):
        (run / name).symlink_to(tmp_path / "precious")
    assert write_report([run]).read_text().startswith("<!doctype html>")
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_folder_is_no_place_for_a_page(tmp_path):
    with pytest.raises(ValueError, match="is a folder; name the file"):
        write_page(tmp_path, "a page")
    assert not list(tmp_path.parent.glob(".*.tmp"))


def test_importing_the_room_is_cheap():
    modules = ("training_report", "attention_page", "attention", "probe")
    code = "import sys; " + "; ".join(f"import bertkit.report.{name}" for name in modules) + "; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & {"torch", "numpy", "tokenizers", "datasets", "accelerate", "yaml"}
