"""The report's page in a real browser: it draws, filters, opens what it holds, and needs no network."""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest

import sample_results
from draftmark import report
from draftmark.compare import compare
from trees import Arm, ar, code, level, tree

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"

# Notes, in ms from the start of loading, when the list of cells has rows and says how many fit the search.
WATCH = """new MutationObserver((_, watching) => {
  const [row, said] = ["#cells tbody tr", "#cells output"].map((which) => document.querySelector(which));
  if (!row || !said?.textContent) return;
  window.searchable = performance.now();
  watching.disconnect();
}).observe(document, { childList: true, subtree: true });"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver_path = which("chromium"), which("chromedriver")
    if chromium is None or driver_path is None:
        pytest.skip("needs chromium and chromedriver on the path")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # A named driver keeps selenium from looking for one on the network.
    driver = webdriver.Chrome(options, webdriver.ChromeService(driver_path))
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    driver.implicitly_wait(10)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("page"), report.page(*sample_results.quickstart()))


@pytest.fixture(scope="module")
def undecided(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two methods that cannot be told from each other nor from the baseline, which was measured again."""
    arms = [ar(), Arm("one", 1.02), Arm("two", 1.0), ar(repeats="ar-tp1")]
    result = tree([code(), level(4)], arms, spread=0.04, jitter=0.02)
    return saved(tmp_path_factory.mktemp("undecided"), report.page(result, compare(result)))


def saved(folder: Path, html: str) -> str:
    path = folder / "report.html"
    path.write_text(html, encoding="utf-8")
    return path.as_uri()


def opened(browser: Any, url: str, width: int = 1280, scheme: str = "light") -> Any:
    """The browser, once the page at the given width has drawn all its charts."""
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(url)
    browser.find_element("css selector", "html[data-drawn]")
    return browser


def count(browser: Any, selector: str) -> int:
    return int(browser.execute_script("return document.querySelectorAll(arguments[0]).length", selector))


def settled(browser: Any, selector: str, wanted: int) -> bool:
    """Within some seconds there are as many elements as wanted."""
    until = time.monotonic() + 10
    while count(browser, selector) != wanted and time.monotonic() < until:
        time.sleep(0.05)
    return count(browser, selector) == wanted


def requested(browser: Any) -> list[str]:
    """Every address that the page asked for since it was opened, the browser's own pages aside."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event for event in events if event["method"] == "Network.requestWillBeSent"]
    urls = [event["params"]["request"]["url"] for event in sent]
    return [url for url in urls if not url.startswith(("chrome:", "data:"))]


def test_draws_all_without_a_word_and_without_network(browser: Any, quickstart: str) -> None:
    """Every chart is an SVG with marks, the console is silent, and the file itself is all that is read."""
    page = opened(browser, quickstart)
    assert count(page, ".chart svg") == count(page, ".chart") > 0
    assert count(page, ".chart svg .mark-rect path, .chart svg .mark-symbol path") > 50
    assert page.get_log("browser") == []
    assert requested(page) == [quickstart]


def test_big_campaign_draws(browser: Any, tmp_path: Path) -> None:
    """Sixteen services are drawn without a word."""
    page = opened(browser, saved(tmp_path, report.page(*sample_results.big())))
    assert count(page, ".chart svg") == count(page, ".chart") > 50
    assert page.get_log("browser") == []


def test_big_campaign_is_soon_usable(browser: Any, tmp_path: Path) -> None:
    """Sixteen services and their 432 cells can be searched within 3 s of opening the page."""
    page = opened(browser, saved(tmp_path, report.page(*sample_results.big())))
    assert page.execute_script("return window.searchable") < 3_000


@pytest.fixture(scope="module")
def vast(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(tmp_path_factory.mktemp("vast"), report.page(*sample_results.vast()))


def test_five_thousand_cells_are_soon_usable(browser: Any, vast: str) -> None:
    """5,022 cells, quiet and without network: within 3 s their rows are there to search in."""
    page = opened(browser, vast)
    assert page.execute_script("return window.searchable") < 3_000
    page.find_element("xpath", "//*[@id='cells']//output[text()='5022 of 5022 cells']")
    assert page.get_log("browser") == []
    assert requested(page) == [vast]


def test_five_thousand_cells_are_searched_filtered_and_opened(browser: Any, vast: str) -> None:
    """Two hundred rows are shown at once, more on request; one that is not among them is found and opened."""
    page = opened(browser, vast)
    assert settled(page, "#cells tbody tr", 200)
    page.find_element("css selector", "#cells .more").click()
    assert count(page, "#cells tbody tr") == 400
    page.find_element("css selector", "#cells input[type=search]").send_keys("creative-624 ddtree-b27")
    assert settled(page, "#cells tbody tr", 1)
    page.find_element("css selector", "#cells .open").send_keys("\n")
    assert "acceptance length" in page.find_element("css selector", ".closer .pairs").text
    page.find_element("css selector", "#methods input[value=ddtree-b27]").click()
    assert settled(page, "#cells tbody tr", 0)


def test_charts_out_of_sight_are_drawn_when_they_are_reached(browser: Any, vast: str) -> None:
    """Of a hundred charts and more only those nearby are drawn, the others as one comes to them."""
    page = opened(browser, vast)
    assert count(page, ".chart svg, .chart canvas") < count(page, ".chart")
    last = page.find_elements("css selector", ".chart")[-1]
    page.execute_script("arguments[0].scrollIntoView()", last)
    assert last.find_element("css selector", "svg").is_displayed()


def test_heat_map_tells_each_speedup(browser: Any, quickstart: str) -> None:
    """The heat map has a box and a number for each comparison, and the scatter a point."""
    _, comparison = sample_results.quickstart()
    page = opened(browser, quickstart)
    assert count(page, "#fig-heat .mark-rect path") == len(comparison.speedups)
    assert count(page, "#fig-heat .mark-text text") >= len(comparison.speedups)
    assert count(page, "#fig-scatter .mark-symbol path") == len(comparison.speedups)


def test_differing_outputs_stand_side_by_side(browser: Any, quickstart: str) -> None:
    """Both texts of the first difference are shown beside each other where there is room."""
    page = opened(browser, quickstart)
    left, right = page.find_elements("css selector", ".sides pre")[:2]
    assert (left.text, right.text) == ("for item in items:", "for element in items:")
    assert left.location["y"] == right.location["y"]
    assert left.location["x"] < right.location["x"]


def test_method_filter(browser: Any, quickstart: str) -> None:
    """Leaving out a method takes its bars and rows away, and choosing it again brings them back."""
    page = opened(browser, quickstart)
    bars = "#fig-decode-tok-s-prompts .mark-rect path"
    box = page.find_element("css selector", "#methods input[value='ngram-mod']")
    before, rows = count(page, bars), count(page, "tr[data-method='ngram-mod']")
    box.click()
    assert settled(page, bars, before - 5)
    assert count(page, "tr[data-method='ngram-mod']") == 0 < rows
    box.click()
    assert settled(page, bars, before)
    assert count(page, "tr[data-method='ngram-mod']") == rows


def test_hovering_tells_interval_and_n(browser: Any, quickstart: str) -> None:
    """Over a point the page says the method, the cell, the value, its interval and n."""
    page = opened(browser, quickstart)
    point = page.find_element("css selector", "#fig-speedup-prompts .mark-symbol path")
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", point)
    action_chains = pytest.importorskip("selenium.webdriver").ActionChains
    action_chains(page).move_to_element(point).perform()
    said = page.find_element("css selector", "#tip:not([hidden])").text
    assert "ngram-mod, code-128" in said
    assert "×" in said
    assert "95 %" in said
    assert "n = 3 prompts" in said


def test_browse_down_to_a_request(browser: Any, quickstart: str) -> None:
    """A searched cell opens with the keyboard, and a request within it with its text and arrivals."""
    page = opened(browser, quickstart)
    page.find_element("css selector", "#cells input[type=search]").send_keys("ngram-mod json")
    assert count(page, "#cells tbody tr:not([hidden])") == 1
    page.find_element("css selector", "#cells tr:not([hidden]) .open").send_keys("\n")
    page.find_element("css selector", ".requests li:nth-child(2) button").send_keys("\n")
    assert "verifies" in page.find_element("css selector", ".request pre").text
    assert count(page, ".timeline line") > 20
    page.find_element("css selector", "#cells tr:not([hidden]) .open").send_keys("\n")
    assert count(page, ".closer") == 0


def test_a_baseline_that_was_measured_again_is_browsed_too(browser: Any, undecided: str) -> None:
    """Its cell opens as any other, with its requests."""
    page = opened(browser, undecided)
    page.find_element("css selector", "#cells input[type=search]").send_keys("code-256 again")
    assert settled(page, "#cells tbody tr", 1)
    page.find_element("css selector", "#cells .open").send_keys("\n")
    assert count(page, ".requests li") == 5


def test_sorting(browser: Any, quickstart: str) -> None:
    """A click on a column's head sorts by its numbers, a second one the other way round."""
    page = opened(browser, quickstart)
    head = page.find_element("xpath", "//*[@id='cells']//th[contains(., 'decode rate')]/button")
    values = (
        "return [...document.querySelectorAll('#cells tbody tr')]"
        ".map(row => Number(row.cells[5].dataset.sort)).filter(Boolean)"
    )
    head.click()
    rising = page.execute_script(values)
    head.click()
    assert rising == sorted(rising)
    assert page.execute_script(values) == rising[::-1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_fits_any_width(browser: Any, quickstart: str, width: int, scheme: str) -> None:
    """Nothing makes the page wider than the screen, and no chart is wider than its column."""
    page = opened(browser, quickstart, width, scheme)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    overflow = (
        "return [...document.querySelectorAll('.chart')].filter("
        "c => c.querySelector('svg').getBoundingClientRect().width > c.clientWidth + 1).length"
    )
    assert page.execute_script(overflow) == 0


def test_colours_follow_the_scheme(browser: Any, quickstart: str) -> None:
    """In the dark scheme the paper is dark and the text of charts is light."""
    page = opened(browser, quickstart, scheme="dark")
    shade = "return Math.max(...getComputedStyle(arguments[0]).{}.match(/\\d+/g).slice(0, 3).map(Number))"
    body = page.find_element("css selector", "body")
    label = page.find_element("css selector", ".chart text")
    assert page.execute_script(shade.format("backgroundColor"), body) < 60
    assert page.execute_script(shade.format("fill"), label) > 200


def test_hostile_answers_are_shown_and_not_obeyed(browser: Any, tmp_path: Path) -> None:
    """A model's markup is text in the closer look, nothing runs and nothing is fetched."""
    url = saved(tmp_path, report.page(*sample_results.quickstart(HOSTILE)))
    page = opened(browser, url)
    page.find_element("css selector", "#cells .open").click()
    page.find_element("css selector", ".requests button").click()
    assert page.find_element("css selector", ".request pre").text.strip() == HOSTILE
    assert page.execute_script("return window.broken") is None
    assert requested(page) == [url]


def test_the_keyboard_reaches_what_to_deploy(browser: Any, quickstart: str) -> None:
    """The first stop of the tab key skips to the recommendation, whose command line opens without a mouse."""
    page = opened(browser, quickstart)
    page.find_element("css selector", "body").send_keys("\t")
    assert page.switch_to.active_element.get_attribute("href").endswith("#deploy")
    summary = page.find_element("css selector", "#deploy summary")
    summary.send_keys("\n")
    assert "imaginary-server" in page.find_element("css selector", "#deploy pre").text


READ = (".lead", "p:not(.lead)", "td", "td small", ".note", ".unit")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    ("sample", "selectors"), [("quickstart", (*READ, "summary")), ("undecided", (*READ, "td.unsure"))]
)
def test_the_recommendation_can_be_read(
    browser: Any, request: pytest.FixtureRequest, sample: str, selectors: tuple[str, ...], scheme: str
) -> None:
    """Its text stands out from the paper by at least 4.5 to 1, small print and what is in doubt included."""
    page = opened(browser, request.getfixturevalue(sample), scheme=scheme)
    paper = channels(page, page.find_element("css selector", "body"), "backgroundColor")
    for selector in selectors:
        found = page.find_elements("css selector", f"#deploy {selector}")
        assert found, selector
        for text in found:
            assert contrast(channels(page, text, "color"), paper) >= 4.5, selector


def channels(browser: Any, element: Any, what: str) -> list[int]:
    shade = f"return getComputedStyle(arguments[0]).{what}.match(/\\d+/g).slice(0, 3).map(Number)"
    return list(browser.execute_script(shade, element))


def contrast(one: list[int], other: list[int]) -> float:
    """As WCAG 2 defines it."""

    def luminance(color: list[int]) -> float:
        linear = [c / 3294.6 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in color]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_prints(browser: Any, quickstart: str) -> None:
    """The page prints to a document of several pages."""
    page = opened(browser, quickstart)
    data = base64.b64decode(page.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert data.startswith(b"%PDF")
    assert data.count(b"/Type /Page\n") > 3
