"""The profile's HTML page in a real browser:
``python3 test_page.py TOOL GENESIS [--keep FOLDER] [TEST…]``.

TOOL is the example ``sample_page`` of genesis-profile, which makes the pages. What the page shows
is compared with what ``oracle.py`` computes from the same profile's JSON. GENESIS is the command,
which makes a page of a recorded program. ``--keep`` leaves pages and pictures in a folder; of tests
that are named only those run. Needs Chromium and Python's standard library only.
"""

from __future__ import annotations

import argparse
import bisect
import json
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from browser import Browser, find
from oracle import LEVELS, MISS, Profile, bounds


class Pages:
    """Makes pages with the tool and opens them."""

    def __init__(self, tool: str, genesis: str, folder: Path, browser: Browser):
        self.tool, self.genesis = tool, genesis
        self.folder, self.browser = folder, browser

    def open(self, name: str, events: int, *options: str, with_json: bool = True) -> Profile | None:
        """Opens a page, asserts that it has no problems, and returns its profile."""
        forms = ["html", "json"] if with_json else ["html"]
        for form in forms:
            path = str(self.folder / f"{name}.{form}")
            subprocess.run([self.tool, str(events), path, *options], check=True)
        self.browser.open(self.folder / f"{name}.html")
        self.check()
        return Profile(self.folder / f"{name}.json") if with_json else None

    def check(self) -> None:
        problems = self.browser.problems()
        assert not problems, problems

    def js(self, expression: str) -> Any:
        return self.browser.evaluate(expression)

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """x, y, width and height in the window, scrolled into view."""
        return tuple(
            self.js(
                f"(() => {{ const e = document.querySelector({selector!r});"
                "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
                "return [b.x, b.y, b.width, b.height]; })()"
            )
        )

    def text(self, selector: str) -> str:
        return self.js(f"document.querySelector({selector!r}).innerText")


def close(a: float, b: float, within: float) -> bool:
    return abs(a - b) <= within


def test_it_renders_what_the_profile_says(pages: Pages) -> None:
    profile = pages.open("plain", 20_000)
    device = profile.document["devices"][0]
    assert pages.js("genesis.events") == 20_000
    assert pages.js("genesis.peak(0)") == {name: device["peak"][name] for name in LEVELS}
    titles = "[...document.querySelectorAll('.level .{}')].map((e) => e.title)"
    for kind, levels in (("peak", device["peak"]), ("now", device["now"])):
        assert pages.js(titles.format(kind)) == [f"{levels[name]:,} B" for name in LEVELS]
    assert profile.document["program"] in pages.js("document.title")
    assert pages.text("#program") == profile.document["program"]
    for canvas in ("timeline", "waste", "overview", "map"):
        colours = pages.js(
            f"(() => {{ const c = document.getElementById('{canvas}'); const d = new Uint32Array("
            "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer);"
            "return new Set(d).size; })()"
        )
        assert colours >= 4, f"{canvas} has {colours} colours"
    assert "out of memory" in pages.text("#devices")
    assert pages.js("document.querySelectorAll('#summary tbody tr').length") == 9


def test_every_column_is_right_far_and_near(pages: Pages) -> None:
    profile = pages.open("columns", 3_000)
    levels = profile.levels(0)
    middle = profile.events[1500].time
    for start, end in [
        (0, profile.duration),
        (middle - 200_000, middle + 300_000),
        (middle - 3_000, middle + 3_000),
    ]:
        pages.js(f"genesis.zoom({start}, {end})")
        view = pages.js("genesis.view()")
        assert close(view["from"], start, 1) and close(view["to"], end, 1), view
        width = (view["to"] - view["from"]) / view["columns"]
        for level, name in enumerate(LEVELS):
            drawn = pages.js(f"genesis.drawn('{name.removesuffix('_bytes')}')")
            for column in range(0, view["columns"], 7):
                at = view["from"] + column * width
                expected = bounds(levels, level, at, at + width)
                assert (drawn["low"][column], drawn["high"][column]) == expected, (name, column)
    assert view["isEachEventShown"]
    pages.check()


def test_events_may_be_counted_instead_of_time(pages: Pages) -> None:
    profile = pages.open("events", 20_000, "--kept", "5000")
    levels = profile.levels(0, by_events=True)
    chosen = profile.events[2_000].time
    pages.js(f"genesis.select({chosen}); genesis.axis('events')")
    assert pages.js("genesis.moment()") in (2_001, 2_002), "the moment stays the same"
    assert pages.js("genesis.view()")["to"] == 5_001
    for start, end in ((0, 5_001), (2_000, 2_300)):
        pages.js(f"genesis.zoom({start}, {end})")
        width = (end - start) / (columns := pages.js("genesis.view()")["columns"])
        for level, name in enumerate(LEVELS):
            drawn = pages.js(f"genesis.drawn('{name.removesuffix('_bytes')}')")
            for column in range(1, columns, 11):
                at = start + column * width
                expected = bounds(levels, level, at, at + width)
                assert (drawn["low"][column], drawn["high"][column]) == expected, (name, column)
    for position in (1, 777, 5_000):
        expected = dict(zip(LEVELS, [v for at, v in levels if at <= position][-1]))
        assert pages.js(f"genesis.at({position}).levels") == expected
    x, y, _, height = pages.box("#timeline")
    pages.browser.mouse("moved", x + pages.js("genesis.screen(2200)"), y + height / 2)
    settle(pages)
    assert "event 2,200 (0." in pages.text("#readout"), pages.text("#readout")
    pages.js("genesis.show('site'); genesis.axis('time')")
    assert pages.js("genesis.view()")["to"] == profile.duration
    assert abs(pages.js("genesis.moment()") - chosen) < 2
    pages.check()


def test_who_holds_what_over_time(pages: Pages) -> None:
    profile = pages.open("stacked", 5_000)
    times = [event.time for event in profile.events]
    # The whole run, a part of it, and so few events that most columns have none.
    for start, end in (
        (0, profile.duration),
        (profile.duration // 3, profile.duration // 2),
        (times[2_000], times[2_040]),
    ):
        pages.js(f"genesis.zoom({start}, {end})")
        total = pages.js("genesis.drawn('allocated')")["high"]
        for by in ("site", "size", "stream"):
            pages.js(f"genesis.show('{by}')")
            parts = pages.js("genesis.stacked()")
            assert [sum(column) for column in zip(*(part["bytes"] for part in parts))] == total, by
        pages.js("genesis.show('site')")
        compare_quiet_columns(pages, profile, times, least=20 if end == times[2_040] else 0)
    pages.js("genesis.show('levels')")
    pages.check()


def compare_quiet_columns(pages: Pages, profile: Profile, times: list[int], least: int) -> None:
    """In a column without events each call site holds the same at every moment. There are at least
    ``least`` such columns."""
    parts, view = pages.js("genesis.stacked()"), pages.js("genesis.view()")
    width = (view["to"] - view["from"]) / view["columns"]
    quiet = 0
    for column in range(view["columns"]):
        at = view["from"] + column * width
        if bisect.bisect_right(times, at) == bisect.bisect_right(times, at + width):
            held = sorted((part["bytes"][column] for part in parts), reverse=True)
            assert [size for size in held if size] == profile.holders(0, at), column
            quiet += 1
    assert quiet >= least, f"nothing happens in {quiet} of {view['columns']} columns"


def test_wheel_brush_pan_and_keys(pages: Pages) -> None:
    profile = pages.open("zoom", 20_000)
    browser = pages.browser
    x, y, width, height = pages.box("#timeline")
    at = (x + 0.6 * width, y + height / 2)
    screen = pages.js("genesis.screen(0)"), pages.js(f"genesis.screen({profile.duration})")
    per_pixel = profile.duration / (screen[1] - screen[0])
    under = (at[0] - x - screen[0]) * per_pixel
    browser.mouse("moved", *at)
    for _ in range(3):
        browser.mouse("wheel", *at, deltaX=0, deltaY=-400)
    settle(pages)
    view = pages.js("genesis.view()")
    assert view["to"] - view["from"] < profile.duration / 4, view
    assert close(pages.js(f"genesis.screen({under})") + x, at[0], 2), "the moment stays in place"
    browser.mouse("wheel", *at, deltaX=0, deltaY=-100, modifiers=8)
    settle(pages)
    panned = pages.js("genesis.view()")
    assert close(panned["to"] - panned["from"], view["to"] - view["from"], 2)
    assert panned["from"] != view["from"]

    pages.js("genesis.reset()")
    browser.drag((x + screen[0] + 200, at[1]), (x + screen[0] + 500, at[1]))
    settle(pages)
    view = pages.js("genesis.view()")
    assert close(view["from"], 200 * per_pixel, 1.5 * per_pixel), view
    assert close(view["to"], 500 * per_pixel, 1.5 * per_pixel), view
    browser.drag((x + screen[0] + 500, at[1]), (x + screen[0] + 400, at[1]), modifiers=8)
    settle(pages)
    shift = pages.js("genesis.view()")["from"] - view["from"]
    assert close(shift, 100 * (view["to"] - view["from"]) / (screen[1] - screen[0]), 2 * per_pixel)

    pages.js("document.getElementById('timeline').focus()")
    browser.key("0")
    settle(pages)
    assert close(pages.js("genesis.view()")["to"], profile.duration, 1)
    browser.key("+")
    browser.key("ArrowLeft")
    settle(pages)
    view = pages.js("genesis.view()")
    assert view["to"] - view["from"] < 0.7 * profile.duration and view["to"] < profile.duration
    browser.key("p")
    settle(pages)
    peak = max(levels[1] for _, levels in profile.levels(0))
    moment = pages.js("genesis.moment()")
    assert pages.js(f"genesis.at({moment}).levels.allocated_bytes") == peak
    browser.key(".")
    settle(pages)
    assert pages.js("genesis.moment()") > moment
    browser.key("End")
    settle(pages)
    assert "When the profile was written" in pages.text("#moment-line")
    pages.check()


def test_hovering_tells_exact_values(pages: Pages) -> None:
    profile = pages.open("hover", 20_000)
    levels = profile.levels(0)
    x, y, _, height = pages.box("#timeline")
    for index in (7_000, 12_345, 19_000):
        event = next(event for event in profile.events[index:] if event.action <= MISS)
        pages.js(f"genesis.zoom({event.time - 20_000}, {event.time + 20_000})")
        pages.browser.mouse("moved", x + pages.js(f"genesis.screen({event.time})"), y + height / 2)
        settle(pages)
        said = pages.text("#readout")
        last = bisect.bisect_right([time for time, _ in levels], event.time) - 1
        for value in levels[last][1]:
            assert f"{value:,} B" in said, said
        digits = f"{event.time:010d}"
        assert f"{digits[:-9]}.{digits[-9:-6]} {digits[-6:-3]} {digits[-3:]} s" in said, said
        site = profile.document["sites"][event.site]["frames"][0]
        assert f"{event.address:x}" in said and site["function"] in said, said
    pages.check()


def test_the_map_and_the_holders_of_any_moment(pages: Pages) -> None:
    profile = pages.open("moments", 20_000)
    times = [profile.events[index].time for index in (0, 1, 100, 7_777, 15_000, 17_500, 19_000)]
    for time_ns in [*times, profile.duration]:
        at = pages.js(f"genesis.at({time_ns})")
        live = profile.live(0, time_ns)
        expected = dict(zip(LEVELS, [v for t, v in profile.levels(0) if t <= time_ns][-1]))
        assert at["levels"] == expected
        assert at["live_bytes"] == sum(size for size, _ in live.values()), time_ns
        assert at["live_bytes"] + at["pending_bytes"] == expected["active_bytes"]
        assert at["mapped_bytes"] == expected["reserved_bytes"], time_ns
        assert [holder["bytes"] for holder in at["holders"]] == profile.holders(0, time_ns)
    x, y, _, height = pages.box("#timeline")
    pages.browser.mouse("moved", x + 400, y + height - 60)
    pages.browser.drag((x + 400, y + height - 60), (x + 400, y + height - 60))
    settle(pages)
    moment = pages.js("genesis.moment()")
    assert 0 < moment < profile.duration
    rows = "document.querySelectorAll('#holders tbody tr')"
    shown = pages.js(f"[...{rows}].map((row) => row.cells[1].title)")
    assert shown == [f"{size:,} B" for size in profile.holders(0, moment)]

    x, y, _, _ = pages.box("#map")
    pages.browser.mouse("moved", x + 160, y + 10)
    settle(pages)
    said = pages.text("#readout")
    first = min(profile.live(0, moment))
    assert f"0x{first:x}" in said and f"{profile.live(0, moment)[first][0]:,} B" in said, said
    site = profile.document["sites"][profile.live(0, moment)[first][1]]
    assert site["frames"][0]["function"] in said, said
    pages.check()


def test_a_history_without_its_begin(pages: Pages) -> None:
    profile = pages.open("dropped", 20_000, "--kept", "6000")
    peak = profile.document["devices"][0]["peak"]
    assert pages.js("genesis.peak(0)") == {name: peak[name] for name in LEVELS}
    assert "14,000" in pages.text("#history-note")
    drawn = pages.js("genesis.drawn('allocated')")["high"]
    assert max(drawn) == peak["allocated_bytes"] and all(value is not None for value in drawn)
    for index in (0, 3_000):
        time_ns = profile.events[index].time
        at = pages.js(f"genesis.at({time_ns})")
        assert at["live_bytes"] == sum(size for size, _ in profile.live(0, time_ns).values())
    pages.check()


def test_several_devices_without_sites(pages: Pages) -> None:
    profile = pages.open("devices", 20_000, "--devices", "3", "--no-sites")
    x, y, width, height = pages.box(".device:nth-child(3)")
    pages.browser.drag((x + width / 2, y + height / 2), (x + width / 2, y + height / 2))
    settle(pages)
    assert pages.js("document.querySelectorAll('.device')[2].ariaSelected") == "true"
    peak = profile.document["devices"][2]["peak"]
    assert pages.js("genesis.peak()") == {name: peak[name] for name in LEVELS}
    time_ns = profile.events[15_000].time
    live = profile.live(2, time_ns)
    assert pages.js(f"genesis.at({time_ns}).live_bytes") == sum(size for size, _ in live.values())
    assert "Block size" in pages.text("#holders")
    pages.check()


#: The columns of figures in the table of call sites, computed from the profile's own counts.
FIGURES = (
    lambda counts: counts["allocations"],
    lambda counts: counts["requested_bytes"],
    lambda counts: counts["live_bytes"],
    lambda counts: counts["peak_bytes"],
    lambda counts: counts["lifetime_ns"] / counts["frees"] if counts["frees"] else None,
    lambda counts: counts["hits"] / counts["allocations"] if counts["allocations"] else None,
)
#: This many columns show their exact figure.
IN_FULL = 4


def test_tables_sort_by_every_column(pages: Pages) -> None:
    profile = pages.open("tables", 20_000)
    all_counts = [row["counts"] for row in profile.document["call_sites"]]
    # A row is identified by its exact figures.
    by_figures = {
        tuple(figure(counts) for figure in FIGURES[:IN_FULL]): counts for counts in all_counts
    }
    assert len(by_figures) == len(all_counts) > 5
    for number, figure in enumerate(FIGURES, 1):
        for direction in ("descending", "ascending"):
            pages.js(f"document.querySelectorAll('#summary th button')[{number}].click()")
            head = f"document.querySelectorAll('#summary th')[{number}]"
            if pages.js(f"{head}.ariaSort") != direction:
                pages.js(f"document.querySelectorAll('#summary th button')[{number}].click()")
            assert pages.js(f"{head}.ariaSort") == direction
            rows = pages.js(
                "[...document.querySelectorAll('#summary tbody tr')].map((row) => "
                f"[...row.cells].slice(1, {1 + IN_FULL}).map((c) => c.title || c.textContent))"
            )
            shown = [
                by_figures[tuple(int(text.removesuffix(" B").replace(",", "")) for text in row)]
                for row in rows
            ]
            assert len(shown) == len(all_counts)
            values = [value for value in map(figure, shown) if value is not None]
            assert len(set(values)) > 1, (number, values)
            assert values == sorted(values, reverse=direction == "descending"), (number, values)
    pages.js("document.getElementById('tab-sizes').click()")
    sizes = len(profile.document["sizes"])
    assert f"Show all {sizes:,}" in pages.text("#summary")
    pages.js("document.querySelector('#summary tfoot button').click()")
    assert pages.js("document.querySelectorAll('#summary tbody tr').length") == sizes
    pages.check()


def test_hostile_names_are_only_text(pages: Pages) -> None:
    pages.open("hostile", 5_000, "--hostile")
    assert pages.js("document.title").startswith("</script><script>"), "the title is only text"
    assert pages.js("document.querySelectorAll('img, iframe, script[src]').length") == 0
    assert pages.js("document.scripts.length") == 3
    assert "onerror" in pages.text("#holders")
    x, y, width, height = pages.box("#timeline")
    for part in (0.3, 0.5, 0.7):
        pages.browser.mouse("moved", x + part * width, y + height / 2)
        settle(pages)
    assert pages.js("document.querySelectorAll('img').length") == 0
    assert pages.js("document.title") != "owned"
    pages.check()


def test_nothing_at_all_is_shown(pages: Pages) -> None:
    pages.open("empty", 0)
    assert pages.js("genesis.peak(0).reserved_bytes") == 0
    pages.js("genesis.select(1); genesis.zoom(0, 10)")
    pages.check()


def test_a_recorded_program_of_a_million_events(pages: Pages) -> None:
    """The page's peaks are those that the replay itself reports."""
    trace, page = Path(__file__).with_name("generate.gtr.zst"), pages.folder / "generate.html"
    options = ["--strategy", "Elastic", "--device-memory", "16GiB"]
    subprocess.run([pages.genesis, "timeline", trace, "-o", page, *options], check=True)
    replay = [pages.genesis, "replay", trace, "--json", "--warm", "0", *options]
    report = json.loads(subprocess.run(replay, check=True, capture_output=True).stdout)
    assert report["calls"] > 1_000_000, report["calls"]
    pages.browser.open(page)
    pages.check()
    print_times(pages, page)
    peak = pages.js("genesis.peak(0)")
    assert peak["requested_bytes"] == report["live_peak_bytes"], (peak, report)
    assert peak["reserved_bytes"] == report["cold"]["reserved_peak_bytes"], (peak, report)


def print_times(pages: Pages, page: Path) -> None:
    """Speed is measured and never asserted: the machine may be busy with something else."""
    taken = pages.js("genesis.milliseconds")
    assert taken["toReady"] > 0
    print(f"  {page.stem}: { ({name: round(ms) for name, ms in taken.items()}) } ms")


def test_a_million_events(pages: Pages) -> None:
    pages.open("million", 1_000_000, with_json=False)
    print_times(pages, pages.folder / "million.html")
    peak = pages.js("genesis.profile.devices[0].peak")
    assert pages.js("genesis.peak(0)") == {name: peak[name] for name in LEVELS}
    started = time.monotonic()
    draws = "for (let i = 1; i <= 20; i++) genesis.zoom(0, genesis.profile.duration_ns / i)"
    pages.js(draws)
    print(f"  a frame while zooming: {1000 * (time.monotonic() - started) / 20:.1f} ms")
    started = time.monotonic()
    pages.js("for (let i = 1; i <= 5; i++) genesis.select(genesis.profile.duration_ns / i)")
    print(f"  another moment: {1000 * (time.monotonic() - started) / 5:.1f} ms")
    pages.check()


def settle(pages: Pages) -> None:
    """Waits until the last request has been drawn."""
    next_frame = "new Promise((done) => requestAnimationFrame(done))"
    pages.js(f"{next_frame}.then(() => {next_frame}).then(() => 0)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tool")
    parser.add_argument("genesis")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("tests", nargs="*", help="all of them if none is named")
    arguments = parser.parse_args()
    path = find()
    if path is None:
        print("no Chromium: install it (apt-get install chromium) or set CHROMIUM")
        return 1
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    if arguments.tests:
        tests = {name: tests[name] for name in arguments.tests}
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with Browser(path) as browser:
            pages = Pages(arguments.tool, arguments.genesis, folder, browser)
            for name, test in tests.items():
                started = time.monotonic()
                try:
                    test(pages)
                    outcome = "ok"
                except Exception as error:
                    failed += 1
                    outcome = f"FAILED: {type(error).__name__}: {str(error)[:2000]}"
                    traceback.print_tb(error.__traceback__)
                if arguments.keep:
                    browser.screenshot(folder / f"{name}.png")
                print(f"{name} ... {outcome} ({time.monotonic() - started:.1f} s)", flush=True)
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
