"""All that can be told of a jail from outside and inside, in a form two jails can be compared by.

Numbers that differ from jail to jail (pids, inodes of namespaces, ids of mounts, devices) are replaced by
what they stand for; what is left has to be equal however a jail was started.
"""

import ctypes
import errno
import fcntl
import json
import os
import re
import struct
from pathlib import Path

_NS_GET_USERNS, _NS_GET_PARENT, _NS_GET_OWNER_UID = 0xB701, 0xB702, 0xB704
_NAMESPACES = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time")
# memory, time, and names of processes: of this run, not of the jail
_STATUS_LEFT_OUT = re.compile(
    r"^(Vm|Rss|Hugetlb|Pid|PPid|Tgid|NStgid|NSpid|NSpgid|NSsid|State|FDSize|voluntary|nonvoluntary)"
)

Portrait = dict[str, object]


def outside(pid: int) -> Portrait:
    """A process as the host's /proc shows it. As root, or as the jail's own user."""
    proc = Path(f"/proc/{pid}")
    found: Portrait = {f"status {name}": value for name, value in _status(proc).items()}
    for name in ("cmdline", "environ", "limits", "cgroup", "uid_map", "gid_map", "setgroups", "comm",
                 "oom_score_adj", "coredump_filter", "personality", "loginuid", "sessionid",
                 "timens_offsets", "timerslack_ns"):  # fmt: skip
        found[name] = _text(proc / name)
    found["namespaces"] = _namespaces(proc)
    found["mounts"] = _mounts(proc)
    found["descriptors"] = _descriptors(proc)
    found["cwd"], found["root"] = os.readlink(proc / "cwd"), os.readlink(proc / "root")
    info = proc.stat()
    found["owner of /proc/PID"] = (info.st_uid, info.st_gid)
    found["owners in /proc/PID"] = {n: (s := (proc / n).stat()) and (s.st_uid, s.st_gid, oct(s.st_mode))
                                    for n in ("mem", "environ", "maps", "fd")}  # fmt: skip
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    # state ppid pgrp session tty_nr tpgid; see proc(5)
    found["leads its session"] = (int(fields[2]) == pid, int(fields[3]) == pid)
    found["terminal"] = (fields[4], fields[5])
    found["exit signal, priority, nice"] = (fields[35], fields[15], fields[16])
    found["policy"] = (fields[37], fields[38])
    found["levels of pids"] = {
        name: len(value.split()) for name, value in _status(proc, all_of_it=True).items() if name[:2] == "NS"
    }
    found["mapped files"] = _mapped_files(proc)
    found["auxiliary vector"] = _auxiliary_vector(proc)
    found["parent"] = (Path("/proc", fields[1]) / "comm").read_text()
    found["mount of the interpreter"] = _mount_of(proc, proc / "exe")
    found["threads"] = sorted((t / "comm").read_text() for t in (proc / "task").iterdir())
    return found


def _status(proc: Path, all_of_it: bool = False) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    return {n: v.strip() for n, v in pairs if all_of_it or not _STATUS_LEFT_OUT.match(n)}


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        return f"errno {error.errno}"


def _namespaces(proc: Path) -> dict[str, object]:
    """Each: whether it is the host's; which of the jail's two user namespaces owns it; whose that is."""
    opened = {n: os.open(proc / "ns" / n, os.O_RDONLY) for n in _NAMESPACES if (proc / "ns" / n).exists()}
    inner = os.fstat(opened["user"]).st_ino
    outer_fd = fcntl.ioctl(opened["user"], _NS_GET_PARENT)
    names = {
        inner: "inner",
        os.fstat(outer_fd).st_ino: "outer",
        os.stat("/proc/self/ns/user").st_ino: "the host's",
    }
    found: dict[str, object] = {
        "inner belongs to": _owner(opened["user"]),
        "outer belongs to": _owner(outer_fd),
        "outer lies in": names[_inode_of(fcntl.ioctl(outer_fd, _NS_GET_PARENT))],
    }
    for name, fd in opened.items():
        same = os.fstat(fd).st_ino == os.stat(f"/proc/self/ns/{name}").st_ino
        owner = names.get(_inode_of(fcntl.ioctl(fd, _NS_GET_USERNS)), "?") if not same else "-"
        found[name] = ("the host's" if same else "its own", owner)
    children = os.stat(proc / "ns" / "pid_for_children").st_ino
    found["pid_for_children"] = children == os.fstat(opened["pid"]).st_ino
    for fd in (*opened.values(), outer_fd):
        os.close(fd)
    return found


def _mapped_files(proc: Path) -> list[str]:
    lines = (line.split(maxsplit=5) for line in (proc / "maps").read_text().splitlines())
    return sorted({line[5] for line in lines if len(line) == 6 and line[5].startswith("/")})


def _auxiliary_vector(proc: Path) -> dict[int, int]:
    """Without addresses and random bytes: page size, clock ticks, ids, whether secure; see getauxval(3)."""
    data = (proc / "auxv").read_bytes()
    pairs = struct.iter_unpack("NN", data)
    return {key: value for key, value in pairs if key in {6, 11, 12, 13, 14, 16, 17, 23, 26}}


def _mount_of(proc: Path, path: Path) -> str:
    """Flags of the mount that an open file lies on, or that the process itself does not see it."""
    fd = os.open(path, os.O_PATH)
    info = Path(f"/proc/self/fdinfo/{fd}").read_text()
    os.close(fd)
    number = re.search(r"^mnt_id:\s+(\d+)$", info, re.MULTILINE)
    assert number is not None
    lines = (line.split() for line in (proc / "mountinfo").read_text().splitlines())
    return next((line[5] for line in lines if line[0] == number[1]), "outside")


def _owner(user_namespace: int) -> int:
    uid = bytearray(4)
    fcntl.ioctl(user_namespace, _NS_GET_OWNER_UID, uid)
    return int.from_bytes(uid, "little")


def _inode_of(fd: int) -> int:
    inode = os.fstat(fd).st_ino
    os.close(fd)
    return inode


def _mounts(proc: Path) -> list[str]:
    """Every line: its place, the place of its parent, what of which file system, flags, options."""
    lines = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
    places = {line[0]: line[4] for line in lines}
    rows = []
    for number, parent, _device, root, place, flags, *rest in lines:
        tags, _, kind = " ".join(rest).partition("- ")
        rows.append(f"{place} on {places.get(parent, 'nothing')}: {root} {flags} [{tags.strip()}] {kind}")
        assert number
    return sorted(rows)


def _descriptors(proc: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for fd in sorted((proc / "fd").iterdir(), key=lambda path: int(path.name)):
        target = re.sub(r"\d+", "N", os.readlink(fd)) if ":" in os.readlink(fd) else os.readlink(fd)
        info = (proc / "fdinfo" / fd.name).read_text()
        flags = re.search(r"^flags:\s+(\d+)$", info, re.MULTILINE)
        assert flags is not None
        found[fd.name] = (target, flags[1])
    return found


INSIDE = """
import ctypes, json, os, resource, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def prctl(option, value=0):
    got = libc.prctl(option, value, 0, 0, 0)
    return got if got >= 0 else -ctypes.get_errno()
def pointed(option):
    value = ctypes.c_int(-1)
    return (libc.prctl(option, ctypes.byref(value), 0, 0, 0), value.value)
def read(path):
    try:
        return open(path, errors='replace').read()
    except OSError as error:
        return f'errno {error.errno}'
def listed(path):
    try:
        return len(os.listdir(path))
    except OSError as error:
        return f'errno {error.errno}'
def opened(path, flags):
    try:
        os.close(os.open(path, flags)); return 'opened'
    except OSError as error:
        return f'errno {error.errno}'
def process(at):
    found = {
        'files': sorted(os.listdir(at)), 'fds': listed(at + '/fd'), 'ns': sorted(os.listdir(at + '/ns')),
        'owner': [os.stat(at).st_uid, os.stat(at + '/mem').st_uid],
        'mem': opened(at + '/mem', os.O_RDWR),
        'exe for writing': opened(at + '/exe', os.O_RDWR) != 'opened',
        'syscall': read(at + '/syscall').startswith('running'), 'stack': read(at + '/stack'),
        'wchan': read(at + '/wchan').startswith('errno'), 'io': read(at + '/io').startswith('errno'),
        'mountinfo': sorted(' '.join(line.split()[3:]) for line in open(at + '/mountinfo')),
    }
    for name in ('cgroup', 'uid_map', 'gid_map', 'setgroups', 'environ', 'comm', 'oom_score_adj'):
        found[name] = read(f'{at}/{name}')
    for name in ('exe', 'root', 'cwd'):
        found[name] = os.readlink(f'{at}/{name}')
    return found
umask = os.umask(0); os.umask(umask)
pids = [p for p in os.listdir('/proc') if p.isdigit()]
found = {
    'securebits': prctl(27), 'dumpable': prctl(3), 'keepcaps': prctl(7), 'no new privs': prctl(39),
    'seccomp': prctl(21), 'timerslack': prctl(30), 'thp off': prctl(42), 'tsc': pointed(25)[0],
    'subreaper': pointed(37), 'parent death': pointed(2), 'mce': prctl(34), 'io flusher': prctl(58),
    'speculation 0': prctl(52, 0), 'speculation 1': prctl(52, 1), 'mdwe': prctl(66),
    'bounding': [prctl(23, n) for n in range(64)],
    'umask': umask, 'cwd': os.getcwd(), 'root': sorted(os.listdir('/')),
    'ids': [os.getresuid(), os.getresgid()],
    'groups': os.getgroups(), 'nice': os.getpriority(os.PRIO_PROCESS, 0), 'policy': os.sched_getscheduler(0),
    'cpus': sorted(os.sched_getaffinity(0)), 'pid': [os.getpid(), os.getppid(), os.getsid(0), os.getpgid(0)],
    'mask': sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    'pending': sorted(signal.sigpending()), 'timer': signal.getitimer(signal.ITIMER_REAL),
    'limits': [resource.getrlimit(n) for n in range(16)],
    'environment': list(os.environ.items()), 'host': os.uname().nodename,
    'domain': read('/proc/sys/kernel/domainname'),
    'user namespaces': read('/proc/sys/user/max_user_namespaces'), 'interfaces': socket.if_nameindex(),
    'personality': libc.personality(ctypes.c_ulong(0xffffffff)), 'visible': pids,
    'argv': sys.argv, 'flags': str(sys.flags), 'name': sys.modules['__main__'].__name__,
    'path': [p for p in sys.path if not p.startswith('/certosa')], 'hidden': 'ssl' in sys.modules and 0,
    'processes': {p: process(f'/proc/{p}') for p in pids},
}
connection, _ = socket.socket(fileno=3).accept()
connection.sendall(json.dumps(found).encode())
connection.close()
"""


def filters(pid: int) -> list[bytes]:
    """The programs of a process's seccomp filters, by ptrace(2). As root, and for a single thread."""
    libc = ctypes.CDLL(None, use_errno=True)
    seize, interrupt, get_filter, detach, wall = 0x4206, 0x4207, 0x420C, 17, 0x40000000

    def ptrace(request: int, address: int = 0, data: object = None) -> int:
        got: int = libc.ptrace(ctypes.c_long(request), pid, ctypes.c_void_p(address), data)
        if got < 0:
            raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")
        return got

    ptrace(seize)
    ptrace(interrupt)
    os.waitpid(pid, wall)
    found: list[bytes] = []
    try:
        while True:
            try:
                count = ptrace(get_filter, len(found))
            except OSError as error:
                if error.errno == errno.ENOENT:
                    return found
                raise
            program = ctypes.create_string_buffer(count * 8)
            ptrace(get_filter, len(found), program)
            found.append(program.raw)
    finally:
        ptrace(detach)


def read_all(edge_fd: int) -> Portrait:
    """What :data:`INSIDE` wrote to the other end of a jail's edge."""
    data = b""
    while piece := os.read(edge_fd, 65_536):
        data += piece
    found = json.loads(data)
    assert isinstance(found, dict)
    return found
