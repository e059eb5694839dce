"""Frames of WebSockets, and how a command ended."""

from __future__ import annotations

import io

import msgspec
import pytest

from skep.engines.kube.copy_log import drop_last_words
from skep.engines.kube.exec import ExecStatus, masked, messages


def test_messages_in_pieces_of_all_sizes_and_pings() -> None:
    sent: list[bytes] = []
    source = b"\x82\x02\x01a" + b"\x02\x02\x01b" + b"\x89\x01p" + b"\x80\x01c"
    source += (
        b"\x82\x7e\x01\x00"
        + b"\x02" * 256
        + b"\x82\x7f"
        + (70_000).to_bytes(8)
        + b"\x01" * 70_000
        + b"\x88\x02\x03\xe8"
    )
    found = list(messages(io.BytesIO(source + b"\x82\x01x"), sent.append))
    assert [len(each) for each in found] == [2, 3, 256, 70_000]
    assert found[1] == b"\x01bc"
    assert [each[0] for each in sent] == [0x8A, 0x88]
    assert [each[1] for each in sent] == [0x81, 0x82]


def test_a_frame_that_claims_too_much_is_refused() -> None:
    with pytest.raises(OSError, match="a frame of"):
        list(messages(io.BytesIO(b"\x82\x7f" + b"\xff" * 8), print))


def test_the_mask_hides_and_can_be_taken_off() -> None:
    frame = masked(8, b"\x03\xe8")
    assert bytes(byte ^ frame[2 + at % 4] for at, byte in enumerate(frame[6:])) == b"\x03\xe8"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"status": "Success"}', 0),
        ('{"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}', 3),
        ('{"status": "Failure", "message": "no such container"}', None),
        ('{"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "x"}]}}', None),
    ],
)
def test_how_a_command_ended(text: str, code: int | None) -> None:
    assert msgspec.json.decode(text, type=ExecStatus).code == code


@pytest.mark.parametrize(
    ("log", "kept"),
    [
        (b"saved\nrpc error: code = NotFound desc = an error occurred", b"saved\n"),
        (b"rpc error: code = NotFound desc = x", b""),
        (b"rpc error: code = NotFound desc = x\n", b"rpc error: code = NotFound desc = x\n"),
        (b"it said rpc error: code = NotFound desc = x", b"it said rpc error: code = NotFound desc = x"),
    ],
)
def test_the_last_words_of_a_kubelet_are_not_part_of_a_log(tmp_path, log: bytes, kept: bytes) -> None:
    (tmp_path / "log").write_bytes(log)
    drop_last_words(tmp_path / "log")
    assert (tmp_path / "log").read_bytes() == kept
