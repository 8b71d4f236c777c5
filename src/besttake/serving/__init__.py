"""Any policy, plain or augmented, as a model server that other harnesses can drive."""

from besttake.serving.server import Limits, Server, serve

__all__ = ["Limits", "Server", "serve"]
