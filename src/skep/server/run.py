"""Runs the server: everything it needs, started in an order in which failures do no harm."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator

import msgspec
import uvicorn
import uvloop
from starlette.concurrency import run_in_threadpool

from skep.core.errors import InputError, SkepError
from skep.files.running import RunningProcess
from skep.files.untrusted import raise_limit
from skep.server.app import make_app, make_context
from skep.server.build import build_live
from skep.server.collector import short_pauses
from skep.server.config import Config, ForecastRules, open_socket
from skep.server.context import Context, done
from skep.server.datadir import DataDir
from skep.server.edge import Edge, bounds_for
from skep.server.foresight import Forecasts, setup_of
from skep.server.notify import Notifier
from skep.server.own_log import keep_small
from skep.server.pages import why_missing
from skep.server.schemas import ACTIVE, ENDED, STATES
from skep.server.tokens import Tokens
from skep.service.foreseen import Foresight
from skep.service.live import Live
from skep.service.store import JobFilter

log = logging.getLogger("skep")

GRACE_S = 5
"""How long answers in progress may take when the server stops."""
PAGE = 1000

Say = Callable[[str], None]
MakeLive = Callable[[Config, Say, Callable[[Exception], None]], Live]


def serve(config: Config, say: Say, make_live: MakeLive = build_live) -> None:
    """Serve until a stop is requested. Jobs run on."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    raise_limit()
    with contextlib.ExitStack() as stack:
        stack.enter_context(short_pauses())
        listener = stack.enter_context(contextlib.closing(open_socket(config)))
        data = stack.enter_context(DataDir(config.data))
        config = msgspec.structs.replace(config, port=listener.getsockname()[1])
        tokens = stack.enter_context(contextlib.closing(Tokens(config.data)))
        if config.needs_token and not tokens.list():
            say(f"there is no token yet: `skep token create --user NAME --role admin --data {config.data}` makes one")
        alarm = Alarm()
        herald = Herald(config, data, say)
        live = stack.enter_context(contextlib.closing(make_live(config, say, alarm.ring)))
        if config.forecast is not None:
            stack.enter_context(contextlib.closing(follow_beside(live, config, config.forecast)))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_until_stopped(live, config, tokens, listener, alarm, herald))
        say(farewell(live))
    if alarm.fault is not None:
        raise SkepError(f"the server had to stop: {alarm.fault}")


def follow_beside(live: Live, config: Config, rules: ForecastRules) -> Forecasts:
    """Start the process that forecasts; it ends before the store is closed."""

    def publish(found: Foresight) -> None:
        live.foresight = found

    setup = msgspec.structs.replace(setup_of(live, config), cpu=rules.cpu, samples=rules.samples)
    forecasts = Forecasts(setup, rules.every_s, live.clock, publish)
    forecasts.start()
    return forecasts


async def run_until_stopped(
    live: Live, config: Config, tokens: Tokens, listener: socket.socket, alarm: Alarm, herald: Herald
) -> None:
    loop = asyncio.get_running_loop()
    stopping: list[asyncio.Task[None]] = []

    def shut_down(within_s: float | None) -> None:
        if server.should_exit:  # a second signal: do not wait for clients, and print no errors of cut connections
            server.force_exit = logging.getLogger("uvicorn.error").disabled = True
        stopping.append(loop.create_task(server.stop(context, within_s)))

    edge = Edge(bounds_for(raise_limit()))
    context = make_context(live, config, tokens, shut_down, edge.bounds.log_files)
    server = _Server(context, edge, herald)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, shut_down, None)

    def stop_from_thread() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the server is stopping anyway
            loop.call_soon_threadsafe(shut_down, None)

    alarm.connect(stop_from_thread)
    rotating = loop.create_task(keep_small(config.data))
    await server.serve([listener])
    rotating.cancel()


class Herald:
    """Announces when the server is ready and when it stops: in the data folder, on the terminal, to a service
    manager."""

    def __init__(self, config: Config, data: DataDir, say: Say) -> None:
        self.config = config
        self.data = data
        self.say = say
        self.notifier = Notifier()

    def ready(self) -> None:
        """The file comes last: `skep up -d` shows what was said when it finds it."""
        url = self.config.url
        self.say(f"skep is up at {url} (data in {self.config.data}); stop it with Ctrl-C or `skep down`")
        if (why := why_missing()) is not None:
            self.say(f"{why}; {url} shows how to get it")
        self.data.announce(RunningProcess(os.getpid(), url))
        self.notifier.say("READY=1", f"STATUS=up at {url}")

    def stopping(self) -> None:
        self.notifier.say("STOPPING=1", "STATUS=stopping; jobs run on")


class Alarm:
    """The service cannot continue; it reports this from another thread, perhaps before the server listens."""

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self._notify: Callable[[], object] = lambda: None

    def ring(self, fault: Exception) -> None:
        self.fault = fault
        self._notify()

    def connect(self, notify: Callable[[], object]) -> None:
        self._notify = notify
        if self.fault is not None:
            notify()


class _Server(uvicorn.Server):
    """Uvicorn without its signal handling: it would raise the signals again when it is done."""

    def __init__(self, context: Context, edge: Edge, herald: Herald) -> None:
        self._herald = herald
        settings = uvicorn.Config(
            make_app(context),
            http=edge.protocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=int(edge.bounds.idle_s),
            timeout_graceful_shutdown=GRACE_S,
        )
        super().__init__(settings)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._herald.ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def stop(self, context: Context, within_s: float | None) -> None:
        if within_s is not None and not await stop_all(context.live, within_s):
            return
        self._herald.stopping()
        context.hub.close()
        self.should_exit = True


async def stop_all(live: Live, within_s: float) -> bool:
    """Stop every job that has not ended, and wait for the last one. True if all ended in time."""
    by_s = time.monotonic() + within_s
    where = JobFilter(states=tuple(state for state in STATES if state not in ENDED))
    while jobs := (await run_in_threadpool(live.jobs, where, PAGE, None))[0]:
        ids = [job["id"] for job in jobs if job["state"] != "stopping"]
        for asked in [live.stop(job_id, "skep down", "the server was stopped with its jobs") for job_id in ids]:
            with contextlib.suppress(InputError):  # it may have ended by itself meanwhile
                await done(asked)
        if time.monotonic() > by_s:
            log.warning("skep down --stop-jobs: %d jobs have not ended in %g s; the server stays", len(jobs), within_s)
            return False
        await asyncio.sleep(0.1)
    return True


def farewell(live: Live) -> str:
    counts = live.stats()["jobs"]
    left = sum(counts.get(state, 0) for state in ACTIVE)
    if not left:
        return "skep is down; no job is running"
    jobs, them = (f"{left:,} jobs run on", "them") if left > 1 else ("1 job runs on", "it")
    return f"skep is down; {jobs}, and the next `skep up` adopts {them}"
