"""The html in a real browser: plots drawn, no request, nothing on the console, odd names shown as text."""

from __future__ import annotations

import re
import subprocess
from html import unescape
from pathlib import Path

import pytest

from kernbench import export
from tests.log.logs import make_log

pytestmark = [pytest.mark.chromium, pytest.mark.timeout(180)]
ODD = "<script>alert(1)</script>"
PROBE = """<script>
document.querySelectorAll("#iterations th")[2].click();
var cells = Array.from(document.querySelectorAll("#iterations tbody tr td:nth-child(3)"));
document.body.dataset.down = cells.map(function (cell) { return cell.dataset.v; }).join(" ");
document.querySelectorAll("#iterations th")[2].click();
cells = Array.from(document.querySelectorAll("#iterations tbody tr td:nth-child(3)"));
document.body.dataset.up = cells.map(function (cell) { return cell.dataset.v; }).join(" ");
var plot = document.querySelector("#trajectory svg").getBoundingClientRect();
var map = document.querySelector("#heatmap svg").getBoundingClientRect();
document.body.dataset.sizes = [plot.width, plot.height, map.width, map.height].map(Math.round).join(" ");
document.body.dataset.shown = document.body.innerText.split("<script>alert(1)</scr" + "ipt>").length - 1;
</script></body>"""


def browse(page: Path, profile: Path) -> tuple[str, str, list[str]]:
    """The page's DOM after its scripts, what stood on the console, and the addresses that were asked for."""
    net = profile / "net.json"
    flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking"
    flags += " --no-first-run --disable-component-update --disable-sync --disable-default-apps --disable-extensions"
    command = ["chromium", *flags.split(), "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"]
    command += ["--enable-logging=stderr", f"--log-net-log={net}", "--window-size=1180,1600"]
    command += ["--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    asked = re.findall(r'"url":"((?:https?|wss?|ftp)://[^"]*)"', net.read_text())
    return done.stdout, console, [url for url in asked if "google" not in url]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    task = make_log(tmp_path / "rms_norm", 14, cases=6, odd=ODD)
    (target,) = export.export(task, tmp_path / "rms_norm" / ".kernbench", "html", tmp_path / "page.html")
    return target


def data(dom: str, name: str) -> str:
    found = re.search(rf'data-{name}="([^"]*)"', dom.split("<body")[1].split(">")[0])
    assert found is not None
    return found[1]


def test_the_page_in_chromium(page: Path, tmp_path: Path) -> None:
    page.write_text(page.read_text().replace("</body>", PROBE))
    dom, console, asked = browse(page, tmp_path / "profile")
    assert console == ""
    assert asked == []
    widths = [int(value) for value in data(dom, "sizes").split()]
    assert min(widths) > 150
    assert dom.count('class="top"') + dom.count('class="dot"') + dom.count('class="wrong" d=') == 14
    assert len(re.findall(r"<rect[^>]* fill=\"rgb", dom)) > 14 * 6
    assert int(data(dom, "shown")) >= 2
    assert ODD in unescape(dom)
    down, up = ([float(value) for value in data(dom, name).split()] for name in ("down", "up"))
    assert down == sorted(down, reverse=True)
    assert up == sorted(up)
    assert len(set(up)) > 10


def test_the_probe_itself_sees_errors_and_requests(page: Path, tmp_path: Path) -> None:
    """A test that cannot fail proves nothing: the same page with a fault of each kind in it."""
    text = page.read_text()
    text = re.sub(r"<meta http-equiv[^>]*>", "", text)
    fault = 'fetch("http://kernbench.invalid/x").catch(function () {}); throw new Error("on purpose")'
    page.write_text(text.replace("</body>", f"<script>{fault}</script></body>"))
    _dom, console, asked = browse(page, tmp_path / "profile")
    assert "on purpose" in console
    assert any("kernbench.invalid" in url for url in asked)
