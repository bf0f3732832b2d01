"""The playable page of the built site shows what gradclip computes on NumPy, and loads nothing from another host."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from browser.page import Page
from browser.server import SITE, Server, served
from browser.site_only.test_widths import DRAWN, STILL

import gradclip
from gradclip import dialects
from gradclip.explain import explain

ALONE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
GRADIENTS = ("[[3, -4], [0.1, 2]]", "[[0.6, 0.8], [7, -0.5]]")
RULES = [f"{dialect}.{name}" for dialect in dialects.__all__ for name in getattr(dialects, dialect).__all__]
FIRST = {"clip_value_min": "-0.5", "clip_value_max": "1.5"}
ANSWERED = "['answered', 'error', 'failed'].includes(document.getElementById('play').dataset.state)"
SHOWN = (
    """Object.fromEntries([...document.querySelectorAll('#play output')].map(one => [one.name, [one.innerText, one.title]]))"""
)

WIDER = "[...document.querySelectorAll('#play *')].filter(one => one.getBoundingClientRect().right > innerWidth).length"

#: the arrows of the picture, in the units of the longest: its ends are at the given gradient (3, 4)
LINES = """(() => {
  const all = [...document.querySelectorAll('#play line')].map(line => {
    const [x1, y1, x2, y2] = ['x1', 'y1', 'x2', 'y2'].map(name => Number(line.getAttribute(name)));
    return [line.getAttribute('class'), x2 - x1, y1 - y2];
  });
  return all.map(([kind, x, y]) => [kind, ...[3 * x / all[0][1], 4 * y / all[0][2]].map(one => Number(one.toFixed(6)))]);
})()"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as server:
        yield server


@pytest.fixture(scope="module")
def page(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with Page(tmp_path_factory.mktemp("chromium"), ALONE) as page:
        yield page


def opened(page: Page, server: Server, query: Sequence[tuple[str, str]] = (), name: str = "play.html") -> None:
    page.open(f"{server.address}{name}?{urlencode(query)}")
    page.wait(ANSWERED)


@pytest.fixture(scope="module")
def form(page: Page, server: Server) -> Page:
    """The page with this module's gradients in its form."""
    opened(page, server, [("rule", "torch.clip_grad_norm"), *(("g", text) for text in GRADIENTS)])
    return page


def enter(page: Page, **fields: str) -> None:
    """Type texts into the fields of the form, one after the other."""
    for name, text in fields.items():
        page.value(
            f"(() => {{ const field = document.querySelector('#play [name={name}]'); field.value = {json.dumps(text)};"
            " field.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )
    page.wait(ANSWERED)


def value(text: str) -> Any:
    return eval(text, {"inf": math.inf, "nan": math.nan})


def assert_shown(
    page: Page, rule: str, arguments: Mapping[str, str], gradients: Sequence[str], params: Sequence[str] = ()
) -> None:
    """The page shows gradclip's results on NumPy: norms, coefficients, gradients and messages."""
    shown, given = page.value(SHOWN), {name: value(text) for name, text in arguments.items()}
    made = getattr(getattr(dialects, rule.partition(".")[0]), rule.partition(".")[2])(**given)
    weights = [np.array(value(text), float) for text in params] or None
    result = gradclip.clip([np.array(value(text), float) for text in gradients], made, params=weights)
    expected = {f"result{i}": grad for i, grad in enumerate(result.grads, 1)}
    for name, found in (("norm", result.norm), ("coefficient", result.coefficient)):
        each = {f"{name}{i}": one for i, one in enumerate(found, 1)} if isinstance(found, list) else {name: found}
        expected |= each
    assert shown.keys() == expected.keys()
    for name, (text, exact) in shown.items():
        if expected[name] is None:
            assert (text, exact) == ("none: by value", "")
            continue
        np.testing.assert_array_max_ulp(np.array(value(exact), float), np.asarray(expected[name], float), 4)
        np.testing.assert_allclose(value(text), expected[name], rtol=1e-5)
    words = page.value("[...document.querySelectorAll('#play dd > code')].map(one => one.innerText)")
    call = f"gradclip.dialects.{rule}({', '.join(f'{name}={text}' for name, text in arguments.items())})"
    assert {same.code for same in explain(call).equivalents if same.code} <= {*words}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_gives_what_it_gives_on_numpy(form: Page, rule: str) -> None:
    enter(form, rule=rule)
    required = form.value(
        "[...document.querySelectorAll('.play-arguments input')].filter(one => one.value).map(one => one.name)"
    )
    arguments = {name: FIRST.get(name, "1.5") for name in required}
    enter(form, **arguments)
    params = ["[[1, 1], [2, 0.5]]", "[[0.1, 3], [0, 0]]"] if rule == "optax.adaptive_grad_clip" else []
    enter(form, **{f"w{i}": text for i, text in enumerate(params, 1)})
    assert_shown(form, rule, arguments, GRADIENTS, params)


def test_a_bad_limit_shows_gradclip_s_own_words_and_a_good_one_goes_on(form: Page) -> None:
    with pytest.raises(ValueError, match="must not be negative") as raised:
        dialects.keras.clipnorm(-1.0)
    enter(form, rule="keras.clipnorm", clipnorm="-1.0")
    assert form.value("document.querySelector('#play [role=alert]').innerText") == str(raised.value)
    assert form.value(SHOWN) == {}
    enter(form, clipnorm="2.0")
    assert_shown(form, "keras.clipnorm", {"clipnorm": "2.0"}, GRADIENTS)


def test_a_bad_gradient_is_named(form: Page) -> None:
    enter(form, g2="[[1, 2], [3]]")
    alert = form.value("document.querySelector('#play [role=alert]').innerText")
    assert alert.startswith("g2 must be numbers, in lists of the same length.\nReceived: g2=[[1, 2], [3]]\nHint: ")
    enter(form, g2="[1,")
    assert form.value("document.querySelector('#play [role=alert]').innerText").startswith(
        "g2 cannot be read.\nReceived: g2=[1,"
    )
    enter(form, g2=GRADIENTS[1])


def test_the_picture_shows_the_gradients_before_and_after(form: Page) -> None:
    page = form
    enter(page, rule="torch.clip_grad_norm", max_norm="1.0", g1="[3, 4]", g2="[-0.6, 0.8]")
    after = gradclip.clip([np.array([3.0, 4.0]), np.array([-0.6, 0.8])], dialects.torch.clip_grad_norm(1.0)).grads
    *before, first, second = page.value(LINES)
    assert before == [["play-before", 3, 4], ["play-before", -0.6, 0.8]]
    for (kind, *found), expected in zip((first, second), after, strict=True):
        assert kind == "play-after"
        np.testing.assert_allclose(found, expected, atol=2e-6)
    enter(page, g2="[[1, 2], [3, -4]]")
    assert page.value("document.querySelectorAll('#play rect').length") == 12
    assert page.value(LINES) == []
    enter(page, g2="[[nan, 2], [3, -4]]")
    assert page.value("document.querySelectorAll('#play svg').length") == 0


def test_the_address_holds_axes_and_gradients(form: Page, server: Server) -> None:
    page, arguments = form, {"clip_norm": "1.0", "axes": "[1]"}
    gradients = ["[[3, 4], [0.3, 0.4]]", "[[1, 2, 2]]", "[[0]]"]
    page.value("document.querySelector('#play .play-add').click()")
    page.wait(ANSWERED)
    enter(page, rule="tensorflow.clip_by_norm")
    enter(page, **arguments, **{f"g{i}": text for i, text in enumerate(gradients, 1)})
    assert_shown(page, "tensorflow.clip_by_norm", arguments, gradients)
    page.value("document.querySelectorAll('#play .play-tensor button')[1].click()")
    page.wait(ANSWERED)
    enter(page, axes="[0]", g1="[[3, 4], [-3, 0.4]]")
    address = page.value("location.href")
    page.open(f"{server.address}index.html")
    page.open(address)
    page.wait(ANSWERED)
    assert_shown(page, "tensorflow.clip_by_norm", arguments | {"axes": "[0]"}, ["[[3, 4], [-3, 0.4]]", "[[0]]"])


def test_an_address_without_sense_is_said(page: Page, server: Server) -> None:
    opened(page, server, [("rule", "torch.clip_norm"), ("max_norm", "2.0"), ("from", "elsewhere")])
    alert = page.value("document.querySelector('#play [role=alert]').innerText")
    assert alert == "There is no such rule.\nReceived: rule=torch.clip_norm"
    enter(page, norm_type="1.0")
    assert_shown(page, "torch.clip_grad_norm", {"max_norm": "2.0", "norm_type": "1.0"}, ["[3, 4]", "[0.6, 0.8]"])


def test_it_loads_while_it_says_so_and_asks_no_other_host(page: Page, server: Server) -> None:
    server.may_go_on.clear()
    page.events.clear()
    page.open(f"{server.address}zh/play.html")
    page.wait(
        "document.getElementById('play').innerText.startsWith('正在加载 gradclip') && !!document.querySelector('progress')"
    )
    assert page.value(LINES) == [["play-before", 3, 4], ["play-before", 0.6, 0.8]]
    server.may_go_on.set()
    page.wait(ANSWERED)
    assert page.value(SHOWN)["norm"][0] == "5.09902"
    asked = [event["params"]["request"]["url"] for event in page.events if event["method"] == "Network.requestWillBeSent"]
    assert f"{server.address}play/play.js" in asked
    assert [url for url in asked if not url.startswith((server.address, "data:", "blob:"))] == []


@pytest.mark.parametrize(("name", "tab"), [("play.html", "Tutorials"), ("zh/play.html", "教程")])
def test_the_tabs_use_the_language_of_the_page(page: Page, server: Server, name: str, tab: str) -> None:
    page.open(f"{server.address}{name}")
    tabs = page.value("[...document.querySelectorAll('.md-tabs__link')].map(link => link.innerText.trim())")
    assert tabs[2] == "Play"
    assert [text for text in tabs if text.startswith(tab)] == [tabs[3]]


@pytest.mark.parametrize("name", ["gradclip.whl", "worker.js", "pyodide.asm.wasm"])
def test_what_cannot_be_loaded_is_said(page: Page, server: Server, name: str) -> None:
    server.missing = name
    try:
        opened(page, server)
    finally:
        server.missing = ""
    assert page.value("document.getElementById('play').dataset.state") == "failed"
    assert page.value("document.querySelector('#play [role=alert]').innerText").startswith("Python could not be loaded.")


def test_from_a_file_it_says_what_to_do(page: Page) -> None:
    page.open((SITE / "play.html").as_uri())
    assert "python -m http.server" in page.wait("document.getElementById('play').innerText")


def test_without_javascript_it_says_so(page: Page, server: Server) -> None:
    page("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.open(f"{server.address}play.html")
        assert page.value("document.getElementById('play').innerText").startswith("This page needs JavaScript.")
    finally:
        page("Emulation.setScriptExecutionDisabled", value=False)


def test_nothing_is_wider_than_a_phone_or_a_desk(page: Page, server: Server) -> None:
    query = [
        ("rule", "optax.adaptive_grad_clip"),
        ("clipping", "0.123456789"),
        *((key, text) for key in "gw" for text in GRADIENTS),
    ]
    opened(page, server, query)
    assert page.value("document.getElementById('play').dataset.state") == "answered"
    page.value(STILL)
    for width in (390, 1280):
        page("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        page.value(DRAWN)
        assert page.value("innerWidth") == width
        assert page.value("document.documentElement.scrollWidth") <= width
        assert page.value(WIDER) == 0
