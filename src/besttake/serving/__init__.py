"""Any policy, plain or augmented, as a model server that other harnesses can drive."""

from besttake.serving.served import Limits
from besttake.serving.server import Server, serve

__all__ = ["Limits", "Server", "serve"]
