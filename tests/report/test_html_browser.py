"""The page in a real browser: it asks for nothing, looks right on a phone and in the dark, and an accessibility checker
finds nothing.

Needs Chromium (Debian: `apt-get install chromium`), the last test also `npm install --prefix .work axe-core`.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from degarble.report.html import render
from degarble.report.interface import Report
from tests.conftest import NOT_HERE
from tests.report.samples import HOSTILE, explained, hostile, layered, many, report_of
from tests.report.test_html_comparison import compared

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
AXE = Path(__file__).parents[2] / ".work" / "node_modules" / "axe-core" / "axe.min.js"
OFFLINE = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--virtual-time-budget=4000",
)
PAGES = {
    "value finding": layered(),
    "symptom": explained(),
    "healthy": report_of(),
    "failure": report_of(failure="no such folder"),
    "many": many(150),
    "comparison": compared(num_layers=30),
    "hostile": hostile(HOSTILE["tag"]),
}
OPEN = "document.querySelectorAll('details').forEach(part => { part.open = true; });"
WIDTHS = """
const wide = [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') && !e.closest('.skip')
  && e.getBoundingClientRect().right > innerWidth + 1);
const of = e => getComputedStyle(e);
document.title = JSON.stringify({
  wide: wide.map(e => e.tagName), scroll: document.documentElement.scrollWidth, inner: innerWidth,
  page: of(document.body).backgroundColor, text: of(document.body).color, max: of(document.body).maxWidth});
"""
SCAN = """
axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']})
  .then(found => { document.title = JSON.stringify(found.violations.map(v => [v.id, v.nodes.map(n => n.target)])); });
"""

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason=f"{NOT_HERE}Chromium (apt-get install chromium), so the HTML page was seen by no browser"
)


def browse(page: Path, *options: str) -> str:
    """The page as the browser has it after a while."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *OFFLINE, *options, "--dump-dom", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def scripted(report: Report, path: Path, script: str) -> Path:
    """The page with a script at its end, and so without its policy."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", render(report))
    path.write_text(text.replace("</body>", f"<script>{OPEN}{script}</script></body>"), encoding="utf-8")
    return path


def title(dom: str) -> str:
    """What the script said."""
    found = re.search(r"<title>(.*?)</title>", dom, flags=re.DOTALL)
    assert found is not None
    return html.unescape(found[1])


class Listener(BaseHTTPRequestHandler):
    """Remembers what it is asked for."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Answer nothing."""
        self.asked.append(self.path)
        self.send_error(404)

    def log_message(self, format: str, *arguments: object) -> None:
        """Be quiet."""


def test_the_policy_stops_requests_and_scripts(tmp_path: Path) -> None:
    """Markup that got in all the same would load nothing and run nothing; without the policy it would do both."""
    server = HTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    evil = f"<img src='{address}/image'><script>document.title = 'run'</script><script src='{address}/script'></script>"
    page = tmp_path / "page.html"
    guarded = render(layered()).replace("</body>", evil + "</body>")
    try:
        page.write_text(guarded, encoding="utf-8")
        assert title(browse(page)).startswith("models/tiny: ") and Listener.asked == []
        page.write_text(re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", guarded), encoding="utf-8")
        assert title(browse(page)) == "run" and sorted(Listener.asked) == ["/image", "/script"]
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("width", "scheme"), [(390, 0), (1280, 1)])
@pytest.mark.parametrize("name", ["value finding", "many", "hostile", "comparison"])
def test_nothing_runs_out_of_the_screen(name: str, width: int, scheme: int, tmp_path: Path) -> None:
    page = scripted(PAGES[name], tmp_path / "page.html", WIDTHS)
    options = (f"--window-size={width},800", f"--blink-settings=preferredColorScheme={scheme}")
    seen = json.loads(title(browse(page, *options)))
    assert seen["wide"] == [] and seen["scroll"] <= seen["inner"], seen
    assert seen["max"] != "none"  # the style sheet is in force
    assert seen["page"] == ("rgb(16, 21, 26)" if scheme == 0 else "rgb(255, 255, 255)")


def test_the_policy_lets_the_style_sheet_through(tmp_path: Path) -> None:
    """With the policy in place no script can tell, so the picture must: the header's bar is red."""
    page, shot = tmp_path / "page.html", tmp_path / "shot.png"
    page.write_text(render(layered()), encoding="utf-8")
    plain = tmp_path / "plain.html"
    plain.write_text(re.sub(r"<style>.*?</style>", "", render(layered()), flags=re.DOTALL), encoding="utf-8")
    browse(page, f"--screenshot={shot}", "--window-size=600,600")
    browse(plain, f"--screenshot={tmp_path / 'plain.png'}", "--window-size=600,600")
    assert shot.read_bytes() != (tmp_path / "plain.png").read_bytes()


needs_axe = pytest.mark.skipif(
    not AXE.exists(),
    reason=f"{NOT_HERE}axe-core (npm install --prefix .work axe-core), so accessibility was not checked",
)


def violations(page: Path, *options: str) -> list[str]:
    """Rules that axe-core finds broken, with the elements."""
    return [str(found) for found in json.loads(title(browse(page, *options)))]


@needs_axe
@pytest.mark.parametrize(("name", "scheme"), [*((name, 1) for name in PAGES), ("value finding", 0)])
def test_an_accessibility_checker_finds_nothing(name: str, scheme: int, tmp_path: Path) -> None:
    page = scripted(PAGES[name], tmp_path / "page.html", axe_script())
    assert violations(page, f"--blink-settings=preferredColorScheme={scheme}") == []


@needs_axe
def test_the_checker_would_find_something(tmp_path: Path) -> None:
    """A picture without words and text too pale to read are named, so that silence above means something."""
    spoil = (
        "document.querySelector('main').innerHTML += '<img src=\"\"><p style=\"color:#ccc;background:#fff\">pale</p>';"
    )
    page = scripted(PAGES["value finding"], tmp_path / "page.html", spoil + axe_script())
    found = " ".join(violations(page, "--blink-settings=preferredColorScheme=1"))
    assert "image-alt" in found and "color-contrast" in found


def axe_script() -> str:
    """The checker, and the call that puts its findings into the title."""
    return AXE.read_text(encoding="utf-8").replace("</script", "<\\/script") + SCAN
