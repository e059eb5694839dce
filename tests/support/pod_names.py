"""A name server for the pods of a test: `POD.SERVICE.NAMESPACE.svc` is the address of that pod."""

from __future__ import annotations

import json
import re
import socket
import struct
import threading

from skep.engines.kube.api import Api, ApiError

NAME = re.compile(r"([^.]+)\.[^.]+\.([^.]+)\.svc(\.cluster\.local)?")
ADDRESS_TYPE, NO_SUCH_NAME = 1, 3


class PodNames:
    def __init__(self, api: Api, address: str) -> None:
        self.api = api
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 53))
        self.thread = threading.Thread(target=self._serve, name="pod-names", daemon=True)
        self.thread.start()

    def close(self) -> None:
        """The thread ends with the process: nothing wakes it before."""
        self.socket.close()

    def _serve(self) -> None:
        while True:
            try:
                query, client = self.socket.recvfrom(1500)
                self.socket.sendto(self._answer(query), client)
            except OSError:
                return

    def _answer(self, query: bytes) -> bytes:
        words, at = [], 12
        while query[at]:
            words.append(query[at + 1 : at + 1 + query[at]].decode())
            at += 1 + query[at]
        question = query[12 : at + 5]
        (kind,) = struct.unpack_from("!H", query, at + 1)
        found = self._address(".".join(words))
        code = 0 if found else NO_SUCH_NAME
        answers = 1 if found and kind == ADDRESS_TYPE else 0
        head = query[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, answers, 0, 0)
        record = struct.pack("!HHHIH", 0xC00C, ADDRESS_TYPE, 1, 1, 4) + socket.inet_aton(found) if answers else b""
        return head + question + record

    def _address(self, name: str) -> str:
        if (parts := NAME.fullmatch(name.lower())) is None:
            return ""
        try:
            pod = json.loads(self.api.get(f"/api/v1/namespaces/{parts[2]}/pods/{parts[1]}"))
        except ApiError:
            return ""
        return str(pod["status"].get("podIP", ""))
