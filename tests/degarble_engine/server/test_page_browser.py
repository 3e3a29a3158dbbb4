"""The page in headless Chromium: it shows what runs, one can chat in it, text stays text, a checker finds nothing."""

from __future__ import annotations

import html
import json
import re
import subprocess
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from degarble_engine.server import page_routes
from tests.degarble_engine.server.test_process import listening
from tests.report.test_html_browser import AXE, CHROMIUM, OFFLINE, needs_axe
from tests.report.test_html_browser import pytestmark as needs_chromium

pytestmark = [pytest.mark.slow, needs_chromium]
WAIT = """
const wait = (what, then) => what() ? then() : setTimeout(() => wait(what, then), 50);
const tell = value => document.body.append(Object.assign(document.createElement("pre"),
  {id: "told", textContent: JSON.stringify(value)}));
const told = () => tell({
  status: at("status").textContent, blocks: at("blocks-text").textContent, legend: at("legend").textContent,
  turns: [...document.querySelectorAll(".turn")].map(one => [one.className, one.childNodes[1].data, one.lastChild.textContent]),
  markup: document.querySelectorAll(".turn b").length, ran: window.ran === undefined,
  counters: [...document.querySelectorAll("#counters tr")].map(one => [...one.children].map(cell => cell.textContent)),
  wide: document.documentElement.scrollWidth > innerWidth});
"""
CHAT = (
    WAIT
    + """
wait(() => last, () => {
  at("max-tokens").value = 12; at("temperature").value = 0;
  at("message").value = "<b>hello</b><script>window.ran = 1<\\/script>";
  at("chat").requestSubmit();
  wait(() => !running && document.querySelectorAll(".turn").length === 2, () => {
    const before = last; wait(() => last !== before, told);
  });
});
"""
)
STOP = (
    WAIT
    + """
wait(() => last, () => {
  at("max-tokens").value = 1500; at("message").value = "hello"; at("chat").requestSubmit();
  wait(() => running && document.querySelectorAll(".turn")[1].childNodes[1].data, () => {
    at("stop").click(); wait(() => !running, told);
  });
});
"""
)
SCAN = (
    WAIT
    + """
wait(() => last, () => axe.run(document, {resultTypes: ["violations"],
  runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}).then(found => {
    tell(found.violations.map(one => [one.id, one.nodes.map(node => node.target)])); }));
"""
)


def browsed(script: str, *options: str) -> tuple[Any, str]:
    """What a script beside the page's own said, under the page's own policy, and the server's metrics after it."""

    def add_to(app: Starlette) -> None:
        body = page_routes._read("index.html").replace(b"</body>", b'<script src="/test.js"></script></body>')

        async def page(request: Request) -> Response:
            return Response(body, headers=page_routes.HEADERS, media_type="text/html")

        async def extra(request: Request) -> Response:
            return Response(script, media_type="text/javascript")

        app.router.routes += [Route("/test.html", page), Route("/test.js", extra)]

    assert CHROMIUM is not None
    with listening(num_gpu_blocks=500, change=add_to) as (_, address, _service):
        offline = [one for one in OFFLINE if "virtual-time" not in one]
        command = [CHROMIUM, *offline, "--virtual-time-budget=20000", *options, "--dump-dom", f"{address}/test.html"]
        dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
        found = re.search(r'<pre id="told">(.*?)</pre>', dom, flags=re.DOTALL)
        assert found is not None, dom[-2000:]
        return json.loads(html.unescape(found[1])), httpx.get(f"{address}/metrics").text


def test_one_can_chat_and_see_what_runs() -> None:
    seen, metrics = browsed(CHAT, "--window-size=390,800")
    (mine, text, _), (theirs, said, end) = seen["turns"]
    assert (mine, theirs) == ("turn user", "turn assistant") and text.startswith("<b>hello</b><script>")
    assert said and end == "ended: length" and seen["markup"] == 0 and seen["ran"], "text stays text"
    assert "ready" in seen["status"] and "500 blocks of 4 tokens" in seen["blocks"] and "reserved" in seen["legend"]
    assert ["vllm:request_success_total", "length", "1"] in seen["counters"] and not seen["wide"]
    assert 'finished_reason="length"} 1' in metrics


def test_an_answer_can_be_stopped() -> None:
    seen, metrics = browsed(STOP)
    assert seen["turns"][1][2] == "stopped"
    assert 'degarble_disconnected_requests_total{model_name="tiny",engine="0"} 1' in metrics


@needs_axe
@pytest.mark.parametrize("scheme", [0, 1])
def test_an_accessibility_checker_finds_nothing(scheme: int) -> None:
    script = AXE.read_text(encoding="utf-8") + SCAN
    assert browsed(script, f"--blink-settings=preferredColorScheme={scheme}")[0] == []
