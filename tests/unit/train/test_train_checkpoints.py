"""A checkpoint is whole or it is not there; a damaged one is never loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.train.checkpoints import Checkpoints


def save(folder: Path, step: int, launch: int | None = None) -> Checkpoints:
    checkpoints = Checkpoints(folder, launch)
    checkpoints.start(step)
    checkpoints.write(step, "rank-0.bin", {"at": step})
    checkpoints.commit(step, {"world_size": 1}, ["rank-0.bin"])
    return checkpoints


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_latest_is_found_and_the_last_two_are_kept(tmp_path: Path) -> None:
    for step in (1, 20, 300):
        checkpoints = save(tmp_path, step)
    assert names(tmp_path) == ["checkpoint-000002", "checkpoint-000003"]
    found = checkpoints.latest()
    assert found is not None
    assert (found["step"], found["world_size"]) == (300, 1)
    assert checkpoints.read(3, "rank-0.bin") == {"at": 300}
    assert checkpoints.read(3, "rank-1.bin") is None


def test_no_folder_and_an_empty_one_hold_none(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "none").latest() is None
    assert Checkpoints(tmp_path).latest() is None


def test_one_that_was_not_finished_is_not_found_and_cleared_away(tmp_path: Path) -> None:
    save(tmp_path, 1)
    torn = Checkpoints(tmp_path)
    torn.start(2)
    torn.write(2, "rank-0.bin", {"at": 2})
    found = torn.latest()
    assert found is not None
    assert found["step"] == 1
    assert names(tmp_path) == ["checkpoint-000001"]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "how", ["flipped", "shorter", "missing", "manifest flipped", "manifest empty", "manifest missing", "alien"]
)
def test_a_damaged_one_falls_back_to_the_one_before_with_a_warning(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (1, 2):
        checkpoints = save(tmp_path, step)
    damaged = tmp_path / "checkpoint-000002"
    path = damaged / ("manifest.json" if "manifest" in how else "rank-0.bin")
    if "flipped" in how:
        flip(path)
    elif "missing" in how:
        path.unlink()
    elif how == "alien":
        (damaged / "manifest.json").write_text("[1]")
    else:
        path.write_bytes(path.read_bytes()[:-1] if how == "shorter" else b"")
    found = checkpoints.latest()
    assert found is not None
    assert found["step"] == 1
    assert "skep.train: checkpoint-000002 is damaged" in capsys.readouterr().err
    assert names(tmp_path) == ["checkpoint-000001", "damaged-checkpoint-000002"]


@pytest.mark.parametrize("name", ["rank-0.bin", "manifest.json"])
def test_every_single_flipped_bit_is_seen(tmp_path: Path, name: str) -> None:
    save(tmp_path, 2)
    path = tmp_path / "checkpoint-000001" / name
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        assert Checkpoints(tmp_path).latest() is None, content[place:]
        (tmp_path / "damaged-checkpoint-000001").rename(path.parent)
    path.write_bytes(content)
    assert Checkpoints(tmp_path).latest() is not None


def test_a_rank_whose_file_did_not_arrive_is_named(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.start(1)
    checkpoints.write(1, "rank-0.bin", {})
    with pytest.raises(OSError, match=r"rank-1\.bin is missing: the checkpoint folder is not shared"):
        checkpoints.commit(1, {}, ["rank-0.bin", "rank-1.bin"])


def test_the_same_step_can_be_saved_again_and_the_newer_one_counts(tmp_path: Path) -> None:
    save(tmp_path, 5)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.start(5)
    checkpoints.write(5, "rank-0.bin", {"at": "later"})
    checkpoints.commit(5, {}, [])
    found = checkpoints.latest()
    assert found is not None
    assert checkpoints.read(found["number"], "rank-0.bin") == {"at": "later"}


def test_what_an_older_launch_saves_late_neither_counts_nor_replaces_anything(tmp_path: Path) -> None:
    """It goes on, on a node that cannot be reached; a newer launch began from its first checkpoint."""
    save(tmp_path, 10, launch=1)
    save(tmp_path, 11, launch=2)
    for step in (100, 200, 300):
        older = save(tmp_path, step, launch=1)
    for launch in (1, 3):
        found = Checkpoints(tmp_path, launch).latest()
        assert found is not None
        assert found["step"] == 11
    save(tmp_path, 12, launch=2)
    save(tmp_path, 400, launch=1)
    assert names(tmp_path) == ["checkpoint-2000001", "checkpoint-2000002"]
    assert older.read(2000002, "rank-0.bin") == {"at": 12}


def test_what_a_newer_launch_is_writing_is_left_alone_by_an_older_one(tmp_path: Path) -> None:
    newer, older = Checkpoints(tmp_path, 2), Checkpoints(tmp_path, 1)
    for each in (older, newer):
        each.start(5)
        each.write(5, "rank-0.bin", {"by": each._launch})
    older.latest()
    assert names(tmp_path) == ["tmp-2-5"], "that of its own launch is left over from a crash"
    newer.commit(5, {}, ["rank-0.bin"])
    assert newer.read(2000001, "rank-0.bin") == {"by": 2}
    with pytest.raises(OSError, match="No such file"):
        older.write(5, "rank-0.bin", {})


def test_outside_a_launch_it_goes_on_from_the_newest(tmp_path: Path) -> None:
    save(tmp_path, 10, launch=3)
    save(tmp_path, 11)
    found = Checkpoints(tmp_path, 3).latest()
    assert found is not None
    assert (found["step"], found["number"]) == (11, 3000002)


def test_a_damaged_one_that_cannot_be_set_aside_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder is on a file system that can only be read."""
    save(tmp_path, 1)
    checkpoints = save(tmp_path, 2)
    (tmp_path / "checkpoint-000002" / "rank-0.bin").write_bytes(b"torn")

    def refuse(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "rename", refuse)
    found = checkpoints.latest()
    assert found is not None
    assert found["step"] == 1
    assert "checkpoint-000002 stays where it is: Read-only file system" in capsys.readouterr().err
