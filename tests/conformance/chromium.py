"""Headless Chromium measures a page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest
from launched import TIME_LIMIT

_FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
DARK, LIGHT = "--blink-settings=preferredColorScheme=0", "--blink-settings=preferredColorScheme=1"


def installed() -> str:
    """Return the path of the program. Without it the test is skipped; in CI, which installs it, the test fails."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        missing = "Chromium is missing, in which this test renders the page: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def measure(html: str, folder: Path, *flags: str, fragment: str = "", width: int = 1280) -> dict[str, Any]:
    """Measure a page in a frame of this width, with scripts disabled: see ``_MEASURE``."""
    frame = f'<iframe sandbox="allow-same-origin" width="{width}" height="900" srcdoc="{escape(html)}"></iframe>'
    script = f"const fragment = {json.dumps(fragment)};{_MEASURE}"
    page = folder / "measured.html"
    page.write_text(f"<!DOCTYPE html><meta charset=utf-8>{frame}<script>{script}</script>", encoding="utf-8")
    command = [installed(), *_FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)
    found = re.search(r"<pre id=\"measured\">(.*?)</pre>", done.stdout, re.DOTALL)
    assert found, done.stderr
    result: dict[str, Any] = json.loads(unescape(found[1]))
    return result


# Measures the page in the frame: ``view`` is the frame's window, ``page`` its document.
_MEASURE = """
addEventListener("load", () => {
  const view = document.querySelector("iframe").contentWindow, page = view.document;
  if (fragment) view.location.hash = fragment;
  const shown = element => element.getClientRects().length > 0;
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const ground = element => {
    for (; element; element = element.parentElement) {
      const colour = channels(view.getComputedStyle(element).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const linear = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = colour => [0.2126, 0.7152, 0.0722].reduce((sum, weight, i) => sum + weight * linear(colour[i]), 0);
  const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
  const texts = [], outside = [];
  const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement, text = walker.currentNode.data.trim();
    if (!text || !shown(element)) continue;
    const style = view.getComputedStyle(element);
    texts.push({text, size: parseFloat(style.fontSize), contrast: contrast(channels(style.color), ground(element))});
  }
  for (const element of page.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect();
    if (shown(element) && !element.closest(".scroll *") && (box.right > view.innerWidth + 0.5 || box.left < -0.5))
      outside.push(`${element.tagName}.${element.className}`);
  }
  const bottoms = [...page.body.querySelectorAll("*")].filter(shown).map(x => x.getBoundingClientRect().bottom);
  const box = page.querySelector(".scroll");
  const measured = {
    title: page.title, width: view.innerWidth, page: page.documentElement.scrollWidth,
    bottom: Math.max(...bottoms), table: box.scrollWidth, box: box.clientWidth,
    ground: view.getComputedStyle(page.body).backgroundColor, texts, outside,
    cells: [...page.querySelectorAll("td")].filter(shown).map(cell => cell.innerText),
    sections: [...page.querySelectorAll("section.cell")].filter(shown).map(section => section.id),
  };
  const pre = document.createElement("pre");
  pre.id = "measured";
  pre.textContent = JSON.stringify(measured);
  document.body.append(pre);
});
"""
