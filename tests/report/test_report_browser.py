"""What a person sees and does on a report in a browser: nothing foreign, readable on any screen, by pointer or keys."""

import json
import re

import pytest
import torch
from browser import Browser, find_browser
from report_runs import EVIL

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def browser():
    find_browser()
    with Browser() as opened:
        yield opened


def plot(browser: Browser, chart: str) -> dict[str, float]:
    """Where the drawing of a chart lies on the screen."""
    find = f"document.querySelector('[data-chart={chart}] svg')"
    browser.evaluate(f"{find}.scrollIntoView({{block: 'center'}})")
    return json.loads(browser.evaluate(f"JSON.stringify({find}.getBoundingClientRect())"))


@pytest.mark.parametrize("name", ["run", "tagger", "both"])
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_a_browser_finds_no_fault_and_asks_for_nothing(browser, pages, name, width, dark):
    browser.open(pages[name], width=width, dark=dark)
    assert browser.problems == []
    assert [url for url in browser.requests if not url.startswith("data:")] == [pages[name].as_uri()]
    assert browser.evaluate("window.pwned") is None
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert browser.evaluate("document.querySelectorAll('script').length") == 3
    drawn = browser.evaluate("[...document.querySelectorAll('.plot')].map(p => p.querySelectorAll('.curve').length)")
    assert drawn
    assert all(drawn)


@pytest.mark.parametrize("dark", [False, True])
def test_a_narrow_screen_cuts_no_table_without_a_sign(browser, pages, dark):
    browser.open(pages["both"], width=390, dark=dark)
    for open_all in ("", "document.querySelectorAll('details').forEach(details => details.open = true)"):
        browser.evaluate(open_all)
        cut = "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth)"
        signs = browser.evaluate(f"{cut}.map(box => getComputedStyle(box).backgroundImage)")
        assert all("gradient" in sign for sign in signs), signs
    assert signs, "none of the tables is wide, so nothing was shown"
    assert browser.evaluate(f"{cut}.filter(box => box.querySelector('.glance')).length") == 0
    shown = browser.evaluate("document.querySelector('.glance').innerText")
    assert "perplexity" in shown, "every number has its name beside it"


def test_hostile_text_is_seen_as_text(browser, pages):
    browser.open(pages["tagger"])
    assert EVIL in browser.evaluate("document.querySelector('#tagging').innerText")


def test_the_pointer_reads_out_the_nearest_step(browser, pages, tagger):
    browser.open(pages["tagger"])
    box = plot(browser, "loss")
    browser.move(box["x"] + 0.9 * box["width"], box["y"] + 40)
    shown = browser.evaluate("document.querySelector('[data-chart=loss] .readout').innerText")
    step = int(re.search(r"step (\d+)", shown)[1])
    assert 15 < step <= 29
    assert f"{1 / step:.3f}" in shown
    browser.move(box["x"], box["y"] - 60)
    assert browser.evaluate("document.querySelector('[data-chart=loss] .readout').hidden")


def test_arrow_keys_move_the_readout(browser, pages):
    browser.open(pages["tagger"])
    browser.evaluate("document.querySelector('[data-chart=loss] svg').focus()")
    spoken = "document.querySelector('[data-chart=loss] svg').getAttribute('aria-valuetext')"
    told = []
    for key in ("Home", "ArrowRight", "ArrowRight", "ArrowLeft", "End"):
        browser.press(key)
        told.append(browser.evaluate(spoken))
    assert told == [
        *("step 1, training 1.000", "step 2, training 0.500", "step 3, training 0.333"),
        *("step 2, training 0.500", "step 29, training 0.034"),
    ]
    browser.press("Escape")
    assert browser.evaluate("document.querySelector('[data-chart=loss] .readout').hidden")


def test_the_legend_hides_a_run_and_the_axis_can_be_time(browser, pages):
    browser.open(pages["both"])
    drawn = "[...document.querySelectorAll('.plot .curve')].filter(curve => curve.checkVisibility())"
    of_run, others = (f"{drawn}.filter(curve => curve.matches('.run-{index}')).length" for index in (1, 0))
    before = browser.evaluate(others)
    assert browser.evaluate(of_run) > 0
    browser.evaluate("document.querySelector('input[data-run=\"1\"]').click()")
    assert browser.evaluate(of_run) == 0
    assert browser.evaluate(others) == before > 0
    browser.evaluate("document.querySelector('input[data-run=\"1\"]').click()")
    assert browser.evaluate(of_run) > 0
    browser.open(pages["run"])
    browser.evaluate("document.querySelector('input[value=minutes]').click()")
    assert browser.evaluate("document.querySelector('[data-chart=loss] .axis').textContent") == "minutes of training"
    assert browser.problems == []


def test_colours_follow_the_system_and_the_button(browser, pages):
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.open(pages["run"], dark=True)
    dark = browser.evaluate(paper)
    browser.open(pages["run"], dark=False)
    light = browser.evaluate(paper)
    assert dark != light
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate(paper) == dark
    browser.evaluate("document.getElementById('theme').click()")
    assert browser.evaluate(paper) == light
