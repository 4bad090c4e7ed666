"""Inside a jail: the worker, its agent loop and its tools. Nothing here is trusted."""
