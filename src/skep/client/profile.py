"""The server that a client uses, and its token.

The first source that is set is used: the caller, SKEP_URL and SKEP_TOKEN, the profile that `skep login` wrote, a server
that runs on this machine, the default address. The token of a profile is sent to the server of that profile only.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import msgspec

from skep.core.errors import InputError
from skep.files.running import default_data, servers_here, user_folder
from skep.files.text import write_aside

DEFAULT_URL = "http://127.0.0.1:7437"


class ClientProfile(msgspec.Struct, frozen=True):
    """`~/.config/skep/config.toml`."""

    url: str = ""
    token: str = ""
    vc: str = ""
    """The VC of jobs that name none."""


def profile_file() -> Path:
    return user_folder("XDG_CONFIG_HOME", ".config") / "config.toml"


def read_profile() -> ClientProfile:
    """What `skep login` wrote; an empty profile if there is none."""
    file = profile_file()
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return ClientProfile()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read: {error}") from None
    try:
        return msgspec.convert(tomllib.loads(text), ClientProfile, strict=True)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InputError(f"{file}: {error}", hint='expected url = "…", token = "…", vc = "…"') from None


def write_profile(profile: ClientProfile) -> Path:
    """Readable by its owner alone, because it contains a token."""
    file = profile_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    values = {name: value for name, value in msgspec.structs.asdict(profile).items() if value}
    write_aside(file, "".join(f"{name} = {_quoted(value)}\n" for name, value in values.items()), 0o600)
    return file


def _quoted(value: str) -> str:
    """A JSON string is a valid TOML string."""
    return msgspec.json.encode(value).decode()


def find_url(given: str) -> str:
    """The address of the server to use."""
    return given or os.environ.get("SKEP_URL", "") or read_profile().url or _here() or DEFAULT_URL


def find_token(given: str, url: str) -> str:
    token = given or os.environ.get("SKEP_TOKEN", "")
    if token:
        return token
    profile = read_profile()
    return profile.token if profile.url and profile.url.rstrip("/") == url.rstrip("/") else ""


def _here() -> str:
    """The only server of this machine; of several, the one on the default data folder."""
    servers = servers_here()
    if not servers:
        return ""
    if len(servers) == 1 or default_data() in servers:
        return next(iter(servers.values())).url
    listed = "; ".join(f"export SKEP_URL={running.url} ({folder})" for folder, running in servers.items())
    raise InputError(f"{len(servers)} servers run on this machine", hint=f"name one: {listed}")
