"""What the template loads ahead, and makes look as if it had been loaded inside a jail."""

import gc
import os
import sys
from importlib.machinery import ModuleSpec

from jail.host.edges import Edges
from jail.template.kernel import use_one_malloc_arena
from jail.template.rehearsal import rehearse
from jail.template.sealing import seal

_INSIDE = "/certosa/lib"
_REHEARSALS = 9  # the interpreter rewrites code that ran about eight times


def warm_up(lib: str, edges: Edges) -> None:
    """Import all that a worker imports, with ``lib`` standing for what jails see of it.

    Afterwards imports find only what a jail mounts. To be called before the first fork. Raises
    OSError and BuildError.
    """
    use_one_malloc_arena()
    # it remembers names by reference: a worker that has one forgotten would write to where it lies
    sys._clear_type_cache()
    for _ in range(_REHEARSALS):
        rehearse(edges)
    for module in list(sys.modules.values()):
        _relocate(module, lib)
    sys.path[:] = [_INSIDE if path == lib else path for path in sys.path]
    sys.path_importer_cache.clear()
    os.chdir("/")
    gc.collect()
    gc.freeze()
    seal()


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
