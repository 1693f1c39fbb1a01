"""The texts a corpus is made of: the language reference inside CPython, or a user's own folder."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from orchestrator.errors import UsageError

SUFFIXES: Final = frozenset({".md", ".txt", ".html", ".htm"})


@dataclass(frozen=True)
class Page:
    """One document: its true address, its title, and its text as paragraphs between blank lines."""

    url: str
    title: str
    text: str
    published: str | None = None


_DOCS: Final = "https://docs.python.org/3/"
_TOPICS: Final[dict[str, str]] = {
    "assert": "reference/simple_stmts.html#the-assert-statement",
    "assignment": "reference/simple_stmts.html#assignment-statements",
    "async": "reference/compound_stmts.html#coroutines",
    "atom-identifiers": "reference/expressions.html#atom-identifiers",
    "atom-literals": "reference/expressions.html#atom-literals",
    "attribute-access": "reference/datamodel.html#customizing-attribute-access",
    "attribute-references": "reference/expressions.html#attribute-references",
    "augassign": "reference/simple_stmts.html#augmented-assignment-statements",
    "await": "reference/expressions.html#await-expression",
    "binary": "reference/expressions.html#binary-arithmetic-operations",
    "bitwise": "reference/expressions.html#binary-bitwise-operations",
    "bltin-code-objects": "library/stdtypes.html#code-objects",
    "bltin-ellipsis-object": "library/stdtypes.html#the-ellipsis-object",
    "bltin-null-object": "library/stdtypes.html#the-null-object",
    "bltin-type-objects": "library/stdtypes.html#type-objects",
    "booleans": "reference/expressions.html#boolean-operations",
    "break": "reference/simple_stmts.html#the-break-statement",
    "callable-types": "reference/datamodel.html#emulating-callable-objects",
    "calls": "reference/expressions.html#calls",
    "class": "reference/compound_stmts.html#class-definitions",
    "comparisons": "reference/expressions.html#comparisons",
    "compound": "reference/compound_stmts.html",
    "context-managers": "reference/datamodel.html#with-statement-context-managers",
    "continue": "reference/simple_stmts.html#the-continue-statement",
    "conversions": "reference/expressions.html#arithmetic-conversions",
    "customization": "reference/datamodel.html#basic-customization",
    "debugger": "library/pdb.html",
    "del": "reference/simple_stmts.html#the-del-statement",
    "dict": "reference/expressions.html#dictionary-displays",
    "dynamic-features": "reference/executionmodel.html#interaction-with-dynamic-features",
    "else": "reference/compound_stmts.html#the-if-statement",
    "exceptions": "reference/executionmodel.html#exceptions",
    "execmodel": "reference/executionmodel.html",
    "exprlists": "reference/expressions.html#expression-lists",
    "floating": "reference/lexical_analysis.html#floating-point-literals",
    "for": "reference/compound_stmts.html#the-for-statement",
    "formatstrings": "library/string.html#format-string-syntax",
    "function": "reference/compound_stmts.html#function-definitions",
    "global": "reference/simple_stmts.html#the-global-statement",
    "id-classes": "reference/lexical_analysis.html#reserved-classes-of-identifiers",
    "identifiers": "reference/lexical_analysis.html#identifiers",
    "if": "reference/compound_stmts.html#the-if-statement",
    "imaginary": "reference/lexical_analysis.html#imaginary-literals",
    "import": "reference/simple_stmts.html#the-import-statement",
    "in": "reference/expressions.html#membership-test-operations",
    "integers": "reference/lexical_analysis.html#integer-literals",
    "lambda": "reference/expressions.html#lambda",
    "lists": "reference/expressions.html#list-displays",
    "naming": "reference/executionmodel.html#naming-and-binding",
    "nonlocal": "reference/simple_stmts.html#the-nonlocal-statement",
    "numbers": "reference/lexical_analysis.html#numeric-literals",
    "numeric-types": "reference/datamodel.html#emulating-numeric-types",
    "objects": "reference/datamodel.html#objects-values-and-types",
    "operator-summary": "reference/expressions.html#operator-precedence",
    "pass": "reference/simple_stmts.html#the-pass-statement",
    "power": "reference/expressions.html#the-power-operator",
    "raise": "reference/simple_stmts.html#the-raise-statement",
    "return": "reference/simple_stmts.html#the-return-statement",
    "sequence-types": "reference/datamodel.html#emulating-container-types",
    "shifting": "reference/expressions.html#shifting-operations",
    "slicings": "reference/expressions.html#slicings",
    "specialattrs": "library/stdtypes.html#special-attributes",
    "specialnames": "reference/datamodel.html#special-method-names",
    "string-methods": "library/stdtypes.html#string-methods",
    "strings": "reference/lexical_analysis.html#strings",
    "subscriptions": "reference/expressions.html#subscriptions",
    "truth": "library/stdtypes.html#truth-value-testing",
    "try": "reference/compound_stmts.html#the-try-statement",
    "types": "reference/datamodel.html#the-standard-type-hierarchy",
    "typesfunctions": "library/stdtypes.html#functions",
    "typesmapping": "library/stdtypes.html#mapping-types-dict",
    "typesmethods": "library/stdtypes.html#methods",
    "typesmodules": "library/stdtypes.html#modules",
    "typesseq": "library/stdtypes.html#sequence-types-list-tuple-range",
    "typesseq-mutable": "library/stdtypes.html#mutable-sequence-types",
    "unary": "reference/expressions.html#unary-arithmetic-and-bitwise-operations",
    "while": "reference/compound_stmts.html#the-while-statement",
    "with": "reference/compound_stmts.html#the-with-statement",
    "yield": "reference/simple_stmts.html#the-yield-statement",
}
"""Where each topic of `pydoc` stands in the documentation; all of them exist in CPython 3.11 to 3.14."""


def python_reference() -> list[Page]:
    """The language reference that this interpreter ships, each topic under its docs.python.org address."""
    from pydoc_data.topics import topics

    pages: dict[str, Page] = {}
    for topic, address in _TOPICS.items():
        if topic in topics:
            url = _DOCS + address
            text = "\n\n".join(paragraphs(topics[topic], width=_PYDOC_WIDTH))
            manual = "standard library" if address.startswith("library/") else "language reference"
            heading = text.partition("\n")[0].removeprefix("## ").replace('"', "")
            pages.setdefault(url, Page(url, f"{heading} — Python {manual}", text))
    return list(pages.values())


def folder(path: Path) -> list[Page]:
    """Every Markdown, text and HTML file under `path`, with its `file:` address.

    Raises `UsageError` where the folder or a file in it cannot be read, or none of the files holds any text.
    """
    if not path.is_dir():
        raise UsageError(f"--corpus {path}: {'is not a folder' if path.exists() else 'does not exist'}.")
    try:
        pages = [page for file in _files(path) if (page := read_file(file)).text]
    except OSError as error:
        raise UsageError(f"--corpus {path}: {error.filename} cannot be read: {error.strerror}.") from error
    if not pages:
        kinds = ", ".join(sorted(SUFFIXES))
        raise UsageError(f"--corpus {path}: no file in it ({kinds}) holds any text.")
    return pages


def _files(path: Path) -> Iterator[Path]:
    for found in sorted(path.iterdir()):
        if found.name.startswith("."):
            continue
        if found.is_dir() and not found.is_symlink():
            yield from _files(found)
        elif found.suffix.lower() in SUFFIXES and found.is_file():
            yield found


def read_file(file: Path) -> Page:
    """One file of a user's folder as a page; raises `OSError` where it cannot be read."""
    is_html = file.suffix.lower() in {".html", ".htm"}
    text = decode(file.read_bytes(), is_html=is_html)
    if is_html:
        title, text = html_text(text)
    else:
        text = _FRONT_MATTER.sub("", text, count=1)
        title = _first_heading(text) if file.suffix.lower() == ".md" else ""
    text = "\n\n".join(paragraphs(text))
    return Page(file.absolute().as_uri(), title or file.stem, text)


_FRONT_MATTER: Final = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_FENCED: Final = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_HEADING: Final = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$|^(.+)\n(?:=+|-{3,})[ \t]*$", re.MULTILINE)


def _first_heading(markdown: str) -> str:
    found = _HEADING.search(_FENCED.sub("", markdown))
    return (found[1] or found[2]).strip() if found else ""


# --- bytes to text -------------------------------------------------------------------------------------

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_META_CHARSET: Final = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)


def decode(data: bytes, *, is_html: bool = False) -> str:
    """Text of unknown encoding: byte order mark, UTF-8, what HTML declares, else Windows-1252."""
    return (
        _decoded(data, is_html)
        .replace("\r\n", "\n")
        .replace("\r", "\n")
        .replace("\0", "\N{REPLACEMENT CHARACTER}")
    )


def _decoded(data: bytes, is_html: bool) -> str:
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        declared = _META_CHARSET.search(data[:4096]) if is_html else None
    try:
        encoding = codecs.lookup(declared[1].decode("ascii")).name if declared else "cp1252"
        return data.decode(encoding, errors="replace")
    except LookupError:
        return data.decode("cp1252", errors="replace")


# --- HTML to text --------------------------------------------------------------------------------------

_SILENT: Final = frozenset({"script", "style", "template", "noscript", "svg", "head", "title"})
_BLOCKS: Final = frozenset(
    re.findall(
        r"\w+",
        """address article aside blockquote body br caption dd details div dl dt fieldset figcaption figure
        footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre section summary table tbody td th
        tr ul""",
    )
)

_BREAKS: Final = {"br": "\n", "pre": "\n\n```\n"}


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title = ""
        self.heading = ""
        self._open: list[str] = []
        """The open elements that change how text is read: silent ones, `title`, `h1`, `pre`."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "body":
            self._open.clear()  # a head that was never closed ends here
        if tag in _BLOCKS:
            self.parts.append(_BREAKS.get(tag, "\n\n"))
        if tag in _SILENT or tag in {"h1", "pre"}:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(tag) :]
        if tag in _BLOCKS:
            self.parts.append("\n```\n\n" if tag == "pre" else "\n\n")

    def handle_data(self, data: str) -> None:
        inner = self._open[-1] if self._open else ""
        if inner == "title":
            self.title += data
        elif not _SILENT.intersection(self._open):
            self.parts.append(data if "pre" in self._open else re.sub(r"\s+", " ", data))
            if inner == "h1" and not self.heading.endswith("\n"):
                self.heading += data


def html_text(html: str) -> tuple[str, str]:
    """Title and readable text of an HTML page; scripts, styles and other unseen parts are left out."""
    parser = _Text()
    parser.feed(html)
    parser.close()
    title = " ".join((parser.title or parser.heading).split())
    return title, "".join(parser.parts)


# --- text to paragraphs --------------------------------------------------------------------------------

_PYDOC_WIDTH: Final = 70
_SHORTEST_WRAP: Final = 40
_RAGGED: Final = 12
"""How much shorter than the longest line a line may be that somebody wrapped by hand."""
_RULE: Final = re.compile(r"([*=\-~^\"#])\1{2,}")
_STARTS_A_LINE: Final = re.compile(r"\s*([-*+•|>#]|\d+[.)]|::=|>>>|\.\.\.)")


def paragraphs(text: str, width: int | None = None) -> list[str]:
    """The blocks between blank lines, underlined headings as `## Heading`, wrapped lines joined again.

    `width` is the column the text was wrapped at; without it, a block's longest line tells. Fenced code keeps
    its lines.
    """
    found = []
    fenced = False
    for lines in _blocks(text.expandtabs(4).split("\n")):
        fences = sum(line.lstrip().startswith(("```", "~~~")) for line in lines)
        found.append("\n".join(lines) if fenced or fences else _block(lines, width))
        fenced ^= fences % 2 == 1
    return [block for block in found if block.strip()]


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    block: list[str] = []
    for line in lines:
        if line.strip():
            block.append(line.rstrip())
        elif block:
            yield block
            block = []
    if block:
        yield block


def _block(lines: list[str], width: int | None) -> str:
    if len(lines) == 2 and _RULE.fullmatch(lines[1]):
        return f"## {lines[0].strip()}"
    if len(lines) == 1 and _RULE.fullmatch(lines[0]):
        return ""
    limit = width or max(_SHORTEST_WRAP, *map(len, lines)) - _RAGGED
    joined = [lines[0]]
    last = lines[0]
    for line in lines[1:]:
        overlong = width is not None and len(last) > width  # whatever wrapped the text let this line alone
        if not overlong and _wrapped(last, line, limit):
            # A line that ends in a hyphen was broken inside a word.
            joint = "" if re.search(r"\w-$", last) else " "
            joined[-1] += joint + line.strip()
        else:
            joined.append(line)
        last = line
    return "\n".join(joined) if len(joined) > 1 else joined[0].strip()


def _wrapped(line: str, following: str, limit: int) -> bool:
    """Whether `following` goes on where `line` ran out of room: its first word would not have fitted."""
    if _STARTS_A_LINE.match(following) or line.lstrip().startswith(("|", "+-")):
        return False
    word = re.match(r"\s*([^\s-]*-?)", following)
    return len(line) + 1 + len(word[1] if word else "") > limit
