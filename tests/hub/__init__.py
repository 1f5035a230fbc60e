"""A stand-in of the Hub for tests, and checkpoints of real size that take no room on disk."""

from tests.hub.server import Hub, Request
from tests.hub.sparse import header_bytes, write_safetensors, write_sparse

__all__ = ["Hub", "Request", "header_bytes", "write_safetensors", "write_sparse"]
