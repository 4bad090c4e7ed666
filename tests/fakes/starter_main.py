"""Processes that start one jail each as the spawner does, guard and all, and are killed when a test says.

Reads a number of microseconds a line; for each a child begins to start a jail and is killed that much later,
for "running" when the jail runs. Answers how far the jail was. Orphans go to the nearest subreaper above.
"""

import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from jail.host.forking import ForkStarter
from jail.host.launcher import ExecStarter, HostUids, JailSpec, Starter
from jail.host.oneshot import follow
from jail.host.process import become_subreaper
from jail.host.profile import Limits, Profile, System, user_paths

_COMMAND = ("/bin/sleep", "600")
_LAST_S = 60.0


def main(raw: dict[str, Any]) -> None:
    staged = Path(raw["staged"])
    paths = user_paths(Path(raw["data_dir"]), "alice")
    system = System(tuple(map(tuple, raw["links"])), tuple(raw["mounts"]), raw["python"])
    etc = Path(raw["etc"])
    profile = Profile(system, staged / "lib", etc, paths.home, paths.agents, Limits(), _COMMAND)
    for line in sys.stdin:
        said, say = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(said)
            _start(raw, JailSpec(profile, raw["uid"]), staged / "app", say)
        os.close(say)
        os.read(said, 1)
        if line == "running\n":
            os.read(said, 1)
            print("running", flush=True)
        else:
            time.sleep(int(line) / 1e6)
            print("running" if select.select([said], [], [], 0)[0] else "starting", flush=True)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(said)


def _start(raw: dict[str, Any], spec: JailSpec, app: Path, say: int) -> NoReturn:
    become_subreaper()
    uids, run_dir, bwrap = HostUids(range(*raw["user_uids"])), Path(raw["run_dir"]), Path(raw["bwrap"])
    starter: Starter = ExecStarter(bwrap, run_dir, uids, raw["machine"])
    if raw["start"] == "fork":
        forking = ForkStarter(bwrap, run_dir, uids, raw["machine"], spec.profile.system.python, app)
        forking.template.warm()
        starter = forking
    _say(say)
    follow(starter.start(spec), _LAST_S, on_running=lambda: _say(say))
    os._exit(0)


def _say(fd: int) -> None:
    os.write(fd, b"+")


main(json.loads(sys.argv[1]))
