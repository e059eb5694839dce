"""The identity of the caller, and what the caller may do."""

from __future__ import annotations

import msgspec

from skep.core.errors import InputError
from skep.core.model import DEFAULT_VC
from skep.jobs.limits import LimitRules
from skep.jobs.request import Request
from skep.server.tokens import NAME, Tokens
from skep.service.sight import EVERYTHING, Sight
from skep.service.values import Json

TRIAL = "anonymous"


class Forbidden(Exception):
    """A refusal: its status, one line, a hint."""

    def __init__(self, status: int, message: str, hint: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.hint = hint
        self.headers = headers


class Identity(msgspec.Struct, frozen=True):
    """The sender of a request. Without tokens everything is allowed, and `who` is what the client claims.

    `sight` is what it may read; the `must_…` methods check what it may do, and raise `Forbidden`.
    """

    who: str
    role: str
    vcs: tuple[str, ...] = ()
    """The VCs of the token; empty: every VC."""
    token_id: str = ""
    """The token by which it was verified; its streams end when that is revoked or expires."""

    @property
    def user(self) -> str:
        """The user whose jobs are submitted; a request without a user may name one in the job file."""
        return "" if self.who == TRIAL else self.who

    @property
    def sight(self) -> Sight:
        return Sight(frozenset(self.vcs)) if self.vcs and self.role != "admin" else EVERYTHING

    def must_be_admin(self, what: str) -> None:
        if self.role != "admin":
            raise Forbidden(403, f"{what} needs a token of role admin; this one is of role {self.role}")

    def must_see_everything(self, what: str) -> None:
        if not self.sight.is_whole:
            raise Forbidden(403, f"{what} needs a token for every VC", f"this one is for {', '.join(self.vcs)}")

    def must_write(self) -> None:
        if self.role == "viewer":
            raise Forbidden(403, "this token only reads (role viewer)")

    def homed(self, requests: list[Request]) -> list[Request]:
        """The same request; a job without a VC goes to the only VC of the token."""
        if len(self.vcs) != 1 or self.role == "admin":
            return requests
        vc = self.vcs[0]
        return [msgspec.structs.replace(each, vc=vc) if each.vc == DEFAULT_VC else each for each in requests]

    def must_submit(self, requests: list[Request], limits: LimitRules) -> None:
        """Check the VCs of the token; that a job has the name of its submitter is checked when the job is read."""
        self.must_write()
        if self.role == "admin":
            return
        for request in requests:
            self._must_have_vc(request.vc)
            self.must_prioritise(request.priority, request.vc, limits)

    def must_prioritise(self, priority: int, vc: str, limits: LimitRules) -> None:
        most = limits.of_task(self.who, vc).priority
        if most is not None and priority > most and not self.leads(vc):
            hint = "admins and owners of the VC may give more; `limits` in the config file sets it"
            raise Forbidden(403, f"priority {priority} is above {most}, the limit of {self.who} in VC {vc}", hint)

    def must_own(self, job: Json) -> None:
        """For what belongs to the submitter alone, such as secrets."""
        self.must_write()
        if self.role == "admin":
            return
        if job["user"] != self.who:
            raise Forbidden(403, f"job {job['id']} belongs to {job['user'] or 'an unnamed user'}, not to {self.who}")
        self._must_have_vc(job["vc"])

    def must_change(self, job: Json) -> None:
        """One's own jobs; owners of a VC may change all jobs in it."""
        if not self.leads(job["vc"]):
            self.must_own(job)

    def owns(self, job: Json) -> bool:
        try:
            self.must_own(job)
        except Forbidden:
            return False
        return True

    def leads(self, vc: str) -> bool:
        """True if it may change all jobs of this VC."""
        return self.role == "admin" or (self.role == "owner" and vc in self.vcs)

    def _must_have_vc(self, vc: str) -> None:
        if self.vcs and vc not in self.vcs:
            raise Forbidden(403, f"this token is not for VC {vc}", f"it is for {', '.join(self.vcs)}")


def identify(headers: dict[bytes, bytes], tokens: Tokens | None) -> Identity:
    """From the headers alone: a token in a URL would end up in logs and histories."""
    if tokens is None:
        return Identity(said_user(headers), "admin")
    scheme, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    token = tokens.find(secret.strip()) if scheme.lower() == "bearer" else None
    if token is None or token.is_expired:
        problem = "this token is not valid" if scheme else "this server needs a token"
        problem = "this token has expired" if token is not None else problem
        hint = "`skep token create --user NAME --role user` makes one; clients send SKEP_TOKEN"
        raise Forbidden(401, problem, hint, {"www-authenticate": "Bearer"})
    return Identity(token.user, token.role, token.vcs, token.id)


def said_user(headers: dict[bytes, bytes]) -> str:
    said = headers.get(b"x-skep-user", b"").decode("latin-1")
    if said and not NAME.fullmatch(said):
        raise InputError("X-Skep-User is not a valid user name", hint="up to 64 letters, digits, . _ - and @")
    return said or TRIAL
