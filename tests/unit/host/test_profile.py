"""The profile: a jail in, bwrap's arguments out."""

from dataclasses import replace
from pathlib import Path

import pytest

from jail.host.messages import HostError
from jail.host.profile import (
    COMMAND_LINE,
    ENVIRONMENT,
    JailFds,
    Limits,
    Profile,
    System,
    args_bytes,
    arguments,
    user_paths,
)

PROFILE = Profile(
    System((("usr/bin", "/bin"), ("usr/lib64", "/lib64")), ("/usr", "/opt/py"), "/opt/py/bin/python3"),
    Path("/data/_runtime/0/lib"),
    Path("/data/_runtime/0/etc"),
    Path("/data/users/alice/home"),
    Path("/data/users/alice/agents"),
)


def test_mounts_are_files_of_their_own_that_only_their_owner_may_read() -> None:
    profile = replace(PROFILE, mounts=("a.key", "b"))

    args = arguments(profile, JailFds())

    wanted = []
    for fd, name in (("8", "a.key"), ("9", "b")):
        wanted += ["--perms", "0400", "--ro-bind-data", fd, f"/run/credentials/{name}"]
    at = args.index("0400") - 1
    assert args[at : at + 10] == wanted
    assert args[at + 10 :][:4] == ["--remount-ro", "/dev", "--remount-ro", "/"]


def test_without_mounts_nothing_of_them_is_there() -> None:
    args = arguments(PROFILE, JailFds())

    assert "--ro-bind-data" not in args
    assert not [arg for arg in args if arg.startswith("/run")]


def _triples(args: list[str], option: str) -> list[tuple[str, str]]:
    return [(args[i + 1], args[i + 2]) for i, arg in enumerate(args) if arg == option]


def test_every_namespace_is_its_own_and_none_can_be_made_inside() -> None:
    args = arguments(PROFILE)

    for option in ("--unshare-user", "--disable-userns", "--unshare-pid", "--unshare-net",
                   "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--die-with-parent",
                   "--new-session", "--as-pid-1", "--clearenv"):  # fmt: skip
        assert args.count(option) == 1
    assert args[args.index("--cap-drop") + 1] == "ALL"
    assert "--share-net" not in args


def test_the_home_alone_is_mounted_writable() -> None:
    args = arguments(PROFILE)

    assert _triples(args, "--bind") == [("/data/users/alice/home", "/home/user")]
    assert _triples(args, "--ro-bind") == [
        ("/usr", "/usr"),
        ("/opt/py", "/opt/py"),
        ("/data/_runtime/0/etc", "/etc"),
        ("/data/_runtime/0/lib", "/certosa/lib"),
        ("/data/users/alice/agents", "/agents"),
    ]
    assert not {"--dev-bind", "--dev-bind-try", "--bind-try", "--file", "--bind-data"} & set(args)


def test_nothing_of_the_servers_is_mounted() -> None:
    mounted = [source for option in ("--bind", "--ro-bind", "--ro-bind-try")
               for source, _ in _triples(arguments(PROFILE), option)]  # fmt: skip

    for directory in ("/", "/run", "/sys", "/proc", "/data", "/data/users", "/data/users/alice"):
        assert directory not in mounted


def test_root_and_dev_become_read_only_after_all_mounts() -> None:
    args = arguments(PROFILE)

    last_mount = max(i for i, arg in enumerate(args) if arg in ("--bind", "--ro-bind", "--tmpfs"))
    remounts = [i for i, arg in enumerate(args) if arg == "--remount-ro"]
    assert [args[i + 1] for i in remounts] == ["/dev", "/"]
    assert remounts[0] > last_mount


def test_every_tmpfs_has_a_size() -> None:
    args = arguments(replace(PROFILE, limits=Limits(tmp_bytes=4_096)))

    places = [i for i, arg in enumerate(args) if arg == "--tmpfs"]
    assert [args[i + 1] for i in places] == ["/dev/shm", "/tmp"]
    assert all(args[i - 2 : i] == ["--size", "4096"] for i in places)


def test_the_environment_is_a_fixed_list() -> None:
    assert dict(_triples(arguments(PROFILE), "--setenv")) == ENVIRONMENT
    assert sorted(ENVIRONMENT) == ["HOME", "LANG", "PATH", "PYTHONDONTWRITEBYTECODE", "TZ"]


def test_descriptors_are_named_only_when_there_are_some() -> None:
    assert not {"--seccomp", "--json-status-fd", "--block-fd"} & set(arguments(PROFILE))
    args = arguments(PROFILE, JailFds())
    assert args[-8:-2] == ["--seccomp", "5", "--json-status-fd", "6", "--block-fd", "7"]


def test_a_part_of_the_arguments_is_one_that_bwrap_refuses() -> None:
    assert arguments(PROFILE, JailFds())[-2:] == ["--disable-userns", "--unshare-user"]
    assert COMMAND_LINE[0] == "--disable-userns"


def test_a_jail_that_ends_by_itself_with_its_maker_gets_no_signal_for_it() -> None:
    assert "--die-with-parent" not in arguments(PROFILE, JailFds(), die_with_parent=False)


def test_the_worker_runs_unless_another_command_is_given() -> None:
    worker = ("/opt/py/bin/python3", "-I", "-S", "/certosa/lib/jail/peer/start.py")

    assert PROFILE.program == worker
    assert replace(PROFILE, command=("/bin/true",)).program == ("/bin/true",)


def test_arguments_end_with_a_nul_each_and_hold_none() -> None:
    assert args_bytes(["--bind", "/a b", "/ü"]) == b"--bind\0/a b\0/\xc3\xbc\0"
    with pytest.raises(HostError, match="NUL"):
        args_bytes(["--bind", "/a\0--share-net"])


@pytest.mark.parametrize(
    "user",
    ["_system", "..", ".", "a/b", "", "a\0", "a" * 33, "Alice", "ä", "-a", "a\n", "a b", "\u0430lice",
     "alice\u0301", "１"],
)  # fmt: skip
def test_what_is_no_user_id_has_no_paths(user: str) -> None:
    with pytest.raises(HostError, match="not a user id"):
        user_paths(Path("/data"), user)


def test_a_users_paths_lie_below_their_own_directory() -> None:
    paths = user_paths(Path("/data"), "a-b_1")

    assert paths.user == Path("/data/users/a-b_1")
    assert paths.home == Path("/data/users/a-b_1/home")
    assert paths.agents == Path("/data/users/a-b_1/agents")
