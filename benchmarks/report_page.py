"""How large a report of many episodes is, and how fast Chromium shows it.

    python benchmarks/report_page.py --episodes 10000

Makes two evaluations of so many synthetic episodes each, writes their report, and opens it in headless
Chromium: seconds to write it, bytes of the file, seconds until it is loaded, and milliseconds that a filter
and a page of the table of all episodes take. Needs Chromium with its driver.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from distrl.evaluator.report.run import write_report
from distrl.workers.envs.chromium import Chromium

FACTORIES = Path(__file__).resolve().parents[1] / "tests" / "evaluator"
MEDIAN_MS = """
    const times = [];
    for (let turn = 0; turn < 9; turn += 1) {
        const start = performance.now();
        %s
        document.body.offsetHeight;
        times.push(performance.now() - start);
    }
    return times.sort((a, b) => a - b)[4];
"""
FILTER = """
    const select = document.querySelectorAll('.filters select')[1];
    select.selectedIndex = 1 + turn % 3;
    select.dispatchEvent(new Event('change'));
"""
TURN = "document.querySelectorAll('.pager button')[1].click();"


def main() -> None:
    """Measures and prints."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=shape)
    parser.add_argument("--episodes", type=int, default=10_000, help="of each of the two evaluations")
    parser.add_argument("--keep", type=Path, help="make it here, and leave it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(arguments.keep or Path(folder), arguments.episodes)


def measure(folder: Path, episodes: int) -> None:
    """Makes the report in `folder` and prints what it costs."""
    sys.path.insert(0, str(FACTORIES))
    from episode_factory import write_evaluation

    results = {
        name: write_evaluation(folder / name, episodes, solved, seed)
        for seed, (name, solved) in enumerate({"before": 0.3, "after": 0.7}.items())
    }
    clock = time.perf_counter()
    page = write_report(folder, "many episodes", results)
    print(f"episodes       2 × {episodes:,}")
    print(f"written in     {time.perf_counter() - clock:.1f} s")
    print(f"size           {page.stat().st_size / 1e6:.1f} MB")
    browser = Chromium((1280, 900))
    try:
        browser.open("about:blank")
        clock = time.perf_counter()
        browser.open(page.as_uri())
        print(f"loaded in      {time.perf_counter() - clock:.2f} s")
        print(f"filter         {browser.run(MEDIAN_MS % FILTER):.0f} ms (median of 9)")
        print(f"next page      {browser.run(MEDIAN_MS % TURN):.0f} ms (median of 9)")
    finally:
        browser.close()


if __name__ == "__main__":
    main()
