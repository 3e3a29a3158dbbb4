"""config.json in the encoding that JSON has."""

from __future__ import annotations

from degarble.checkpoint.json_file import MAX_JSON_BYTES, parse_json
from degarble.errors import MalformedFile
from degarble.fixes.interface import repair
from degarble.fixes.job import Job

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@repair("reencode-config")
def reencode_config(job: Job) -> None:
    """Write the config in UTF-8 without a byte order mark.

    ## What it changes
    The encoding of the named JSON file; every character stays.

    ## Why there is one answer
    The file says by its first bytes which encoding it is in, and what follows is valid JSON in it.

    ## What it cannot do
    Complete a file that was cut, or guess at one that is no JSON in any encoding: such a config has to be fetched.
    """
    name = job.finding.location.file or ""
    source = job.evidence.get("source")
    if not 0 < source.files().get(name, 0) <= MAX_JSON_BYTES:
        raise job.cannot(f"{name} is not there, or too large", files=[name])
    raw: bytes = source.read(name)
    try:
        text = raw.decode("utf-16") if raw[:2] in UTF_16_MARKS else raw.removeprefix(BYTE_ORDER_MARK).decode()
        parse_json(text.encode(), name)
    except (UnicodeError, MalformedFile):
        raise job.cannot(f"{name} is no JSON in any encoding; take it from the source model", files=[name]) from None
    job.write_file(name, text.encode(), "written in UTF-8")
