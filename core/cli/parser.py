"""The arguments of every command, and which function serves it."""

import argparse
from typing import Any

from core.cli.presets import OAUTH_PRESETS, PRESETS

_SORTS = ("user", "state", "age", "idle", "memory", "cpu", "uses")
_EPILOG = """\
exit codes:
  0  done
  1  what was asked for failed; one sentence on stderr says why
  2  wrong arguments or configuration
  3  the server is not reachable
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``certosa``; parsed arguments carry ``module`` and ``function``."""
    parser = argparse.ArgumentParser(
        prog="certosa",
        description="Host AI agents for many people on one machine, each in a jail of their own.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_places(parser, None)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_server(commands)
    _add_chat(commands)
    _add_sessions(commands)
    _add_agents(commands)
    _add_approvals(commands)
    _add_users(commands)
    _add_tokens(commands)
    _add_providers(commands)
    _add_credentials(commands)
    _add_egress(commands)
    _add_oauth(commands)
    _add_pool(commands)
    _add_usage(commands)
    _add_audit(commands)
    _add_configuration(commands)
    _add_backup(commands)
    return parser


def _add_places(parser: argparse.ArgumentParser, default: Any) -> None:
    """--config and --data-dir stand before or after the command; the later one counts."""
    parser.add_argument("--config", metavar="PATH", default=default, help="the configuration file")
    parser.add_argument(
        "--data-dir", metavar="DIR", default=default, help="where the server keeps everything"
    )


def _command(
    commands: Any, name: str, target: str, text: str, *, json: bool = True
) -> argparse.ArgumentParser:
    """Add a command; ``target`` is MODULE:FUNCTION below core.cli."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_places(parser, argparse.SUPPRESS)
    if json:
        parser.add_argument("--json", action="store_true", help="print JSON for a program to read")
    module, function = target.split(":")
    parser.set_defaults(module=f"core.cli.{module}", function=function)
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0.1 <= value <= 3_600:
        raise ValueError
    return value


def _group(commands: Any, name: str, text: str) -> Any:
    parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    return parser.add_subparsers(required=True, metavar="COMMAND")


def _add_server(commands: Any) -> None:
    _command(commands, "serve", "server:serve", "start the server and stay with it", json=False)
    _command(commands, "doctor", "doctor:doctor", "check this machine and attack a live jail")
    _command(
        commands, "demo", "demo:demo",
        "start a server of its own, let two users work, and try to cross the wall between them",
    )  # fmt: skip
    _command(
        commands, "capacity", "capacity:capacity",
        "measure this machine for a minute, with a server of its own, and say how many users it carries",
    )  # fmt: skip


def _add_chat(commands: Any) -> None:
    chat = _command(
        commands, "chat", "chat:chat",
        "talk to your agent; the token comes from CERTOSA_TOKEN or --token-file",
    )  # fmt: skip
    chat.add_argument("-m", "--message", metavar="TEXT", help="send one message and leave")
    _add_account(chat)
    chat.add_argument("--model", metavar="AGENT", default="assistant", help="which agent")
    chat.add_argument("--session", metavar="NAME", help="the conversation (default: a fresh one)")


def _add_account(parser: argparse.ArgumentParser) -> None:
    """Which server, and as whom: CERTOSA_TOKEN or a file, never an argument."""
    parser.add_argument("--url", help="the server's address (default: as configured)")
    parser.add_argument("--token-file", metavar="PATH", help="a file that holds the token alone")


def _add_sessions(commands: Any) -> None:
    sessions = _group(commands, "session", "look at your sessions; the token comes as for chat")
    _add_account(_command(sessions, "list", "sessions:list_all", "list your sessions, the latest first"))
    for name, text in (
        ("show", "print a session's messages"),
        ("export", "write all of a session to a file or to stdout"),
        ("delete", "delete a session for good"),
    ):
        one = _command(sessions, name, f"sessions:{name}", text, json=name != "export")
        one.add_argument("id", metavar="ID", help="as `certosa session list` shows it")
        _add_account(one)
        if name == "export":
            one.add_argument("--format", choices=("json", "markdown"), default="markdown")
            one.add_argument("-o", "--output", metavar="PATH", help="a new file (default: stdout)")
        if name == "delete":
            one.add_argument("--yes", action="store_true", help="do not ask")


def _add_agents(commands: Any) -> None:
    agents = _group(commands, "agent", "manage your agents; the token comes as for chat")
    _add_account(_command(agents, "list", "agents:list_all", "list your agents"))
    for name, function, text in (
        ("show", "show", "print an agent as turns use it"),
        ("set", "set_", "make an agent, or change what is named of one"),
        ("delete", "delete", "delete an agent's file"),
    ):
        one = _command(agents, name, f"agents:{function}", text)
        one.add_argument("name", metavar="NAME", help="letters, digits, - and _, at most 64")
        _add_account(one)
        if name != "set":
            continue
        one.add_argument("--file", metavar="PATH", help="a TOML file in place of all it says; - is stdin")
        one.add_argument("--prompt", metavar="TEXT", help="what it is told first")
        one.add_argument("--provider", metavar="NAME", help="as the operator named it")
        one.add_argument("--model", metavar="NAME", help="one of the provider's")
        one.add_argument("--tools", metavar="A,B", help="the tools it may use; empty: none")
        one.add_argument("--ask", metavar="A,B", help="those that act only once you allow it; empty: none")
        one.add_argument("--fallbacks", metavar="P/M,P/M", help="in order; empty: the provider's own")
        one.add_argument(
            "--limit", metavar="NAME=NUMBER", action="append", help="such as rounds=5; may be repeated"
        )


def _add_approvals(commands: Any) -> None:
    approvals = _group(commands, "approval", "answer what your agent asks you; the token comes as for chat")
    _add_account(_command(approvals, "list", "approvals:list_all", "list what waits for you"))
    for name, text in (("allow", "let it act"), ("refuse", "do not let it act")):
        one = _command(approvals, name, f"approvals:{name}", text)
        one.add_argument("id", metavar="ID", help="as the list has it")
        _add_account(one)


def _add_users(commands: Any) -> None:
    users = _group(commands, "user", "manage the users of a running server")
    add = _command(users, "add", "users:add", "add a user")
    add.add_argument("name", help="a to z, 0 to 9, - and _, at most 32")
    _command(users, "list", "users:list_all", "list the users")
    for name, text in (
        ("disable", "let a user's tokens no longer open anything"),
        ("enable", "undo disable"),
        ("delete", "delete a user, their tokens and everything they have stored"),
    ):
        change = _command(users, name, f"users:{name}", text)
        change.add_argument("name")
        if name == "delete":
            change.add_argument("--yes", action="store_true", help="do not ask")


def _add_tokens(commands: Any) -> None:
    tokens = _group(commands, "token", "manage the tokens of a running server")
    new = _command(tokens, "new", "tokens:new", "make a token and print it, this once")
    new.add_argument("user", nargs="?", default="", help="whose; left out with --admin")
    new.add_argument("--admin", action="store_true", help="an administrator's, for /admin/v1")
    new.add_argument("--label", default="", help="what it is for")
    listed = _command(tokens, "list", "tokens:list_all", "list tokens, never what they say")
    listed.add_argument("user", nargs="?", default="", help="of one user (default: of all)")
    listed.add_argument("--admin", action="store_true", help="administrators' instead of users'")
    revoke = _command(tokens, "revoke", "tokens:revoke", "make a token useless, at once")
    revoke.add_argument("token_id", metavar="ID", help="as `certosa token list` shows it")


def _add_pool(commands: Any) -> None:
    pool = _group(commands, "pool", "look at the users' jails, and give them up")
    show = _command(pool, "show", "pool:show", "show the jails: state, age, memory, CPU, uses")
    show.add_argument("--sort", choices=_SORTS, default="user", help="by what (default: %(default)s)")
    show.add_argument(
        "--watch", nargs="?", type=_seconds, const=2.0, metavar="SECONDS",
        help="again every so often until Ctrl-C (default: 2)",
    )  # fmt: skip
    for name, text in (
        ("evict", "have a user's jail go as soon as nothing runs in it; their next message starts another"),
        ("kill", "end a user's jail now; turns that run in it fail"),
        ("release", "start a user's jail again that is held for dying at once"),
    ):
        _command(pool, name, f"pool:{name}", text).add_argument("user", metavar="USER")
    _command(pool, "drain", "pool:drain", "start no jail any more and let all go as they become idle")
    _command(pool, "open", "pool:reopen", "start jails again after drain")


def _add_providers(commands: Any) -> None:
    providers = _group(commands, "provider", "manage the model providers of the configuration")
    add = _command(
        providers, "add", "providers:add",
        "add a provider; its key comes from a prompt or standard input",
    )  # fmt: skip
    add.add_argument("name", help="as agents name it; a preset's name is enough")
    add.add_argument("--preset", choices=sorted(PRESETS), help="a server that is known")
    add.add_argument("--kind", choices=("openai", "anthropic"), help="its wire format")
    add.add_argument("--base-url", metavar="URL", help="up to and with /v1")
    add.add_argument("--users", metavar="A,B", help="who may use it (default: everybody)")
    add.add_argument(
        "--fallback", metavar="PROVIDER/MODEL", action="append", help="in order; may be repeated"
    )
    key = add.add_mutually_exclusive_group()
    key.add_argument("--key", action="store_true", default=None, help="ask for a key")
    key.add_argument("--no-key", dest="key", action="store_false", help="it needs none")
    _command(providers, "list", "providers:list_all", "list the providers, never their keys")
    test = _command(
        providers, "test", "providers:test",
        "have the running server ask a provider for its models and a few words",
    )  # fmt: skip
    test.add_argument("name")
    test.add_argument("--model", default="", help="which model (default: the agents', or the first)")
    remove = _command(providers, "remove", "providers:remove", "remove a provider and its key")
    remove.add_argument("name")


def _add_credentials(commands: Any) -> None:
    credentials = _group(commands, "credential", "keep what your agent may use and nobody may see")
    set_ = _command(
        credentials, "set", "credentials:set_",
        "keep a credential; its value comes from a prompt or standard input",
    )  # fmt: skip
    listed = _command(credentials, "list", "credentials:list_all", "list credentials, never their values")
    delete = _command(credentials, "delete", "credentials:delete", "delete a credential")
    for one in (set_, listed, delete):
        one.add_argument(
            "--operator", action="store_true", help="the operator's, of the running server; needs no token"
        )
        _add_account(one)
    for one in (set_, delete):
        one.add_argument("name", nargs="?", metavar="NAME", help="as agents name it")
        one.add_argument("--provider", metavar="NAME", help="the key of a model provider instead")
    set_.add_argument("--host", help="the only host it is sent to")
    set_.add_argument("--port", type=int, default=0, help="the only port (default: the scheme's)")
    set_.add_argument("--path", default="/", metavar="PREFIX", help="and only below this path (default: /)")
    set_.add_argument("--http", action="store_true", help="over http, where everybody between can read it")
    set_.add_argument("--header", metavar="NAME", help="the header it goes into (default: Authorization)")
    set_.add_argument("--query", metavar="NAME", help="the query parameter it goes into instead")
    set_.add_argument("--username", metavar="NAME", help="basic authentication; the value is the password")
    connect = _command(
        credentials, "connect", "connecting:connect",
        "connect an account elsewhere by OAuth 2: in a browser, or by a code typed in on another device",
    )  # fmt: skip
    connect.add_argument("name", metavar="NAME", help="as agents name it")
    connect.add_argument(
        "--with", dest="provider", metavar="PROVIDER", required=True, help="as `certosa credential providers`"
    )
    connect.add_argument("--device", action="store_true", help="by a code, without a browser here")
    connect.add_argument("--host", default="", help="the only host it is sent to (default: the provider's)")
    connect.add_argument(
        "--path", default="/", metavar="PREFIX", help="and only below this path (default: /)"
    )
    connect.add_argument("--scope", action="append", default=[], help="ask for this alone; may be repeated")
    connect.add_argument("--no-wait", action="store_true", help="print where to go, and leave")
    _add_account(connect)
    _add_account(
        _command(credentials, "providers", "connecting:providers", "list what there is to connect with")
    )
    key = _group(commands, "key", "look after the master key of a running server")
    _command(key, "rotate", "credentials:rotate_key", "make a new master key and wrap everything under it")


def _add_egress(commands: Any) -> None:
    egress = _group(commands, "egress", "say where agents may send requests; the token comes as for chat")
    listed = _command(egress, "list", "egress:list_all", "list your rules, and the operator's for you")
    allow = _command(egress, "allow", "egress:allow", "let your agent send requests to a host")
    remove = _command(egress, "remove", "egress:remove", "remove a rule of yours")
    for one in (listed, allow, remove):
        one.add_argument("--user", metavar="NAME", help="as the operator: of this user; needs no token")
        _add_account(one)
    allow.add_argument("host", metavar="HOST", help="a name, an address, or *.example.com")
    allow.add_argument("--port", type=int, default=0, help="the port (default: the scheme's)")
    allow.add_argument("--http", action="store_true", help="over http, where everybody between can read it")
    allow.add_argument("--methods", metavar="A,B", default="GET,HEAD", help="(default: %(default)s)")
    allow.add_argument("--path", metavar="PREFIX", default="/", help="only below this path (default: /)")
    allow.add_argument("--skill", metavar="NAME", help="for an installed skill instead of your agent")
    remove.add_argument("rule", metavar="RULE", help="as `certosa egress list` shows it")


def _add_oauth(commands: Any) -> None:
    oauth = _group(commands, "oauth", "manage what users may connect accounts with")
    add = _command(
        oauth, "add", "oauth:add",
        "add an OAuth provider; the client's secret comes from a prompt or standard input",
    )  # fmt: skip
    add.add_argument("name", help="as users name it; a preset's name is enough")
    add.add_argument("--preset", choices=sorted(OAUTH_PRESETS), help="one that is known")
    add.add_argument("--client-id", metavar="ID", required=True, help="as the provider knows this server")
    add.add_argument("--token-url", metavar="URL", help="where codes become tokens")
    add.add_argument("--authorize-url", metavar="URL", help="where browsers ask")
    add.add_argument("--device-url", metavar="URL", help="where device codes come from")
    add.add_argument("--host", metavar="HOST", action="append", help="where tokens may go; may be repeated")
    add.add_argument("--scope", metavar="SCOPE", action="append", help="asked for; may be repeated")
    add.add_argument("--users", metavar="A,B", help="who may connect (default: everybody)")
    add.add_argument("--client-auth", choices=("basic", "body"), help="how the secret is sent")
    add.add_argument("--no-secret", action="store_true", help="a public client: it has none")
    _command(oauth, "list", "oauth:list_all", "list the OAuth providers, never their secrets")
    secret = _command(oauth, "secret", "oauth:set_secret", "set a client's secret anew; it counts at once")
    secret.add_argument("name")
    remove = _command(oauth, "remove", "oauth:remove", "remove an OAuth provider and its client's secret")
    remove.add_argument("name")


def _add_usage(commands: Any) -> None:
    usage = _command(commands, "usage", "usage:usage", "show what was used, by day, model and user")
    usage.add_argument("user", nargs="?", default="", help="of one user (default: of all)")
    usage.add_argument("--mine", action="store_true", help="your own; the token comes as for chat")
    usage.add_argument("--day", metavar="DAY", help="one day, such as 2026-12-31 (default: today)")
    usage.add_argument("--since", metavar="DAY", help="from that day on")
    _add_account(usage)
    limits = _group(commands, "limit", "manage what users may use in a day")
    show = _command(limits, "show", "usage:show_limits", "show a user's limits and what is left of them")
    show.add_argument("user")
    change = _command(limits, "set", "usage:set_limits", "give a user limits of their own")
    change.add_argument("user")
    what = "tokens, requests, bytes or cost; the value is a number, none or default; may be repeated"
    change.add_argument("--soft", metavar="NAME=VALUE", action="append", default=[], help=what)
    change.add_argument("--hard", metavar="NAME=VALUE", action="append", default=[], help=what)


def _add_audit(commands: Any) -> None:
    audit = _group(commands, "audit", "look at the log of who did what, and check it")
    show = _command(audit, "show", "audit:show", "print the latest lines that match")
    show.add_argument("--user", default="", help="about this user, or of their doing")
    show.add_argument("--kind", default="", help="such as token_made or limit_reached")
    show.add_argument("--since", default="", metavar="TIME", help="2026-12-31 or 2026-12-31T08:00Z")
    show.add_argument("--until", default="", metavar="TIME", help="the same")
    show.add_argument("--limit", default="100", metavar="N", help="at most so many lines (default: 100)")
    verify = _command(
        audit, "verify", "audit:verify", "find lines that were changed, moved, removed or cut off"
    )  # fmt: skip
    verify.add_argument(
        "path", nargs="?", metavar="PATH",
        help="a copy of DATA, of _keys, of the log, or a file of it (default: a running server's)",
    )  # fmt: skip
    verify.add_argument("--key", metavar="PATH", help="its key, as `certosa audit key` wrote it")
    key = _command(audit, "key", "audit:write_key", "write the log's key to a new file, to check copies with")
    key.add_argument("file", metavar="FILE")
    for one in (verify, key):
        one.add_argument("--vault", metavar="PATH", help="vault.db of the same server")
        one.add_argument("--master-key", metavar="PATH", help="its master key (default: beside vault.db)")


def _add_configuration(commands: Any) -> None:
    config = _group(commands, "config", "look at the configuration")
    _command(config, "check", "configuration:check", "say whether the configuration is right")
    _command(config, "show", "configuration:show", "print every setting with its value")


def _add_backup(commands: Any) -> None:
    backup = _command(
        commands, "backup", "backup:backup",
        "write all of the server's data, keys too, to a file sealed under a passphrase",
    )  # fmt: skip
    restore = _command(commands, "restore", "backup:restore", "put a backup into an empty data directory")
    backup.add_argument("--verify", action="store_true", help="write nothing: read FILE and check it")
    for command, text in ((backup, "a new file"), (restore, "as `certosa backup` wrote it")):
        command.add_argument("file", metavar="FILE", help=text)
        command.add_argument(
            "--passphrase-file", metavar="PATH",
            help="a file that holds it alone (default: asked for, or a line of standard input)",
        )  # fmt: skip
