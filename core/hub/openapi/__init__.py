"""The HTTP APIs described as OpenAPI 3.1, from a table of each one's routes and the code's own structs."""

from core.hub.openapi.admin_table import ADMIN
from core.hub.openapi.document import document, encoded_document
from core.hub.openapi.serving import openapi_route
from core.hub.openapi.table import PUBLIC

__all__ = ["ADMIN", "PUBLIC", "document", "encoded_document", "openapi_route"]
