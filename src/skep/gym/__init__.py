"""A Gymnasium environment on the simulator: `skep[gym]`.

`gymnasium.make("skep/Cluster-v0")` after `import skep.gym`, or `skep.gym.ClusterEnv(...)`.
"""

import gymnasium

from skep.gym.env import ClusterEnv
from skep.gym.observe import SLOTS, observation

__all__ = ["SLOTS", "ClusterEnv", "observation"]

gymnasium.register("skep/Cluster-v0", entry_point="skep.gym.env:ClusterEnv")
