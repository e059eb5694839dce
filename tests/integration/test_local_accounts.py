"""Jobs under other accounts than the server's: what they can reach, and what they cannot."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_world import World, reachable_folder, until

from skep.core.actions import Stop
from skep.core.errors import InputError
from skep.core.reports import Exited, Started
from skep.engines.local.accounts import FIRST_NUMBER, Accounts, missing_rights
from skep.jobs.request import Request, TaskRole

pytestmark = pytest.mark.skipif(bool(missing_rights()), reason="accounts cannot be changed here")


@pytest.fixture
def place() -> Iterator[Path]:
    with reachable_folder() as folder:
        yield folder


def job(command: str, user: str = "ann", **rest) -> Request:
    return Request("job", {"main": TaskRole(command=command)}, user=user, **rest)


def world(place: Path, *jobs: Request, run_as: str = "separate") -> World:
    data = place / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    requests = {str(number): each for number, each in enumerate(jobs, 1)}
    return World(data, requests, accounts=Accounts(run_as, data))


def test_each_user_has_a_number_of_its_own_that_stays(place: Path) -> None:
    who = 'echo $(id -u) $(id -g) $(id -G) $USER $LOGNAME; [ "$HOME" = "$PWD" ] && echo home'
    with world(place, job(who, "ann"), job(who, "bob"), job(who, "ann")) as one:
        for number in "123":
            assert one.run(number).code == 0
        ann, bob = (
            f"{n} {n} {n} {name} {name}\nhome\n" for n, name in ((FIRST_NUMBER, "ann"), (FIRST_NUMBER + 1, "bob"))
        )
        assert [one.log(number) for number in "123"] == [ann, bob, ann]
    assert Accounts("separate", place / "data").of("bob").uid == FIRST_NUMBER + 1


def test_a_job_cannot_reach_what_is_the_servers(place: Path) -> None:
    """Nor look into its shim, nor end it."""
    attack = f"""
    cd {place}/data 2>/dev/null && echo entered
    for file in tokens.db skep.db accounts.json jobs/1/1/main-0/exit.json jobs/1/1/main-0/control reports; do
        ( : >> {place}/data/$file ) 2>/dev/null && echo wrote $file
    done
    cat /proc/$PPID/environ 2>/dev/null && echo read the shim
    kill -9 $PPID 2>/dev/null && echo killed the shim
    kill -9 {os.getpid()} 2>/dev/null && echo killed the server
    mkdir $SKEP_TASK_DIR/../other 2>/dev/null && echo made a folder
    mv $SKEP_TASK_DIR $SKEP_TASK_DIR.away 2>/dev/null && echo moved a folder
    grep -q 'NoNewPrivs:.1' /proc/self/status || echo may gain rights
    grep -q 'CapEff:.0000000000000000' /proc/self/status || echo has rights
    ls /proc/self/fd | grep -v '^[0123]$'
    exit 7
    """
    with world(place, job(attack)) as one:
        (place / "data/tokens.db").write_text("")
        (place / "data/tokens.db").chmod(0o666)
        assert one.run().code == 7
        assert one.log() == ""
        assert (place / "data/tokens.db").read_text() == ""


def test_users_cannot_read_from_each_other(place: Path) -> None:
    secret = job("echo mine > $SKEP_TASK_DIR/a; echo mine > $SKEP_CHECKPOINT_DIR/b; echo mine > c; echo on; sleep 60")
    files = "JOBS/1/checkpoint/b JOBS/1/work/c JOBS/1/1/main-0/own/a"
    look = f"cat /proc/PID/environ; cat {files}; find JOBS DATA -type f; kill PID"
    with world(place, secret, job(look, "bob"), job(look, "ann")) as one:
        one.start()
        assert until(lambda: one.log() == "on\n")
        main = (one.task() / "main").read_text()
        look = look.replace("PID", main).replace("JOBS", str(one.engine.folder.own)).replace("DATA", str(one.folder))
        one.requests |= {"2": job(f"( {look} ) 2>/dev/null", "bob"), "3": job(f"( {look} ) 2>/dev/null", "ann")}
        one.run("2")
        assert one.log("2") == ""
        assert one.of(Exited, "1") == []
        one.run("3")  # The same look of the same user sees it all: the one above did look.
        assert one.log("3").count("mine\n") == 3
        assert one.wait(Exited, "1").code == 143


def test_it_keeps_its_checkpoints_from_start_to_start(place: Path) -> None:
    command = "cd $SKEP_CHECKPOINT_DIR; cat step; echo 5 > step; echo '{\"step\": 5}' > $SKEP_TASK_DIR/progress.json"
    with world(place, job(command)) as one:
        one.run()
        assert one.engine.progress("1") == {"step": 5}
        one.launch("1", 2)
        one.wait(Exited, "1", count=2)
        assert one.log() == "5\n"
        one.engine.forget("1")
        left = (one.engine.folder.own, one.engine.folder.jobs)
        assert until(lambda: not [path for folder in left for path in folder.iterdir() if path.name != "python"])


def test_checkpoints_come_along_when_jobs_change_their_account(place: Path) -> None:
    command = "cd $SKEP_CHECKPOINT_DIR; cat sub/step; mkdir -p sub; id -u >> sub/step; stat -c %u . sub"
    me = os.getuid()
    for launch, run_as, uid, steps in (
        (1, "server", me, ""),
        (2, "separate", FIRST_NUMBER, f"{me}\n"),
        (3, "server", me, f"{me}\n{FIRST_NUMBER}\n"),
    ):
        with world(place, job(command), run_as=run_as) as one:
            one.launch("1", launch)
            assert one.wait(Exited).code == 0
            assert one.log().startswith(steps + (f"{uid}\n{uid}\n" if uid != me else ""))


def test_a_folder_it_may_not_enter_is_said(place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    with world(place, job("true", workdir=str(closed))) as one:
        assert one.run().code == 126
        assert one.log() == f"skep: cannot enter the folder '{closed}' as account ann: Permission denied\n"


def test_a_program_it_may_not_run_is_said(place: Path) -> None:
    shutil.copy("/bin/true", place / "mine")
    (place / "mine").chmod(0o700)
    request = Request("job", {"main": TaskRole(argv=(str(place / "mine"),))}, user="ann")
    with world(place, request) as one:
        assert one.run().code == 126
        assert f"cannot run '{place}/mine' as account ann: Permission denied" in one.log()


@pytest.mark.parametrize("program", ["train.py", "folder"])
def test_a_file_that_no_account_may_run_is_not_executable(place: Path, program: str) -> None:
    (place / "train.py").write_text("#!/usr/bin/env python3\n")
    (place / "folder").mkdir()
    request = Request("job", {"main": TaskRole(argv=(f"./{program}",))}, user="ann", workdir=str(place))
    with world(place, request) as one:
        assert one.run().code == 126
        assert f"cannot run './{program}' as account ann: it is not executable" in one.log()


def test_as_a_named_account_or_as_the_submitter(place: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    who = "echo $(id -u) $HOME $USER"
    expected = f"{nobody.pw_uid} {nobody.pw_dir} nobody\n"
    with world(place, job(who, "ann"), run_as="account:nobody") as one:
        one.run()
        assert one.log() == expected
    with world(
        place, job("true"), job(who, "nobody"), job(who, "no-such"), job(who, "root"), run_as="submitter"
    ) as one:
        one.run("2")
        assert one.log("2") == expected
        one.launch("3")
        assert one.failure("3") == "there is no account 'no-such' on this machine"
        one.launch("4")
        assert one.failure("4") == "jobs do not run as root, the account of the server"


@pytest.mark.parametrize("run_as", ["account:no-such", "account:root"])
def test_an_account_that_will_not_do_is_refused_at_once(place: Path, run_as: str) -> None:
    with pytest.raises(InputError, match=r"no account 'no-such'|do not run as root"):
        Accounts(run_as, place)


def test_a_place_that_accounts_cannot_reach_is_refused(place: Path) -> None:
    place.chmod(0o700)
    with pytest.raises(InputError, match=f"cannot reach {place}/x, as {place} is closed"):
        Accounts("separate", place / "data", str(place / "x"))


def test_it_is_stopped_and_adopted_like_any_other(place: Path) -> None:
    one = world(place, job("trap 'exit 9' TERM; sleep 60 & echo on; wait"))
    one.start()
    assert until(lambda: one.log() == "on\n")
    one.engine.close()
    with world(place, one.requests["1"]) as two:
        two.launch()
        two.wait(Started)
        two.do(Stop("1", "preempted"))
        assert (told := two.wait(Exited)).was_stopped
        assert told.code == 9


def test_a_killed_shim_of_another_account_leaves_nobody(place: Path) -> None:
    with world(place, job("setsid sleep 987 & echo on; sleep 60")) as one:
        one.start()
        assert until(lambda: one.log() == "on\n")
        os.kill(one.shim(), 9)
        assert one.wait(Exited).code == 137


def test_umask_and_limits_are_those_of_an_ordinary_process(place: Path) -> None:
    assert sys.platform == "linux"
    before = os.umask(0o077)  # As the server has it.
    try:
        with world(place, job("umask; touch x; stat -c %a x")) as one:
            one.run()
            assert one.log() == "0022\n644\n"
    finally:
        os.umask(before)
