"""``certosa serve``: what the spawner needs, gathered, checked, and handed over.

The spawner process binds the listeners, so that an address in use is told at once and a restarted
core keeps its clients queued. It opens the provider key file, so that egress alone reads it.
"""

import contextlib
import fcntl
import os
import socket
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import structlog

from core.backup.archive import STAGING
from core.config import Config, config_text, is_loopback
from core.errors import CoreError
from core.limits import JailLimits
from core.log import configure_logging
from core.master_keys import open_master_keys
from core.mounts import Mounts
from core.opening import open_to_judge
from core.reload import TLS_FILES, Reloader, config_file
from jail.host.doctor import DoctorConfig, Report, run_doctor
from jail.host.layout import Layout, Owners
from jail.host.messages import HostError, Start
from jail.host.process import Identity
from jail.host.services import ServiceSpec
from jail.host.spawner import SpawnerConfig, run_spawner
from jail.host.staging import Staged, check_readable, stage
from jail.host.system import find_bwrap, find_machine, find_system

_SOURCE = Path(__file__).resolve().parents[1]
_BACKLOG = 1_024
_USERS_FROM = 1_000  # past uid_base, as in core.users
_MAX_UID = 2**31 - 2
_KEY_FDS = ("provider-keys", "master-key", "next-master-key")
KEY_FILE = "provider-keys.toml"


class ServeError(CoreError):
    """The server cannot start; the message says what to do."""


def serve(config: Config, config_path: Path | None) -> int:
    """Run the server until SIGTERM or SIGINT; returns the exit status.

    Raises ServeError, ConfigError or HostError where it cannot start.
    """
    configure_logging(config.server.log_level, config.server.log_format, "spawner")
    log = structlog.get_logger()
    data_dir = config.data_dir.absolute()
    owners = owners_of(config)
    if os.path.lexists(data_dir / STAGING):
        raise ServeError(
            f"{data_dir / STAGING} was left by a restore that was cut short: delete it and what was"
            " restored beside it, then restore again"
        )
    Layout(data_dir, owners).prepare()
    with contextlib.ExitStack() as held:
        staged = stage(data_dir, _SOURCE)
        held.callback(staged.close)
        spawner = spawner_config(config, data_dir, staged, owners)
        _check_interpreter(owners)
        _refuse_second(data_dir)
        start = _attack_first(doctor_config(spawner, config_path), log)
        limits, mounts = JailLimits(config.jail), Mounts(config.vault)
        spawner = replace(
            spawner,
            start=start,
            max_starting=config.starting_at_once(start),
            limits_of=limits,
            mounts_of=mounts,
        )
        fds = _descriptors(config, data_dir, owners, held)
        core, egress = _services(data_dir, staged, owners, fds)

        def use(new: Config) -> None:
            limits.use(new.jail)
            mounts.use(new.vault)

        def observe(event: str, values: Mapping[str, Any]) -> None:
            _log(log, event, values)
            if event == "core_ready_seen":
                _greet(config)

        if not (config.hub.tls_key or is_loopback(config.hub.host)):
            log.warning(
                "hub_without_tls", host=config.hub.host, hint="tokens go unencrypted unless a proxy encrypts"
            )
        log.info("server_started", data_dir=str(data_dir), config=str(config_path or ""))
        reload = Reloader(
            config,
            config_text(config_path),
            config_path,
            lambda new: open_files(new, data_dir, owners),
            use,
        )
        return run_spawner(spawner, core, egress, observe, reload, os.environ)


def examine(config: Config, config_path: Path | None) -> Report:
    """What ``certosa doctor`` reports: the attack on a jail as users' jails would be.

    Raises ServeError, ConfigError or HostError where no jail could be described.
    """
    data_dir = config.data_dir.absolute()
    owners = owners_of(config)
    Layout(data_dir, owners).prepare()
    with contextlib.closing(stage(data_dir, _SOURCE)) as staged:
        spawner = spawner_config(config, data_dir, staged, owners)
        return run_doctor(doctor_config(spawner, config_path))


def spawner_config(config: Config, data_dir: Path, staged: Staged, owners: Owners | None) -> SpawnerConfig:
    """What the spawner has to know, out of the configuration and this machine. Raises HostError."""
    jail = config.jail
    return SpawnerConfig(
        data_dir=data_dir,
        bwrap=find_bwrap(),
        machine=find_machine(),
        system=find_system(jail.python),
        lib=staged.lib,
        etc=staged.etc,
        app=staged.app,
        start=jail.start,
        owners=owners,
        user_uids=user_uids_of(config),
        limits=JailLimits(jail)(""),
        cgroups=jail.cgroups,
        max_alive=config.pool.max_jails,
        max_starting=config.starting_at_once(jail.start),
        grace_s=config.server.grace_s,
    )


def owners_of(config: Config) -> Owners | None:
    """Core's and egress's ids when we are root; None otherwise."""
    if os.geteuid() != 0:
        return None
    base = config.jail.uid_base
    return Owners(Identity(base, base), Identity(base + 1, base + 1))


def user_uids_of(config: Config) -> range:
    """The host uids that users may have when we are root."""
    return range(config.jail.uid_base + _USERS_FROM, _MAX_UID)


def _services(
    data_dir: Path, staged: Staged, owners: Owners | None, fds: dict[str, int]
) -> tuple[ServiceSpec, ServiceSpec]:
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}
    # where the operator keeps certificates that model servers are checked against
    env_egress = env | {k: v for k in ("SSL_CERT_FILE", "SSL_CERT_DIR") if (v := os.environ.get(k))}

    def argv(script: str, *more: str) -> tuple[str, ...]:
        return (sys.executable, "-I", "-B", str(staged.app / script), "--data-dir", str(data_dir), *more)

    core = ServiceSpec(
        name="core",
        argv=argv("core/start.py", *(["--apart"] if owners else [])),
        identity=owners.core if owners else None,
        env=env,
        fds={
            name: fds[name] for name in ("config", "hub", "admin", "admin-socket", *TLS_FILES) if name in fds
        },
    )
    egress = ServiceSpec(
        name="egress",
        argv=argv("core/egress/start.py"),
        identity=owners.egress if owners else None,
        env=env_egress,
        fds={
            "config": fds["egress-config"],
            **{name: fds[name] for name in _KEY_FDS if name in fds},
        },
    )
    return core, egress


def _descriptors(
    config: Config, data_dir: Path, owners: Owners | None, held: contextlib.ExitStack
) -> dict[str, int]:
    """Everything core and egress inherit, by flag; closed with ``held``."""
    fds = {
        "config": config_file(config),
        "egress-config": config_file(config),
        **open_files(config, data_dir, owners),
    }
    for fd in fds.values():
        held.callback(os.close, fd)
    sockets = {
        "hub": _listen(config.hub.host, config.hub.port, "hub"),
        "admin": _listen(config.admin.host, config.admin.port, "admin"),
        "admin-socket": _listen_unix(data_dir / "_system", "admin.sock", owners),
    }
    held.callback((data_dir / "_system" / "admin.sock").unlink, missing_ok=True)
    for name, sock in sockets.items():
        held.enter_context(sock)
        fds[name] = sock.fileno()
    for name, key in open_master_keys(config, os.environ, owners).items():
        held.callback(os.close, key)
        fds[name] = key
    return fds


def open_files(config: Config, data_dir: Path, owners: Owners | None) -> dict[str, int]:
    """What the configuration names besides itself, opened and not read; by flag. Raises ServeError."""
    found = open_tls(config)
    try:
        if (keys := _open_keys(data_dir / "_keys" / KEY_FILE, owners)) is not None:
            found["provider-keys"] = keys
    except BaseException:
        for fd in found.values():
            os.close(fd)
        raise
    return found


def open_tls(config: Config) -> dict[str, int]:
    """The configured certificates and keys, opened and not read; by flag. Raises ServeError."""
    found: dict[str, int] = {}
    try:
        for name in TLS_FILES:
            section = config.hub if name.startswith("hub") else config.admin
            key = name.endswith("key")
            if path := section.tls_key if key else section.tls_certificate:
                found[name] = _open_tls(Path(path), key)
    except BaseException:
        for fd in found.values():
            os.close(fd)
        raise
    return found


def _open_tls(path: Path, key: bool) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ServeError(f"{path}: cannot be opened: {error.strerror}") from None
    info = os.fstat(fd)
    problem = ""
    if not stat.S_ISREG(info.st_mode):
        problem = "is not a regular file"
    elif key and info.st_mode & 0o007:
        problem = f"can be read by anybody (mode {stat.S_IMODE(info.st_mode):o}): run chmod 600 on it"
    elif key and info.st_uid not in (0, os.geteuid()):
        problem = f"belongs to uid {info.st_uid}, who could put another there: give it to yourself (chown)"
    if problem:
        os.close(fd)
        raise ServeError(f"{path}: {problem}")
    return fd


def _listen(host: str, port: int, section: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise ServeError(
            f"cannot listen on {host} port {port}: {error.strerror};"
            f" choose another with [{section}] host and port"
        ) from None
    return sock


def _listen_unix(directory: Path, name: str, owners: Owners | None) -> socket.socket:
    """A listening socket file that core's uid alone may use; a stale one is replaced."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=fd)
        # by the directory's descriptor: the path itself may be longer than sun_path
        sock.bind(f"/proc/self/fd/{fd}/{name}")
        os.chmod(name, 0o600, dir_fd=fd)
        if owners is not None:
            os.chown(name, owners.core.uid, owners.core.gid, dir_fd=fd, follow_symlinks=False)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise ServeError(f"cannot make {directory / name}: {error.strerror}") from None
    finally:
        os.close(fd)
    return sock


def _open_keys(path: Path, owners: Owners | None) -> int | None:
    """The provider key file, opened and not read; None where there is none."""
    if (fd := open_to_judge(path, ServeError)) is None:
        return None
    info = os.fstat(fd)
    allowed = {os.geteuid(), *([owners.egress.uid] if owners else [])}
    problem = ""
    if not stat.S_ISREG(info.st_mode):
        problem = "is not a regular file"
    elif info.st_mode & 0o077:
        problem = f"can be read by others (mode {stat.S_IMODE(info.st_mode):o}): run chmod 600 {path}"
    elif info.st_uid not in allowed:
        problem = f"belongs to uid {info.st_uid}: give it to yourself (chown)"
    if problem:
        os.close(fd)
        raise ServeError(f"{path}: {problem}")
    return fd


def _check_interpreter(owners: Owners | None) -> None:
    """Core and egress run with this interpreter and its packages, as other uids when root."""
    if owners is None:
        return
    for path in (Path(sys.executable), *_package_places()):
        try:
            check_readable(path)
        except HostError as error:
            raise ServeError(f"{error}; or start the server with scripts/run, which sees to it") from None


def _package_places() -> Iterator[Path]:
    yield Path(msgspec.__file__).parent
    yield Path(structlog.__file__).parent


def _refuse_second(data_dir: Path) -> None:
    """Find a running server before anything of its is replaced; the spawner takes the lock itself."""
    try:
        fd = os.open(data_dir / "_run" / "lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ServeError(f"another server uses {data_dir}: stop it first, or choose another") from None
    finally:
        os.close(fd)


def doctor_config(spawner: SpawnerConfig, config_path: Path | None) -> DoctorConfig:
    """The doctor's, for the same jails as the spawner's."""
    return DoctorConfig(
        data_dir=spawner.data_dir,
        bwrap=spawner.bwrap,
        machine=spawner.machine,
        system=spawner.system,
        lib=spawner.lib,
        etc=spawner.etc,
        owners=spawner.owners,
        user_uids=spawner.user_uids,
        limits=spawner.limits,
        cgroups=spawner.cgroups,
        app=spawner.app,
        start=spawner.start,
        secrets=(config_path.absolute(),) if config_path else (),
    )


def _attack_first(config: DoctorConfig, log: Any) -> Start:
    """Attack a jail as users' jails will be, and refuse to serve where an attack succeeds.

    Returns how jails can be started here.
    """
    report = run_doctor(config)
    if report.ok:
        if report.start != config.start:
            log.warning("fork_start_failed", message=report.machine["start"])
        log.info(
            "doctor_passed",
            attempts=len(report.findings),
            uids_apart=config.owners is not None,
            start=report.start,
        )
        return report.start
    failed = [f"{f.attempt}: {f.got} instead of {f.expected}" for f in report.findings if not f.ok]
    why = report.error or "; ".join(failed) or "no attack was tried"
    raise ServeError(f"the jail does not hold on this machine, so nothing is served: {why}")


def _log(log: Any, event: str, values: Mapping[str, Any]) -> None:
    loud = event.endswith(("failed", "gave_up", "fault_seen"))
    (log.error if loud else log.info)(event, **values)


def _greet(config: Config) -> None:
    """For the person who started it; what a program reads is in the log."""
    if not sys.stdout.isatty():
        return
    print(  # noqa: T201
        f"\nCertosa serves on {'https' if config.hub.tls_key else 'http'}://{config.hub.host}:{config.hub.port}\n"
        "Add a user, make a token, and talk, in another terminal:\n"
        "  scripts/run user add alice\n"
        "  scripts/run token new alice\n"
        "  CERTOSA_TOKEN=... scripts/run chat\n",
        flush=True,
    )
