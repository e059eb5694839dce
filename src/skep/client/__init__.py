"""The SDK: `skep.Client` and what it raises."""

from skep.client.client import ENDED, STOPPED_CODE, Client, Job, exit_code, name_of, pause_lengths
from skep.client.wire import Denied, LostAnswer, NoServer, ServerFault, user_name

__all__ = [
    "ENDED",
    "STOPPED_CODE",
    "Client",
    "Denied",
    "Job",
    "LostAnswer",
    "NoServer",
    "ServerFault",
    "exit_code",
    "name_of",
    "pause_lengths",
    "user_name",
]
