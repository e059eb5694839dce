"""Reports of `skep.train` in pods: a listener of its own, for pods alone.

A pod posts its progress with the token of its launch, and gets the requests to its job as the answer. Both are kept in
the files of the task, where those of a task of this machine are too.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import msgspec

from skep.core.actions import Setting
from skep.engines.local.ask import FILE
from skep.engines.local.disk import write_whole
from skep.files.untrusted import read_small

BODY_MAX = 1 << 20
METRICS_MAX = 16 << 20
AT_ONCE = 64
IDLE_S = 20.0
PORT = 7438
CONFLICT = 409


class PodReport(msgspec.Struct, frozen=True):
    progress: dict[str, Setting] | None = None
    at: int = 0
    """Where `metrics` begin in the pod's file."""
    metrics: str = ""


class ReportTokens:
    """A token says which launch a report is about, and cannot be made without the server's key."""

    def __init__(self, folder: Path) -> None:
        path = folder / "report.key"
        if not path.exists():
            write_whole(str(path), secrets.token_hex(32), is_durable=True)
        self._key = path.read_bytes()

    def of(self, job_id: str, launch: int) -> str:
        return hmac.new(self._key, f"{job_id}\0{launch}".encode(), hashlib.sha256).hexdigest()

    def fits(self, job_id: str, launch: int, token: str) -> bool:
        return hmac.compare_digest(self.of(job_id, launch).encode(), token.encode(errors="replace"))


def report_path(job_id: str, launch: int, task: str) -> str:
    return f"/reports/{quote(job_id, safe='')}/{launch}/{quote(task, safe='')}"


class ReportListener(ThreadingHTTPServer):
    """`folder_of` gives the folder of a task that runs, None for any other; `tell` gets its progress."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        url: str,
        tokens: ReportTokens,
        folder_of: Callable[[str, int, str], Path | None],
        tell: Callable[[str, int, dict[str, Setting]], None],
    ) -> None:
        self.tokens, self.folder_of, self.tell = tokens, folder_of, tell
        self.places = threading.BoundedSemaphore(AT_ONCE)
        super().__init__(("", urlsplit(url).port or PORT), ReportHandler)
        threading.Thread(target=self.serve_forever, name="skep-kube-reports", daemon=True).start()

    def receive(self, job_id: str, launch: int, task: str, report: PodReport) -> bytes | None:
        """The requests to the job; None if this launch does not run."""
        folder = self.folder_of(job_id, launch, task)
        if folder is None:
            return None
        if report.metrics:
            keep_metrics(folder / "metrics.jsonl", report.at, report.metrics.encode())
        if report.progress is not None:
            write_whole(str(folder / "progress.json"), msgspec.json.encode(report.progress).decode())
            self.tell(job_id, launch, report.progress)
        return read_small(folder / FILE) or b"{}"

    def close(self) -> None:
        self.shutdown()
        self.server_close()


def keep_metrics(path: Path, at: int, lines: bytes) -> None:
    """A report that came twice is kept once."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if at <= os.fstat(fd).st_size < METRICS_MAX:
            os.pwrite(fd, lines, at)
    finally:
        os.close(fd)


class ReportHandler(BaseHTTPRequestHandler):
    server: ReportListener
    timeout = IDLE_S

    def do_POST(self) -> None:
        if not self.server.places.acquire(blocking=False):
            self.reply(503, b"")
            return
        try:
            self.reply(*self.handle_report())
        finally:
            self.server.places.release()

    def handle_report(self) -> tuple[int, bytes]:
        words = urlsplit(self.path).path.split("/")
        size = self.headers.get("Content-Length", "")
        if len(words) != 5 or words[1] != "reports" or not words[3].isdecimal() or not size.isdecimal():
            return 404, b""
        job_id, launch, task = unquote(words[2]), int(words[3]), unquote(words[4])
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if int(size) > BODY_MAX:
            return 413, b""
        if not self.server.tokens.fits(job_id, launch, token):
            return 401, b""
        try:
            report = msgspec.json.decode(self.rfile.read(int(size)), type=PodReport)
        except msgspec.MsgspecError:
            return 400, b""
        asked = self.server.receive(job_id, launch, task, report)
        return (200, asked) if asked is not None else (CONFLICT, b"")

    def reply(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    def log_message(self, *words: object) -> None:
        """A pod that reports is nothing to log."""
