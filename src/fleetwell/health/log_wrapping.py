"""Takes off what was put around a log's lines after they were printed: by a tool that ships logs, a mail, a web page.

A person pastes a log out of an issue, or hands over what a log service exported. Only what is known to be put there is
taken off, and only where a form of the kernel's log comes out: a program's own message that quotes such a line stays
that program's message.
"""

from __future__ import annotations

import html
import re
from typing import Any, Final

import msgspec

_DAY_TIME: Final = r"\d{2}:\d{2}:\d{2}"
_MONTH: Final = r"(?:[^\W\d_]{3,9}\.?|\d{1,2}[月월])"
_BSD: Final = rf"{_MONTH} {{1,4}}\d{{1,2}} {_DAY_TIME}(?:\.\d{{1,9}})?"
_ISO: Final = rf"\d{{4}}-\d{{2}}-\d{{2}}[T ]{_DAY_TIME}"
_UPTIME: Final = r"\[\s{0,12}\d{1,12}\.\d{1,9}[\] ]"
_CTIME: Final = rf"\[\S{{1,12}} {_MONTH} {{1,4}}\d{{1,2}} {_DAY_TIME} \d{{4}}\]"
_DELTA: Final = r"\[(?:\s{0,4}\+\d{1,6}\.\d{6}|[A-Z][a-z]{2} ?[ \d]\d \d{2}:\d{2})\]"
_BRACKET: Final = rf"(?:{_UPTIME}|{_CTIME}|{_DELTA})"
_KERNEL: Final = r" ?kernel: ?(?=\S)"
_FACILITY: Final = r"kern\s{0,2}:\s{0,7}[a-z]{3,7}\s{0,4}: "
_PLAIN: Final = r"NVRM: |nvidia-nvswitch\d{1,3}: SXid|pcieport \d|mlx5_core \d"

_STAMPED: Final = rf"{_BRACKET}|{_BSD} |{_ISO}|{_FACILITY}|<\d{{1,2}}>"
_FORM: Final = re.compile(rf"(?:{_STAMPED}|{_KERNEL}|{_PLAIN})")
"""How a line may begin that is a kernel log's: nothing is taken off where no such thing comes out."""
_WITH_STAMP: Final = re.compile(rf"(?:{_STAMPED})")

_WRAPS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:\+\s?)?(?:[>|]\s{0,8}){1,4}",  # quoted in a mail or an issue, a cell of a table
        r"\s{0,8}(?:`{1,3}(?:[a-z]{1,12}(?=\s))?\s{0,4}|[*•+-]\s{1,4})",  # code, a list
        r"\s{1,16}",
        r"\s{0,8}</?(?:pre|code|p|div|span|br|li)\b[^<>]{0,80}>\s{0,4}",
        r"\d{1,7}(?:[:)\]-]\s{0,4}|\s{1,4}|(?=\[))",  # line numbers of grep, cat and editors
        rf"[\w.-]{{1,64}}: (?=\s{{0,4}}(?:{_BRACKET}|{_FACILITY}|{_BSD} ))",  # one of many machines, by pdsh and others
        (
            r"[\w./~-]{0,120}(?:log|messages|dmesg|journal|txt)[\w.-]{0,40}:(?:\d{1,7}:)?"
            rf"(?={_BRACKET}|{_BSD} |{_ISO})"
        ),
        r"\[pod/[^\]\s]{1,250}\] ",  # kubectl logs --prefix
        rf"(?:[\w.-]{{1,253}} ){{1,2}}(?={_UPTIME})",  # stern: pod, container
        rf"[\w.-]{{1,253}} login: (?={_UPTIME})",  # a serial console that waits for somebody
        (
            r"\s{0,4}Warning\s{1,8}\w{1,64}\s{1,8}\S.{0,40}?\skernel-monitor(?:, [\w.-]{1,253})?\s{1,8}"
            r"(?=NVRM: |INFO: task )"
        ),
    )
)
"""node-problem-detector's kernel monitor puts the kernel's line into an event as it is."""
_LOST_BRACKET: Final = re.compile(
    rf"(?:\d{{1,12}}\.\d{{6}}|(?:[A-Z][a-z]{{2}} )?{_BSD} \d{{4}})\] (?=NVRM: |pcieport |mlx5_core |nvidia)"
)
"""The first bracket was not copied."""
_SHIPPED: Final = re.compile(
    rf"(?:std(?:out|err) [FP] |[\w./-]{{1,128}} )?(?={_BRACKET}|{_BSD} [^\s:]{{1,255}} \S{{1,64}}: )"
)
_STREAM: Final = 512
"""Within so many bytes the line itself begins, behind the name of a stream and a host."""
_TEXTS: Final = ("message", "log", "textPayload", "MESSAGE")
"""Where log services and container runtimes put the line, in their JSON."""
_WRITERS: Final = ("program", "programname", "appname", "ident", "syslogtag", "SYSLOG_IDENTIFIER", "_TRANSPORT")
"""Where syslog daemons and shippers of the journal name who wrote it."""
_KERNELS_OWN: Final = ("kernel", "kernel:")
_FIELD: Final = re.compile(r'\s{0,32}"(?:message|log|textPayload|MESSAGE)"\s?: ?("(?:[^"\\]|\\.){1,4096}"),?\s*\Z')
_MOST: Final = 4
_FEWEST_COLONS: Final = 2
"""A time of day has them, and so has a kernel's line that is in an event."""
_ENDS: Final = re.compile(r"(?:`{1,3}|</(?:pre|code|p|div|span|li)>|\s\|)+\s*\Z")


def shipped(rest: str) -> str | None:
    """Give the line that a log service or a container runtime put behind a time of its own; None where it is not so."""
    if "[" not in rest[:_STREAM] and " kernel: " not in rest[:_STREAM]:
        return None  # nearly all lines: the time was the kernel log's own
    match = _SHIPPED.match(rest)
    return rest[match.end() :] if match is not None else None


def in_json(line: str) -> str:
    """Give the line that stands in a log service's JSON; empty where none does.

    A program's own JSON has a message too, and may quote the kernel there: only a line with a log's own time counts, or
    one of which the daemon says that the kernel wrote it.
    """
    entry = _decoded(line)
    texts = [entry[key] for key in _TEXTS if key in entry] if isinstance(entry, dict) else []
    if not texts:
        return ""
    named = [entry[key] for key in _WRITERS if key in entry]
    if named and all(name in _KERNELS_OWN for name in named):
        return _stamped(texts[0]) or _tagged(texts[0])
    return _stamped(texts[0])


def _tagged(text: object) -> str:
    return f"kernel: {text.strip()}" if isinstance(text, str) else ""


def _stamped(text: object) -> str:
    return text.strip() if isinstance(text, str) and _WITH_STAMP.match(text) is not None else ""


def _decoded(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def unwrap(line: str) -> str:
    """Give the line that stands within another one; empty where it is not known to be wrapped."""
    if "&gt;" in line or "&lt;" in line or "&#" in line or "&quot;" in line:
        line = html.unescape(line)
    if line[:1].isalpha() and "[" not in line and line.count(":") < _FEWEST_COLONS:
        return ""  # nearly all lines that have no time: no log's line follows
    if (field := _FIELD.match(line)) is not None:
        return _stamped(_decoded(field[1]))
    inner = line
    for _ in range(_MOST):
        if _LOST_BRACKET.match(inner):
            return _ENDS.sub("", f"[{inner}")
        for wrap in _WRAPS:
            match = wrap.match(inner)
            if match is not None and match.end():
                inner = inner[match.end() :]
                break
        else:
            return ""
        if _FORM.match(inner):
            return _ENDS.sub("", inner)
    return ""
