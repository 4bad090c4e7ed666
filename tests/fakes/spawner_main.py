"""A spawner in a process of its own, with fakes for core and egress; see tests/fakes/spawner.py."""

import json
import sys
from pathlib import Path
from typing import Any

from jail.host.layout import Owners
from jail.host.process import Identity
from jail.host.profile import Limits, System
from jail.host.services import ServiceSpec
from jail.host.spawner import SpawnerConfig, run_spawner


def main(raw: dict[str, Any]) -> int:
    owners = None
    if raw["owners"] is not None:
        owners = Owners(*(Identity(uid, uid) for uid in raw["owners"]))
    config = SpawnerConfig(
        data_dir=Path(raw["data_dir"]),
        bwrap=Path(raw["bwrap"]),
        machine=raw["machine"],
        system=System(
            tuple((target, path) for target, path in raw["links"]),
            tuple(raw["mounts"]),
            raw["python"],
        ),
        lib=Path(raw["lib"]),
        etc=Path(raw["etc"]),
        owners=owners,
        user_uids=range(*raw["user_uids"]),
        limits=Limits(**raw["limits"]),
        cgroups=raw["cgroups"],
        max_alive=raw["max_alive"],
        max_starting=raw["max_starting"],
        grace_s=raw["grace_s"],
        command=tuple(raw["command"]),
        app=Path(raw["app"]),
        start=raw["start"],
        mounts_of=lambda user: tuple(raw["mounted"].get(user, ())),
    )
    core = ServiceSpec(
        "core",
        (sys.executable, "-I", "-B", raw["core"]),
        owners.core if owners else None,
        {"LANG": "C.UTF-8"},
        {"test": raw["core_fd"]},
    )
    egress = ServiceSpec(
        "egress",
        (sys.executable, "-I", "-B", raw["egress"]),
        owners.egress if owners else None,
        {"LANG": "C.UTF-8"},
        {"test": raw["egress_fd"]},
    )

    def observe(event: str, values: Any) -> None:
        print(json.dumps({"event": event, **values}), flush=True)

    return run_spawner(config, core, egress, observe)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
