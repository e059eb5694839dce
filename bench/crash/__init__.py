"""A real server under load and faults: `python -m bench.crash [--faults 200] [--seed 0] [--kinds server,power]`.

Jobs write into a ledger when they start and when they end. Whatever is killed or stopped, and whenever, every
submission that was made becomes one job, every job ends with the code it should, nothing is left over, and the state
is the fold of the log.
"""

from bench.crash.server import Server
from bench.crash.trial import left_over, run_trial

__all__ = ["Server", "left_over", "run_trial"]
