"""What a jail must withstand, and by what: every test of the wall names one of these cases.

``mark.wall("case")`` on a test says so; ``start="fork"`` where the test has no ``kind`` but looks at one kind
of start alone. docs/security.md shows them with the outcomes kept in docs/wall.
"""

from typing import Final, NamedTuple


class Case(NamedTuple):
    """One attempt from within a jail, or against one."""

    attempt: str
    by: str
    """What stops it."""


GROUPS: Final[dict[str, dict[str, Case]]] = {
    "Files": {
        "another-user": Case(
            "another user's file, by any path, link or `/proc` entry",
            "mount namespace: it is not there; under root also file modes, a uid for each user",
        ),
        "server": Case("the server's directories, keys, sockets; the host's `/etc`", "mount namespace"),
        "system": Case("`/sys`, `/run`, the host's root", "mount namespace"),
        "read-only": Case("writing anywhere but home, `/tmp`, `/dev/shm`", "read-only mounts"),
        "tmp": Case("`/tmp` and `/dev/shm` of another jail, or more than their size", "a sized tmpfs each"),
        "hard-link": Case("a hard link to code that others run", "mount of its own, read-only"),
        "setuid-file": Case("a setuid file left outside is root's", "uid of the user; user namespace"),
        "device": Case("a device file", "no capabilities"),
        "odd-place": Case(
            "a file, FIFO or link where the spawner expects a directory",
            "looked at through descriptors before each mount",
        ),
        "interpreter": Case(
            "changing the interpreter behind `/proc/self/exe`",
            "its owner and mode; `exec`: a read-only mount",
        ),
        "descriptor": Case(
            "a descriptor that leads out",
            "none but `/dev/null` and the listener are left open",
        ),
        "uids": Case("another user's home with a wrong uid", "a host uid for each user, from a fixed range"),
    },
    "Processes": {
        "visible": Case("seeing or signalling a process outside", "pid namespace, `/proc` of its own"),
        "ptrace": Case("ptrace, process_vm_readv, pidfd_getfd", "seccomp filter"),
        "writable-memory": Case(
            "writing the memory of a process with more rights",
            "every process inside is filtered and has no capabilities; none is bwrap's",
        ),
        "zombies": Case("a flood of orphans", "the worker, as pid 1, reaps"),
        "thread": Case("the end of a thread of the spawner's", "jails hang on its main thread"),
        "end": Case("outliving the worker, core or the spawner", "pid namespace, PDEATHSIG, guard"),
        "shake-off": Case("shaking off the signal for a parent's death", "guard, by pidfd"),
        "killed-start": Case(
            "a start that is killed at any moment",
            "`fork`: ends of files; `exec`: guard, by process group",
        ),
    },
    "Network": {
        "loopback": Case("a port on the host's loopback", "network namespace"),
        "outside": Case("metadata and private addresses, the internet, IPv6", "network namespace"),
        "names": Case("resolving names, and hanging at it", "network namespace; no resolver in `/etc`"),
        "abstract": Case("abstract sockets of the host's", "network namespace"),
        "second-peer": Case("a second peer at the jail's edge", "the listener's name is gone at once"),
    },
    "Kernel": {
        "namespaces": Case(
            "a new namespace, by unshare, clone, clone3",
            "seccomp filter; user namespaces used up (`--disable-userns`)",
        ),
        "foreign": Case("system calls of a foreign architecture", "seccomp filter: killed"),
        "calls": Case(
            "mounts, keyrings, bpf, perf, userfaultfd, handles, modules, kexec, clocks",
            "seccomp filter; no capabilities",
        ),
        "new-calls": Case("io_uring, calls newer than the list", "seccomp filter: ENOSYS"),
        "terminal": Case("typing into a terminal", "seccomp filter; a session of its own"),
        "sockets": Case("sockets of rare families, raw sockets", "seccomp filter; no capabilities"),
        "personality": Case("another personality", "seccomp filter"),
        "capabilities": Case("any capability, in any process", "all five sets empty, no_new_privs"),
        "setuid-program": Case("setuid programs", "no_new_privs, nosuid mounts"),
    },
    "Memory and environment": {
        "canary": Case(
            "the spawner's or another user's memory in a worker's",
            "the template is started by exec and told nothing",
        ),
        "random": Case("another worker's random numbers", "seeded anew in every fork"),
        "environment": Case(
            "variables and command lines of the server's",
            "cleared; arguments by descriptor",
        ),
    },
    "Resources": {
        "process-count": Case("more processes than the limit", "RLIMIT_NPROC in the jail's user namespace"),
        "address-space": Case("more memory in one process", "RLIMIT_AS"),
        "file-size": Case("a file or memfd past the limit", "RLIMIT_FSIZE"),
        "limits": Case("raising a limit", "hard limits, no capabilities"),
        "stderr": Case("a flood on stderr", "it is `/dev/null`"),
        "jails": Case("more jails than may live or start at once", "spawner's bounds"),
    },
    "The spawner": {
        "words": Case("a core that is taken over asks for what is not its", "typed requests, a uid range"),
        "services": Case("services with more than they need", "descriptors, environment, uid are given"),
    },
    "All of it": {
        "parity": Case("a difference between both starts", "compared line by line, outside and inside"),
        "doctor": Case("170 attacks by `certosa doctor`", "all of the above, on the machine that serves"),
    },
}

CASES: Final[dict[str, Case]] = {name: case for group in GROUPS.values() for name, case in group.items()}
