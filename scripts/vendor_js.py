"""Put the JavaScript that the report's page is drawn with, at pinned versions, into the package.

Usage: python scripts/vendor_js.py   (needs npm; a version is changed here and nowhere else)
The files are the packages' own minified builds, unchanged, and the licences of all that these builds contain.
"""

import json
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

STATIC = Path(__file__).parent.parent / "src" / "draftmark" / "report" / "static"
PINNED = {
    "vega@6.4.0": "rHXCq2LpEWCLMjXBEj7hocY9G0/i5TGYRayGGSj06VTF4+l2IG2Z7oeZKCjWbUh/7hTE/mVhbaOPB72wCElh6g==",
    "vega-lite@6.5.0": (
        "fMXF6s0MrIg0UTWnLIfeFtgSLzVhyzSKobzGrh5rhS+mL6FOYFG3m7ouJ4U23gj65EK+gl9FIIT5w7wLNaAzkA=="
    ),
    "vega-embed@7.3.0": (
        "wQ8s5GaSzqoKgmRfbRolgBrjE2CP7ZKHXqH7NijxMqPjpdWxSs4Dn8tvp9g0giQvh2cK+3p56sxjWWM0wNngGw=="
    ),
}
"""Package at version, and the SHA-512 of its archive."""
CONTAINED = (
    "d3-*", "vega-*", "topojson-client", "delaunator", "internmap", "robust-predicates", "fast-json-patch",
    "json-stringify-pretty-compact", "semver",
)  # fmt: skip


def install(folder: Path) -> Path:
    """The packages with their dependencies, each archive checked; returns the folder that they lie in."""
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder)]
    subprocess.run(["npm", "install", *options, *PINNED], check=True)
    modules = folder / "node_modules"
    lock = json.loads((modules / ".package-lock.json").read_text())["packages"]
    for package, sha512 in PINNED.items():
        found = lock[f"node_modules/{package.partition('@')[0]}"]["integrity"]
        if found != f"sha512-{sha512}":
            raise SystemExit(f"{package}: the archive is {found}, expected sha512-{sha512}")
    return modules


def licences(modules: Path) -> str:
    """Every licence text once, under the names of the packages that it covers."""
    owners = defaultdict(list)
    for package in sorted({path for pattern in CONTAINED for path in modules.glob(pattern)}):
        for text in package.glob("LICEN[SC]E*"):
            owners[text.read_text().strip()].append(package.name)
    return "\n\n".join(f"{', '.join(names)}\n\n{text}" for text, names in owners.items()) + "\n"


def main() -> None:
    """Install, check and copy."""
    with tempfile.TemporaryDirectory() as folder:
        modules = install(Path(folder))
        for package in PINNED:
            name = package.partition("@")[0]
            (STATIC / f"{name}.min.js").write_bytes(
                (modules / name / "build" / f"{name}.min.js").read_bytes()
            )
            (STATIC / f"LICENSE-{name}").write_bytes((modules / name / "LICENSE").read_bytes())
        (STATIC / "LICENSE-contained").write_text(licences(modules))


if __name__ == "__main__":
    main()
