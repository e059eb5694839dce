"""The account that a job runs as, if the server has the right to choose.

`server`          as the server, the only way if it may not change accounts
`submitter`       as the account with the name of the job's user
`account:NAME`    all jobs as this account
`separate`        each user under a separate user number, which belongs to no account
"""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from pathlib import Path

import msgspec

from skep.core.errors import InputError
from skep.engines.local.disk import write_whole
from skep.files.untrusted import decode_as, read_small

SERVER, SUBMITTER, SEPARATE, ACCOUNT = "server", "submitter", "separate", "account:"
FIRST_NUMBER, LAST_NUMBER = 50_000, 59_999
"""User numbers for `separate`: below those that systemd uses, and within those available in containers."""
NEEDED = {"CAP_CHOWN": 0, "CAP_DAC_OVERRIDE": 1, "CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
SHARED = Path("/var/lib/skep-jobs")
"""For folders of jobs whose accounts cannot reach a place beside the data folder."""
RECORD = "accounts.json"
ROOT_HINT = "start the server as root, or with AmbientCapabilities=" + " ".join(NEEDED) + " under systemd"


class Account(msgspec.Struct, frozen=True):
    name: str
    uid: int
    gid: int
    groups: list[int] = []
    home: str = ""
    """Empty: the job's working folder."""


class Given(msgspec.Struct):
    """What must not change: where the folders of jobs are, and the number of each user."""

    job_files: str = ""
    numbers: dict[str, int] = {}


class Accounts:
    def __init__(self, run_as: str = SERVER, data: Path = Path(), job_files: str = "", umask: int = 0o022) -> None:
        """`job_files`: where jobs of other accounts have their folders; empty for the default place."""
        self.run_as = run_as
        self.umask = umask
        self._file = data / RECORD
        self._given = decode_as(read_small(self._file, 1 << 24), Given) or Given()
        self._one: Account | None = None
        if self.differ:
            check_rights(run_as)
            if run_as.startswith(ACCOUNT):
                self._one = named(run_as.removeprefix(ACCOUNT))
            self._choose_folder(data, job_files)

    @property
    def differ(self) -> bool:
        """True if jobs run as another account than the server."""
        return self.run_as != SERVER

    @property
    def job_files(self) -> Path | None:
        """Where jobs of other accounts have, or had, their folders; the server's own are in its data folder."""
        return Path(self._given.job_files) if self._given.job_files else None

    def of(self, user: str) -> Account | None:
        """None: the account of the server."""
        if self.run_as == SEPARATE:
            number = self._number(user)
            return Account(user or "skep", number, number)
        if self.run_as == SUBMITTER:
            return named(user)
        return self._one

    def _number(self, user: str) -> int:
        if user not in self._given.numbers:
            taken = set(self._given.numbers.values())
            free = (n for n in range(FIRST_NUMBER, LAST_NUMBER + 1) if n not in taken and not has_account(n))
            number = next(free, None)
            if number is None:
                raise InputError(f"no user number between {FIRST_NUMBER} and {LAST_NUMBER} is left for {user!r}")
            self._given.numbers[user] = number
            self._save()
        return self._given.numbers[user]

    def _choose_folder(self, data: Path, wanted: str) -> None:
        folder = Path(wanted or self._given.job_files or usual_folder(data))
        try:
            for above in [each for each in reversed(folder.parents) if not each.exists()]:
                make_passage(above, is_open=True)
            make_passage(folder, is_open=True)
        except OSError as error:
            raise InputError(f"job_files: {folder} cannot be used: {error.strerror}") from None
        if (closed := first_closed(folder)) is not None:
            raise InputError(
                f"job_files: accounts of jobs cannot reach {folder}, as {closed} is closed to them",
                hint=f"`chmod o+x {closed}`, or another folder",
            )
        if str(folder) != self._given.job_files:
            self._given.job_files = str(folder)
            self._save()

    def _save(self) -> None:
        write_whole(str(self._file), msgspec.json.encode(self._given).decode(), is_durable=True)


def check_run_as(value: str) -> str | None:
    """The problem with this setting, if any."""
    if value in (SERVER, SUBMITTER, SEPARATE) or (value.startswith(ACCOUNT) and value != ACCOUNT):
        return None
    return f"{SERVER}, {SUBMITTER}, {SEPARATE} or {ACCOUNT}NAME"


def check_rights(run_as: str) -> None:
    if missing := missing_rights():
        raise InputError(f"run_as: {run_as} needs rights that this server lacks: {', '.join(missing)}", hint=ROOT_HINT)


def missing_rights() -> list[str]:
    """The capabilities that are needed to run jobs as another account and to control them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    have = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)
    return [name for name, bit in NEEDED.items() if not have >> bit & 1]


def named(name: str) -> Account:
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise InputError(
            f"there is no account {name[:80]!r} on this machine", hint=f"`useradd --system --create-home {name[:80]}`"
        ) from None
    if found.pw_uid in (0, os.geteuid()):
        raise InputError(f"jobs do not run as {name}, the account of the server", hint="choose another account")
    groups = os.getgrouplist(found.pw_name, found.pw_gid)
    return Account(found.pw_name, found.pw_uid, found.pw_gid, groups, found.pw_dir)


def has_account(number: int) -> bool:
    try:
        pwd.getpwuid(number)
    except KeyError:
        return False
    return True


def usual_folder(data: Path) -> Path:
    """Beside the data folder, or a shared folder if accounts of jobs cannot reach that."""
    if first_closed(data.parent) is None:
        return data.with_name(f"{data.name}-jobs")
    return SHARED / f"{data.name}-{hashlib.sha256(os.fsencode(data)).hexdigest()[:12]}"


def first_closed(folder: Path) -> Path | None:
    """The first folder on the way there, itself included, that other accounts may not enter."""
    way = [*reversed(folder.resolve().parents), folder.resolve()]
    return next((each for each in way if not each.stat().st_mode & stat.S_IXOTH), None)


def make_passage(folder: Path, *, is_open: bool) -> None:
    """A folder of the server on the way to one of a job."""
    folder.mkdir(exist_ok=True, mode=0o700)
    if is_open:
        folder.chmod(0o711)


def give(folder: Path, account: Account | None) -> None:
    """Give a folder, and everything below it that belonged to another account, to its account alone."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if account is None or folder.lstat().st_uid == account.uid:
        return
    before = folder.lstat().st_uid
    for root, _, files, at in os.fwalk(folder):
        for name in files:
            if os.lstat(name, dir_fd=at).st_uid == before:  # Other entries may be links to files of others.
                os.chown(name, account.uid, account.gid, dir_fd=at, follow_symlinks=False)
        if root != str(folder):
            os.fchown(at, account.uid, account.gid)
    os.chown(folder, account.uid, account.gid, follow_symlinks=False)  # Last, because it marks the rest as done.
