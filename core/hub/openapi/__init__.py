"""The HTTP API described as OpenAPI 3.1, from one table of its routes and the code's own structs."""

from core.hub.openapi.document import document, encoded_document
from core.hub.openapi.serving import OPENAPI_PATH, serve_openapi

__all__ = ["OPENAPI_PATH", "document", "encoded_document", "serve_openapi"]
