"""The speeds of jobs: measured speeds of models, shared by the simulator and the estimators."""

from skep.profiles.profile import Profile
from skep.profiles.read import read_profile
from skep.profiles.speed import Speed

__all__ = ["Profile", "Speed", "read_profile"]
