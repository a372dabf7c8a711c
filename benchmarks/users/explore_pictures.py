"""The pictures of `kir explore` in the documents: `python -m benchmarks.users.explore_pictures` opens the page in Chromium and writes
docs/using/explore-*.jpg."""
from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "using"
PAGES = (("explore-kernel", "skills/experts/gemm/gemm_sm80.cu", "layouts", ("--bind", "skills/bindings/gemm_sm80.toml", "--problem", "gemm")),
         ("explore-lineage", "gemm_sm90", "timeline", ()))
"""Each picture's name, what is opened, the view that is chosen, and options."""
LINE = 40
"""The line of the IR that the keyboard goes to, so that the other sides are marked."""


def main() -> None:
    """Write them all."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, file, view, more in PAGES:
            served = subprocess.Popen([sys.executable, "-c", "from kir.faces.cli import main; main()", "explore", file, "--no-browser", *more],
                                      stderr=subprocess.PIPE, text=True)
            assert served.stderr is not None
            try:
                page = chromium.new_page(viewport={"width": 1600, "height": 1180})
                page.goto(served.stderr.readline().partition(" ")[0])
                page.wait_for_function("/^\\(\\d+ of \\d+\\)$/.test(document.getElementById('count').textContent)", timeout=600_000)
                page.wait_for_function("document.getElementById('sassof').textContent.includes('lines')", timeout=600_000)
                page.focus("#ir")
                for _ in range(LINE):
                    page.keyboard.press("ArrowDown")
                page.click(f"#views [data-tab={view}]")
                page.mouse.move(0, 0)
                page.screenshot(path=FOLDER / f"{name}.jpg", type="jpeg", quality=55)
                page.close()
            finally:
                served.terminate()
                served.wait(20)
        chromium.close()


if __name__ == "__main__":
    main()
