"""What the template loads ahead, and makes look as if it had been loaded inside a jail."""

import gc
import os
import sys
from importlib.machinery import ModuleSpec

from jail.template.kernel import use_one_malloc_arena
from jail.template.rehearsal import rehearse

_INSIDE = "/certosa/lib"
_REHEARSALS = 16  # the interpreter rewrites code that ran about eight times


def warm_up(lib: str) -> None:
    """Import all that a worker imports, with ``lib`` standing for what jails see of it.

    Afterwards imports find only what a jail mounts. To be called before the first fork.
    """
    for _ in range(_REHEARSALS):
        rehearse()
    for module in list(sys.modules.values()):
        _relocate(module, lib)
    sys.path[:] = [_INSIDE if path == lib else path for path in sys.path]
    sys.path_importer_cache.clear()
    os.chdir("/")
    use_one_malloc_arena()
    gc.collect()
    gc.freeze()


def _relocate(module: object, lib: str) -> None:
    def inside(path: str) -> str:
        return _INSIDE + path[len(lib) :] if path.startswith(f"{lib}/") else path

    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.startswith(f"{lib}/"):
        return
    module.__file__ = inside(file)  # type: ignore[attr-defined]
    places = getattr(module, "__path__", None)
    if isinstance(places, list):
        # no place outside the jail: that of the template's own code is not there
        places[:] = [inside(place) for place in places if place.startswith(f"{lib}/")]
    spec = getattr(module, "__spec__", None)
    if isinstance(spec, ModuleSpec) and spec.origin:
        spec.origin = inside(spec.origin)
