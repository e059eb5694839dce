"""List and watch: a copy of some objects of the API server that follows every change.

The list is read in pages; the watch continues from its version, and bookmarks keep that version fresh. A version that
the server no longer has (410) means a new list; what vanished in between is reported as deleted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from skep.engines.kube.api import Api, ApiError, ApiStream
from skep.engines.kube.objects import ListMeta, ObjectMeta

PAGE = 1000
WATCH_S = 290
"""The server ends a watch after this time."""
SILENCE_S = 330.0
PAUSES_S = (0.2, 5.0)

log = logging.getLogger(__name__)


class HasMeta(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


Item = TypeVar("Item", bound=HasMeta)


class WatchError(msgspec.Struct, frozen=True, tag_field="type", tag="ERROR"):
    """The last line of a watch that the server gives up. Its object is a `Status`, of another form than the others."""

    object: ErrorCode


class ErrorCode(msgspec.Struct, frozen=True):
    code: int = 0


class KubeWatch(Generic[Item]):
    """`on_change(before, now)`: one of them may be `None`. It is called from the thread of the watch, in order."""

    def __init__(
        self,
        api: Api,
        path: str,
        kind: type[Item],
        on_change: Callable[[Item | None, Item | None], None],
        *,
        is_everywhere: bool = False,
        may_lag: bool = False,
        **query: str,
    ) -> None:
        """`is_everywhere`: names are not unique, so that `items` are by uid. `may_lag`: the first list may be a moment
        old; the API server then answers from its memory, which is many times faster in a large cluster."""
        self.api, self.path, self.query, self.may_lag = api, path, query, may_lag
        self._key: Callable[[ObjectMeta], str] = (lambda meta: meta.uid) if is_everywhere else (lambda meta: meta.name)
        self.items: dict[str, Item] = {}
        self.lists = 0
        self.problem = ""
        self._on_change = on_change
        page = msgspec.defstruct("Page", [("metadata", ListMeta), ("items", list[kind])])  # type: ignore[valid-type]
        self._page: msgspec.json.Decoder[Any] = msgspec.json.Decoder(page)
        change = msgspec.defstruct("Change", [("type", str), ("object", kind)])
        self._change: msgspec.json.Decoder[Any] = msgspec.json.Decoder(change)
        self._closing = threading.Event()
        self._stream: ApiStream | None = None
        self._thread = threading.Thread(target=self._run, name=f"skep-kube-{kind.__name__}", daemon=True)

    def start(self) -> None:
        """Lists first, so that errors are those of the caller, and then watches."""
        self._first = self._list()
        self._thread.start()

    def _list(self) -> str:
        """Everything that is there now; returns its version."""
        found: dict[str, Item] = {}
        more, version = "", ""
        while True:
            query = {**self.query, "limit": PAGE, **({"continue": more} if more else {})}
            if self.may_lag and not self.lists:
                query["resourceVersion"] = "0"
            page = self._page.decode(self.api.get(self.path, **query))
            found |= {self._key(item.metadata): item for item in page.items}
            more, version = page.metadata.next, str(page.metadata.resource_version)
            if not more:
                break
        self.lists += 1
        for name in self.items.keys() - found.keys():
            self._put(name, None)
        for name, item in found.items():
            before = self.items.get(name)
            if before is None or before.metadata.resource_version != item.metadata.resource_version:
                self._put(name, item)
        return version

    def close(self) -> None:
        self._closing.set()
        if self._stream is not None:
            self._stream.close()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def cut(self) -> None:
        """End the present connection; the watch goes on with another one."""
        if self._stream is not None:
            self._stream.close()

    def _put(self, name: str, item: Item | None) -> None:
        before = self.items.pop(name, None) if item is None else self.items.get(name)
        if item is not None:
            self.items[name] = item
        self._on_change(before, item)

    def _run(self) -> None:
        version, pause = self._first, PAUSES_S[0]
        while not self._closing.is_set():
            began = time.monotonic()
            try:
                version = self._follow(version or self._list())
                self.problem = ""
            except ApiError as error:
                if error.status == 410:
                    version = ""
                    continue
                self.problem = str(error)
            except Exception:
                log.exception("the watch of %s failed; it lists again", self.path)
                version = ""
            is_short = time.monotonic() - began < PAUSES_S[0]
            pause = min(pause * 2, PAUSES_S[1]) if self.problem or is_short else PAUSES_S[0]
            self._closing.wait(pause if self.problem or is_short else 0.0)

    def _follow(self, version: str) -> str:
        query = {**self.query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": WATCH_S}
        self._stream = self.api.stream(self.path, idle_s=SILENCE_S, resourceVersion=version, **query)
        if self._closing.is_set():
            self._stream.close()
        for line in self._stream.lines():
            change = self._decode(line)
            meta: ObjectMeta = change.object.metadata
            version = meta.resource_version or version
            if change.type in ("ADDED", "MODIFIED"):
                self._put(self._key(meta), change.object)
            elif change.type == "DELETED":
                self.items[self._key(meta)] = change.object
                self._put(self._key(meta), None)
        return version

    def _decode(self, line: bytes) -> Any:
        try:
            change = self._change.decode(line)
            if change.type != "ERROR":
                return change
        except msgspec.ValidationError:
            pass
        error = msgspec.json.decode(line, type=WatchError)  # fails too if it is none
        raise ApiError(error.object.code, "", "the watch ended with an error")
