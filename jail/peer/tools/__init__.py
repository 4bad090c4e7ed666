"""The worker's built-in tools, by name."""

from collections.abc import Mapping

from jail.peer.tools.base import Tool
from jail.peer.tools.fetching import HTTP_FETCH
from jail.peer.tools.reading import LIST_FILES, READ_FILE
from jail.peer.tools.running import RUN_COMMAND, RUN_PYTHON
from jail.peer.tools.searching import SEARCH_FILES
from jail.peer.tools.showing import SHOW_PICTURE
from jail.peer.tools.writing import EDIT_FILE, WRITE_FILE

BUILT_IN: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        LIST_FILES,
        READ_FILE,
        WRITE_FILE,
        EDIT_FILE,
        SEARCH_FILES,
        RUN_COMMAND,
        RUN_PYTHON,
        HTTP_FETCH,
        SHOW_PICTURE,
    )
}
