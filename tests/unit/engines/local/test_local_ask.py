"""What is asked of a job, in a folder where the job may have put anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.core.actions import Checkpoint, Tune
from skep.engines.local.ask import FILE, AskedFile, ask
from skep.files.untrusted import decode_as, read_small
from skep.train.asked import Asked


def asked(folder: Path) -> AskedFile | None:
    return decode_as(read_small(folder / FILE), AskedFile)


def test_settings_add_up_and_a_checkpoint_keeps_them(tmp_path: Path) -> None:
    ask(tmp_path, Tune("1", 1, {"batch": 64, "rate": 0.1}))
    ask(tmp_path, Tune("1", 1, {"rate": 0.2}))
    ask(tmp_path, Checkpoint("1", 1))
    found = asked(tmp_path)
    assert found is not None
    assert found.settings == {"batch": 64, "rate": 0.2}
    assert found.save > found.tune > 0
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o644


def test_a_job_hears_of_each_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.train.asked.EVERY_S", 0.0)
    heard = Asked(tmp_path)
    assert not heard.look()
    ask(tmp_path, Tune("1", 1, {"batch": 64}))
    assert not heard.look()
    assert (heard.settings, heard.number > 0) == ({"batch": 64}, True)
    ask(tmp_path, Checkpoint("1", 1))
    assert heard.look()
    assert heard.look(), "until it has saved"
    heard.note_saved()
    assert not heard.look()
    ask(tmp_path, Checkpoint("1", 1))
    assert heard.look()


def test_what_the_job_has_put_there_is_replaced_and_not_followed(tmp_path: Path) -> None:
    own, secret = tmp_path / "own", tmp_path / "secret"
    own.mkdir()
    secret.write_text("keep")
    for name in (FILE, ".asked.new"):
        (own / name).symlink_to(secret)
    ask(own, Checkpoint("1", 1))
    assert asked(own) is not None
    assert secret.read_text() == "keep"
    (own / FILE).write_text('{"save": "x"}')
    ask(own, Checkpoint("1", 1))
    assert asked(own) is not None
    (tmp_path / "link").symlink_to(own)
    with pytest.raises(OSError, match=r"link|directory"):
        ask(tmp_path / "link", Checkpoint("1", 1))


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '{"save": 1}', '{"save": "x", "tune": 0, "settings": {}}'])
def test_a_damaged_file_asks_for_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert not Asked(tmp_path).look()
