"""Clients that submit jobs for ever; the jobs write into a ledger when their tasks start and end."""

from __future__ import annotations

import json
import random
import threading
import time
from pathlib import Path

import httpx
import msgspec
from bench.crash.server import WAIT_S, Server

SCRIPT = """
echo "start $SKEP_TASK" >> {ledger}
{away}sleep {seconds}
echo "end $SKEP_TASK" >> {ledger}
exit {code}
"""
AWAY = "setsid sleep 300 & "
"""Some jobs leave something behind."""


class Made(msgspec.Struct, frozen=True):
    """A job that was submitted."""

    id: str
    code: int
    """That it should end with."""
    tasks: int


class Client(threading.Thread):
    """Submits jobs for ever, each until it has an answer."""

    def __init__(
        self,
        server: Server,
        ledger: Path,
        number: int,
        stopping: threading.Event,
        *,
        longest_s: float = 0.8,
        pause_s: float = 0.5,
    ) -> None:
        super().__init__(daemon=True)
        self.longest_s, self.pause_s = longest_s, pause_s
        self.server = server
        self.ledger = ledger
        self.number = number
        self.stopping = stopping
        self.made: dict[str, Made] = {}
        """By key."""

    def run(self) -> None:
        chance = random.Random(self.number)
        while not self.stopping.is_set():
            key = f"{self.number}-{len(self.made)}"
            self.made[key] = self._submit(key, chance)
            time.sleep(chance.uniform(0.0, self.pause_s))

    def _submit(self, key: str, chance: random.Random) -> Made:
        code, tasks = chance.choice((0, 0, 0, 7)), chance.choice((1, 1, 2, 3))
        away = AWAY if chance.random() < 0.2 else ""
        seconds = round(chance.uniform(0.0, self.longest_s), 2)
        command = SCRIPT.format(ledger=self.ledger, seconds=seconds, code=code, away=away)
        role = {"gpus": chance.choice((1, 1, 2)), "count": tasks, "command": command}
        job = {"name": f"job-{key}", "tasks": {"w": role}, "grace_s": 2, "time_limit_s": 7200}
        body = json.dumps(job).encode()
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        while True:
            try:
                answer = httpx.post(f"{self.server.url}/jobs", content=body, headers=headers, timeout=WAIT_S)
                if answer.status_code == 201:
                    return Made(str(answer.json()["id"]), code, tasks)
                if answer.status_code < 500 and answer.status_code != 429:
                    raise RuntimeError(answer.text)
            except httpx.HTTPError:
                pass
            time.sleep(0.02)
