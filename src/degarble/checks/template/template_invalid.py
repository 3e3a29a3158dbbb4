"""TPL502: a chat template does not parse, does not render, or drops what was said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.checkpoint.gguf import GgufFile
from degarble.checkpoint.json_file import JsonFile
from degarble.checks.template.template_place import FETCH, place_of, title_of
from degarble.evidence.store import Coverage
from degarble.finding import Confidence, Finding, Location, Severity
from degarble.registry import check
from degarble.templates.conversations import ASK_PROMPT, PLAIN, SPECIAL_PROMPT, SYSTEM_PROMPT, TOOLS_PROMPT
from degarble.templates.program import Failure, Problem
from degarble.templates.renderings import Rendering, TemplateRenderings
from degarble.tokenizer.chat_template import MAX_TEMPLATE_BYTES, TEMPLATE_FILE
from degarble.tokenizer.token_claims import TOKEN_ROLES

STANDARD_NAMES = frozenset(("messages", "tools", "documents", "add_generation_prompt", *TOKEN_ROLES))
GGUF_KEY = "tokenizer.chat_template"
TEMPLATE_KEYS = ("tokenizer_config.json", "chat_template.json")
MAX_SHOWN = 120


@check("TPL502", symptom_of=("CFG101", "CKP105"))
def template_invalid(renderings: tuple[TemplateRenderings, ...], coverage: Coverage) -> Iterator[Finding]:
    """A chat template does not parse, does not render, or leaves out what was said.

    ## What it looks for
    Every template is parsed and run in jinja2's immutable sandbox, with what transformers gives it (`raise_exception`,
    `strftime_now`, `tojson`, loop controls, the `generation` tag), for a question, a question to be answered, two
    turns, a system prompt, special characters, and tools if it asks for them. It must give a text in which every
    question and answer stands unchanged. Work and output are counted and limited: a template that asks for more than
    200,000 steps (those in use need some 3,000) or for a text of more than a million characters is an error, and so is
    one that reaches for attributes with underscores, in whichever branch.

    ## Why output turns to garbage
    Where the template fails, servers answer every chat request with an error, or fall back to a format of their own,
    which the model was not trained on. Where it renders without the question, the model answers a prompt that has none.

    ## What you will see
    HTTP 400 or 500 for chat requests while plain completions work; or fluent answers that have nothing to do with the
    question, the same ones again and again.

    ## How to tell it from its look-alikes
    A template that refuses a role or an order by `raise_exception` is healthy as long as it takes a question: Gemma 2
    has no system role, Mistral wants turns to alternate. One named `tool_use` may need tools, and templates of models
    that see take contents as lists of parts; both are tried so. A template that needs variables of its own
    (`functions`, a language) is a warning: somebody has to pass them. What breaks with tools only is a warning.

    ## How to confirm
    `tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)` in a fresh environment.

    ## How to repair it
    Fetch the template of the release. Not safe unattended: an error message says where a template breaks, not what its
    author meant. Never serve a template that reaches for attributes with underscores: it tries to run code.

    ## References
    mudler/LocalAI#11876, huggingface/transformers (chat_template_utils), CVE-2026-5760 (a template of a GGUF file that
    ran code in a server without a sandbox)
    """
    for tried in renderings:
        problem = _unjudged(tried)
        if problem is not None:
            coverage.add(title_of(tried.template), str(problem))
        found = next(_faults(tried), None)
        if found is not None:
            yield found


@check("TPL502", symptom_of=("CFG101", "CKP105"))
def template_is_no_text(
    json_files: Mapping[str, JsonFile], files: Mapping[str, int], gguf: GgufFile | None = None
) -> Iterator[Finding]:
    """The key is there, and what it holds is no template; or the file is too large to be one."""
    for place, stored in _stored(json_files, gguf):
        if stored is not None and not _holds_template(stored):
            yield Finding(
                location=place,
                message=f"{place.file}: {place.key} is {_kind(stored)}: expected a text"
                + ("" if gguf is not None else ", or a list of objects with a name and a template"),
                measured={"type": _kind(stored)},
                bound={"type": "text"},
                fix=FETCH,
            )
    if files.get(TEMPLATE_FILE, 0) > MAX_TEMPLATE_BYTES:
        yield Finding(
            location=Location(file=TEMPLATE_FILE),
            message=f"{TEMPLATE_FILE} has {files[TEMPLATE_FILE]} bytes, more than {MAX_TEMPLATE_BYTES}: it is no template",
            measured={"bytes": files[TEMPLATE_FILE]},
            bound={"bytes": MAX_TEMPLATE_BYTES},
            fix=FETCH,
        )


def _stored(json_files: Mapping[str, JsonFile], gguf: GgufFile | None) -> Iterator[tuple[Location, object]]:
    for file in TEMPLATE_KEYS:
        value = json_files[file].value if file in json_files else None
        if isinstance(value, dict):
            yield Location(file=file, key="chat_template"), value.get("chat_template")
    if gguf is not None:
        yield Location(file=gguf.file, key=GGUF_KEY), gguf.metadata.get(GGUF_KEY)


def _holds_template(stored: object) -> bool:
    if isinstance(stored, str):
        return True
    entries = stored if isinstance(stored, list) else []
    return bool(entries) and all(isinstance(e, dict) and isinstance(e.get("template"), str) for e in entries)


def _kind(stored: object) -> str:
    names: dict[type, str] = {bool: "a truth value", int: "a number", float: "a number", dict: "an object"}
    return names.get(type(stored), "a list without templates" if isinstance(stored, list) else "no text")


def _unjudged(tried: TemplateRenderings) -> Problem | None:
    problems = (tried.problem, *(result.problem for result in tried.results.values()))
    return next((problem for problem in problems if problem and problem.failure is Failure.UNJUDGED), None)


def _faults(tried: TemplateRenderings) -> Iterator[Finding]:
    """The worst first; one template has one finding."""
    title = title_of(tried.template)
    if tried.source.hidden:
        name, line = tried.source.hidden[0]
        yield _finding(
            tried,
            f"{title}: line {line} reads the attribute {name[:MAX_SHOWN]!r}, which no template needs: it "
            "reaches for the inside of Python, to run code of its own",
            line=line,
        )
    if tried.problem is not None and tried.problem.failure is not Failure.UNJUDGED:
        yield _finding(tried, f"{title} {tried.problem}", line=tried.problem.line)
    results = list(tried.results.values())
    for result in results:
        if result.problem is not None and result.problem.failure in (Failure.COSTLY, Failure.UNSAFE):
            yield _finding(tried, f"{title} {result.problem}", line=result.problem.line)
    if not _serves_tools_only(tried):
        yield from _plain_faults(
            tried, [r for r in results if r.conversation in PLAIN and r.conversation is not SYSTEM_PROMPT]
        )
        yield from _minor_faults(tried)


def _serves_tools_only(tried: TemplateRenderings) -> bool:
    with_tools = tried.results.get(TOOLS_PROMPT.name)
    return tried.template.name != "default" and with_tools is not None and with_tools.is_whole


def _plain_faults(tried: TemplateRenderings, results: list[Rendering]) -> Iterator[Finding]:
    title = title_of(tried.template)
    if results and all(r.problem is not None and r.problem.failure is Failure.REFUSED for r in results):
        problem = results[0].problem
        yield _finding(
            tried,
            f"{title} refuses even a single question: {problem.reason if problem else ''}",
            severity=Severity.WARNING,
        )
    for result in results:
        asked = result.conversation.name
        if result.problem is not None and result.problem.failure is Failure.FAILED:
            name = _own_variable(tried, result.problem)
            yield _finding(
                tried,
                f"{title}: {asked}: {result.problem}",
                line=result.problem.line,
                severity=Severity.WARNING if name else None,
            )
        elif result.text is not None and not result.is_whole:
            lost = next(said for said in result.conversation.texts() if said not in result.text)
            last = result.conversation.messages[-1]
            is_question = last["role"] == "user" and last["content"] == lost
            yield _finding(
                tried,
                f"{title}: {asked}: {lost!r} was said, and does not stand in the prompt {result.text[:MAX_SHOWN]!r}",
                severity=None if is_question else Severity.WARNING,
                said=len(lost),
            )


def _own_variable(tried: TemplateRenderings, problem: Problem) -> str | None:
    """The variable that only this template knows, if that is what it lacks."""
    name, _, rest = problem.reason.partition(" is undefined")
    name = name.strip("'")
    return name if not rest and name in tried.source.names - STANDARD_NAMES else None


def _minor_faults(tried: TemplateRenderings) -> Iterator[Finding]:
    """What breaks for some requests only."""
    title = title_of(tried.template)
    special, asked = tried.results.get(SPECIAL_PROMPT.name), tried.results.get(ASK_PROMPT.name)
    is_plain_whole = asked is not None and asked.is_whole
    if is_plain_whole and special is not None and special.text is not None and not special.is_whole:
        said, found = SPECIAL_PROMPT.texts()[0], special.text[-2 * MAX_SHOWN :]
        message = f"{title} changes what was said: {said!r} became part of {found!r}"
        yield _finding(tried, message, severity=Severity.WARNING)
    for conversation in (SPECIAL_PROMPT, SYSTEM_PROMPT, TOOLS_PROMPT):
        result = tried.results.get(conversation.name)
        if result is not None and result.problem is not None and result.problem.failure is Failure.FAILED:
            yield _finding(
                tried,
                f"{title}: {conversation.name}: {result.problem}",
                line=result.problem.line,
                severity=Severity.WARNING,
                confidence=Confidence.LIKELY,
            )


def _finding(
    tried: TemplateRenderings,
    message: str,
    *,
    line: int | None = None,
    severity: Severity | None = None,
    confidence: Confidence | None = None,
    said: int | None = None,
) -> Finding:
    measured = {"line": line} if line is not None else {"characters_lost": said} if said is not None else {}
    return Finding(
        location=place_of(tried.template),
        message=message,
        severity=severity,
        confidence=confidence,
        measured=measured,
        bound={"failures": 0},
        fix=FETCH,
    )
