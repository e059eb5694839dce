"""Changes of tokens as events. They are read from the file, which `skep token` changes with or without a server."""

from __future__ import annotations

import asyncio
import logging
import time

from starlette.concurrency import run_in_threadpool

from skep.server.context import done
from skep.server.tokens import Tokens
from skep.service.live import Live

EVERY_S = 0.5
LATE_S = 5.0

log = logging.getLogger("skep")


async def record_changes(tokens: Tokens | None, live: Live) -> None:
    """For ever, if a login is required."""
    while tokens is not None:
        try:
            await record_once(tokens, live)
        except Exception as error:  # It is tried again: the file or the store cannot be written now.
            log.warning("changes of tokens are not recorded: %s", error)
        await asyncio.sleep(EVERY_S)


async def record_once(tokens: Tokens, live: Live) -> None:
    """A change is forgotten once its event is durable: after a crash between the two it is recorded again."""
    for change in await run_in_threadpool(tokens.changes):
        # An old one was made while no server ran.
        when = time.strftime(" at %F %T UTC", time.gmtime(change.at_s)) if change.age_s > LATE_S else ""
        await done(live.note("token", change.text + when, change.by))
        await run_in_threadpool(tokens.forget_change, change.number)
