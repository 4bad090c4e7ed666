"""The built-in assistant's rules: what was said in, what to answer or which tool to call out. Pure.

It is no language model. It reads plain requests by patterns, so that the whole machine can be seen
at work offline, and says so. A request may have several steps, parted by lines beginning with
"then".
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from jail.wire.schema import Message, ToolSpec, attached

NOTES = "notes.txt"
WHO = (
    "I am Certosa's built-in assistant: a few rules, not a language model. I work offline, and the"
    " tools I call are real and act in your own jail."
)
HELP = (
    f"{WHO}\n\nI understand:\n"
    "- list files, or: list files in DIR\n"
    "- read NAME\n"
    "- write NAME: TEXT\n"
    "- run: COMMAND\n"
    "- python: CODE\n"
    "- search: PATTERN\n"
    "- show NAME, a picture\n"
    "- remember TEXT, and: what do you remember?\n"
    "- fetch URL\n"
    "- help\n"
    'Several steps work too, each on a line that begins with "then".'
)
_UNCLEAR = f'{WHO} I did not understand that; say "help" and I list what I do.'
_MAX_CITED = 4_000
_WHAT = {"text/plain": "a text", "application/pdf": "a PDF file"}

# A tool's parameters may be named in more than one way: the first that its schema has is taken.
_PATH = ("path", "file", "name", "directory")
_TEXT = ("content", "text", "contents")
_COMMAND = ("command", "cmd")
_CODE = ("code", "source")
_URL = ("url",)
_PATTERN = ("pattern", "query", "regex")


class Step(NamedTuple):
    """One step: a tool to call and how to speak of it, or only something to say (no tool)."""

    tool: str
    values: tuple[tuple[tuple[str, ...], str], ...] = ()
    doing: str = ""
    tell: Callable[[str], str] = str


class Next(NamedTuple):
    """What the assistant does now: some text, and a call (tool's name, JSON arguments) or None."""

    text: str
    call: tuple[str, str] | None


def respond(
    messages: Sequence[Message], tools: Sequence[ToolSpec], files: Mapping[str, bytes] | None = None
) -> Next:
    """What to do, given the conversation so far, the tools offered, and what is attached, by path."""
    at = next((i for i in reversed(range(len(messages))) if messages[i].role == "user"), None)
    if at is None:
        return Next(HELP, None)
    results = [message.text for message in messages[at + 1 :] if message.role == "tool"]
    offered = {tool.name: tool for tool in tools}
    request, came = _without_files(messages[at], files or {})
    # what came is said once, before the first tool
    first = came if at == len(messages) - 1 else []
    said = list(first)
    for step in _plan(request, messages[:at]) if request or not came else ():
        spec = offered.get(step.tool)
        if not step.tool:
            said.append(step.tell(""))
        elif spec is None:
            said.append(f"I would need the tool {step.tool} for that, and I was not offered it.")
        elif results:
            said.append(step.tell(_cited(results.pop(0))))
        else:
            doing = "\n\n".join([*first, step.doing])
            return Next(doing, (step.tool, _arguments(spec, step.values)))
    return Next("\n\n".join(said), None)


def _without_files(message: Message, files: Mapping[str, bytes]) -> tuple[str, list[str]]:
    """A request without what cites its files, and a sentence about each of them."""
    text, said = message.text, []
    for attachment in message.attachments:
        text = text.replace(attached(attachment.path), "")
        came = len(files.get(attachment.path, b""))
        what = _WHAT.get(attachment.media_type, "a picture")
        seen = "and it reached me" if came else "but it did not reach me"
        said.append(f"I got {attachment.path}: {what} of {attachment.size_bytes} bytes, {seen}.")
    return text.strip(), said


def _plan(request: str, earlier: Sequence[Message]) -> list[Step]:
    parts = re.split(r"\n[ \t]*then\b[:,]?[ \t]*", request.strip(), flags=re.IGNORECASE)
    return [_step(part.strip(), earlier) for part in parts]


def _step(request: str, earlier: Sequence[Message]) -> Step:
    for pattern, make in _RULES:
        if found := pattern.fullmatch(request):
            return make(*(group or "" for group in found.groups()))
    if _RECALL.fullmatch(request):
        return _recall(earlier)
    return _say(_UNCLEAR)


def _say(text: str) -> Step:
    return Step("", tell=lambda _: text)


def _list(directory: str) -> Step:
    where = f"in {_bare(directory)}" if directory else "in your home"
    values = ((_PATH, _bare(directory)),) if directory else ()
    return Step(
        "list_files",
        values,
        f"Let me look {where}.",
        lambda result: f"This is {where}:\n{result}",
    )


def _read(name: str) -> Step:
    name = _bare(name)
    return Step(
        "read_file",
        ((_PATH, name),),
        f"Let me read {name}.",
        lambda result: f"{name} reads:\n{result}",
    )


def _write(name: str, text: str) -> Step:
    name = _bare(name)
    return Step(
        "write_file",
        ((_PATH, name), (_TEXT, text)),
        f"I write {name}.",
        lambda result: f"I asked for {name} to be written and was told: {result}",
    )


def _run(command: str) -> Step:
    command = _bare(command)
    return Step(
        "run_command",
        ((_COMMAND, command),),
        f"I run `{command}`.",
        lambda result: f"I ran `{command}`, and this came back:\n{result}",
    )


def _python(code: str) -> Step:
    code = re.sub(r"\A```(?:python)?\n(.*?)\n?```\Z", r"\1", code, flags=re.DOTALL)
    return Step(
        "run_python",
        ((_CODE, code),),
        "I run this in Python.",
        lambda result: f"Python answered:\n{result}",
    )


def _search(pattern: str) -> Step:
    pattern = _bare(pattern)
    return Step(
        "search_files",
        ((_PATTERN, pattern),),
        f"I search your files for {pattern}.",
        lambda result: f"Searching for {pattern} gave:\n{result}",
    )


def _show(name: str) -> Step:
    name = _bare(name)
    return Step(
        "show_picture",
        ((_PATH, name),),
        f"I show you {name}.",
        lambda result: f"I asked for {name} to be shown and was told: {result}",
    )


def _remember(what: str) -> Step:
    what = " ".join(what.split())
    command = f"printf '%s\\n' {shlex.quote(what)} >> {NOTES} && echo noted"
    return Step(
        "run_command",
        ((_COMMAND, command),),
        f"I write that into {NOTES}.",
        lambda result: f"I asked for this to be kept in {NOTES}: {what}\nThe answer was: {result}",
    )


def _recall(earlier: Sequence[Message]) -> Step:
    told = [
        " ".join(found[1].split())
        for message in earlier
        if message.role == "user" and (found := _REMEMBER.fullmatch(message.text.strip()))
    ]
    here = "".join(f"\n- {what}" for what in told)
    history = f"\nIn this session you told me:{here}" if told else ""
    return Step(
        "read_file",
        ((_PATH, NOTES),),
        f"Let me look into {NOTES}.",
        lambda result: f"{NOTES} reads:\n{result}{history}",
    )


def _fetch(url: str) -> Step:
    return Step(
        "http_fetch",
        ((_URL, _bare(url)),),
        f"I ask for {url[:200]}.",
        lambda result: f"I asked the server to fetch it, and this came back:\n{result}",
    )


def _rule(pattern: str) -> re.Pattern[str]:
    """A rule's pattern. What follows a run of spaces must not match a space itself: the text is
    anybody's, up to a megabyte, and a pattern that backtracks by squares would stop every chat.
    """
    return re.compile(rf"(?:please\s+)?{pattern}", re.IGNORECASE | re.DOTALL)


_REMEMBER = _rule(r"remember(?:\s+that)?:?\s+(.+)")
_RECALL = _rule(r"(?:what\s+do\s+you\s+(?:remember|know).*|recall(?:\s.*)?|what\s+did\s+i\s+tell\s+you.*)")
_RULES: tuple[tuple[re.Pattern[str], Callable[..., Step]], ...] = (
    (_rule(r"(?:help|\?|what\s+can\s+you\s+do)[?.!]*"), lambda: _say(HELP)),
    (
        _rule(r"(?:hi|hello|hey|good\s+(?:morning|day|evening))\b[^\n]{0,80}"),
        lambda: _say(f'Hello! {WHO} Say "help" and I list what I do.'),
    ),
    (_rule(r"(?:who|what)\s+are\s+you[?.!]*"), lambda: _say(WHO)),
    (_rule(r"(?:list|show)(?:\s+(?:my|the|all))*\s+files(?:\s+in\s+(\S[^\n]*?))?[.!?]?"), _list),
    (_rule(r"ls(?:\s+(\S+))?"), _list),
    (_rule(r"run:\s*(\S.*)"), _run),
    (_rule(r"\$\s+(\S.*)"), _run),
    (_rule(r"write\s+(?:(?:the\s+)?file\s+)?([^\s:][^\n:]*):[ \t]?(.*)"), _write),
    (_rule(r"read\s+(?:(?:the\s+)?file\s+)?(\S[^\n]*)"), _read),
    (_rule(r"python:\s*(\S.*)"), _python),
    (_rule(r"search(?:\s+for)?:\s*(\S[^\n]*)"), _search),
    (_rule(r"show\s+(?:me\s+)?(?:the\s+)?file\s+(\S[^\n]*)"), _read),
    (_rule(r"show\s+(?:me\s+)?(?:the\s+)?(?:picture\s+)?(\S[^\n]*)"), _show),
    (_REMEMBER, _remember),
    (_rule(r"fetch:?\s+(\S+)"), _fetch),
)


def _bare(text: str) -> str:
    """Without the quotes or backquotes that people put around names and commands."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"`" and text[0] not in text[1:-1]:
        return text[1:-1]
    return text


def _cited(result: str) -> str:
    result = result.strip()
    if len(result) > _MAX_CITED:
        return f"{result[:_MAX_CITED]}\n(and {len(result) - _MAX_CITED} characters more)"
    return result or "(nothing)"


def _arguments(spec: ToolSpec, values: tuple[tuple[tuple[str, ...], str], ...]) -> str:
    try:
        schema = msgspec.json.decode(spec.parameters)
    except (msgspec.MsgspecError, RecursionError):
        schema = {}
    known = schema.get("properties") if isinstance(schema, dict) else None
    known = known if isinstance(known, dict) else {}
    arguments = {next((name for name in names if name in known), names[0]): value for names, value in values}
    return msgspec.json.encode(arguments).decode()
