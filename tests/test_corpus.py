"""The corpus of the stand-ins: the language reference inside CPython, and a user's own folder."""

from __future__ import annotations

import codecs
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from pydoc_data.topics import topics  # type: ignore[import-untyped,unused-ignore]
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.offline import documents
from orchestrator.offline.corpus import PASSAGE_CHARS, Corpus, match_expression, split

REFERENCE = "https://docs.python.org/3/reference/"
LIBRARY = "https://docs.python.org/3/library/"


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.load()


def write(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


# --- the Python language reference -----------------------------------------------------------------------


def test_every_topic_with_an_address_is_in_this_interpreter() -> None:
    assert set(documents._TOPICS) <= set(topics)


def test_every_page_stands_in_the_documentation_under_a_title_a_person_can_read(corpus: Corpus) -> None:
    for page in corpus:
        address = urlsplit(page.url)
        assert (address.scheme, address.hostname) == ("https", "docs.python.org")
        assert address.path.startswith(("/3/reference/", "/3/library/")) and address.path.endswith(".html")
        name, _, manual = page.title.partition(" — Python ")
        assert name and manual in {"language reference", "standard library"}
        assert '"' not in page.title and "\n" not in page.title


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"{REFERENCE}compound_stmts.html#the-with-statement", "guarantees that if the"),
        (f"{REFERENCE}simple_stmts.html#the-global-statement", "interpreted as globals"),
        (f"{REFERENCE}expressions.html#operator-precedence", "lowest precedence"),
        (f"{REFERENCE}datamodel.html#special-method-names", "operator overloading"),
        (f"{REFERENCE}executionmodel.html#naming-and-binding", "Names are introduced by name binding"),
        (f"{REFERENCE}lexical_analysis.html#integer-literals", "no limit for the length of integer literals"),
        (f"{LIBRARY}stdtypes.html#truth-value-testing", "considered true unless"),
        (f"{LIBRARY}string.html#format-string-syntax", "replacement fields"),
        (f"{LIBRARY}pdb.html", "interactive source code debugger"),
    ],
)
def test_an_address_leads_to_the_text_that_stands_there(corpus: Corpus, url: str, words: str) -> None:
    page = corpus.page(url)
    assert page is not None and page.url == url
    assert words.replace("*", "") in " ".join(page.text.replace("*", "").split())


@pytest.mark.parametrize(
    "spelling",
    [
        "https://docs.python.org/3/reference/compound_stmts.html#the-with-statement",
        "http://docs.python.org/3/reference/compound_stmts.html#the-with-statement",
        "https://DOCS.python.org:443/3/reference/compound_stmts.html#the-with-statement",
    ],
)
def test_spellings_of_one_address_are_one_page(corpus: Corpus, spelling: str) -> None:
    page = corpus.page(spelling)
    assert page is not None and page.title == "The with statement — Python language reference"


def test_a_document_is_found_without_an_anchor_and_with_one_that_nobody_knows(corpus: Corpus) -> None:
    """The whole page then, put together from its sections where CPython ships only those."""
    whole = corpus.page(f"{REFERENCE}simple_stmts.html")
    assert whole is not None and "nonlocal" in whole.text and "assert_stmt" in whole.text
    assert corpus.page(f"{REFERENCE}simple_stmts.html#no-such-section") == whole
    assert corpus.page("https://docs.python.org/3/tutorial/index.html") is None
    assert corpus.page("not a url at all: [") is None


def test_wrapped_lines_are_joined_and_code_keeps_its_lines(corpus: Corpus) -> None:
    page = corpus.page(f"{REFERENCE}compound_stmts.html#the-with-statement")
    assert page is not None
    assert "execution of a block with methods defined by a context manager" in page.text
    assert "with EXPRESSION as TARGET:\n" in page.text
    assert "****" not in page.text and page.text.startswith('## The "with" statement\n\n')


@pytest.mark.parametrize(
    ("question", "address"),
    [
        ("How does the with statement handle exceptions?", "with-statement"),
        ("What is a coroutine?", "#coroutines"),
        ("What does the nonlocal statement do?", "#the-nonlocal-statement"),
        ("When is the else clause of a for loop executed?", "#the-for-statement"),
        ("What happens in the finally clause when an exception is raised?", "#the-try-statement"),
        ("How are default parameter values evaluated?", "#function-definitions"),
        ("What does __slots__ do?", "#customizing-attribute-access"),
        ("How do I set a breakpoint in pdb?", "pdb.html"),
        ("What values are considered false?", "#truth-value-testing"),
    ],
)
def test_a_question_finds_the_page_that_answers_it_first(corpus: Corpus, question: str, address: str) -> None:
    assert address in corpus.search(question)[0].page.url


def test_excerpts_are_passages_of_the_page_best_first(corpus: Corpus) -> None:
    hits = corpus.search("How does the with statement handle exceptions?", limit=3, passages=2)
    assert len(hits) == 3
    for hit in hits:
        assert 1 <= len(hit.excerpts) <= 2
        for excerpt in hit.excerpts:
            assert len(excerpt) < 4 * PASSAGE_CHARS
            assert all(paragraph in hit.page.text for paragraph in excerpt.split("\n\n"))


def test_all_passages_of_a_page_come_with_the_fitting_ones_first(corpus: Corpus) -> None:
    page = corpus.page(f"{REFERENCE}compound_stmts.html")
    assert page is not None
    passages = corpus.excerpts(page, "match statement guard")
    assert sorted(passages) == sorted(split(page.text))
    assert "guard" in passages[0].lower()


def test_a_page_that_is_not_accepted_leaves_its_place_to_the_next(corpus: Corpus) -> None:
    hits = corpus.search("with statement", limit=5, accepts=lambda page: "/library/" in page.url)
    assert hits and all("/library/" in hit.page.url for hit in hits)


# --- queries ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        'foo" OR NEAR(',
        "text: *",
        "a AND NOT b",
        "page:1",
        '"',
        "^with",
        "({[",
        "x\0y",
        "\ud83d with",
        "'; DROP",
    ],
)
def test_search_syntax_in_a_question_is_only_words(corpus: Corpus, query: str) -> None:
    corpus.search(query)


@given(st.text(alphabet=st.characters(), max_size=80))
def test_any_text_is_a_query(query: str) -> None:
    SMALL.search(query)


SMALL = Corpus([documents.Page("https://a.example/", "One", "Some text.")])


def test_a_query_without_words_finds_nothing(corpus: Corpus) -> None:
    assert corpus.search("") == corpus.search(" ?!… ___ ") == []


def test_words_that_every_question_has_are_left_out_unless_there_are_no_others() -> None:
    assert (
        match_expression("How does the with statement work?")
        == '"with" OR "statement" OR "work" OR "with statement" OR "statement work"'
    )
    assert match_expression("what is it") == '"what" OR "is" OR "it"'


def test_a_question_of_any_length_is_cut_to_its_first_words(corpus: Corpus) -> None:
    first = corpus.search("with statement " + "padding " * 40_000)[0]
    assert first.page.title.startswith("The with statement")


def test_several_threads_may_search_at_once(corpus: Corpus) -> None:
    expected = [hit.page.url for hit in corpus.search("coroutine")]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: [hit.page.url for hit in corpus.search("coroutine")], range(64)))
    assert all(urls == expected for urls in found)


# --- a user's folder -------------------------------------------------------------------------------------


def test_markdown_text_and_html_files_are_pages_with_their_own_addresses(tmp_path: Path) -> None:
    markdown = write(
        tmp_path,
        "notes/Été 1.md",
        "---\ntags: x\n---\n```\n# not this\n```\n# Solar *power*\n\nPanels cost 2 euro.\n",
    )
    text = write(tmp_path, "plain.txt", "Wind turbines stand\nin the north sea.")
    page = write(
        tmp_path, "page.HTM", "<title>Tide &amp; wave</title><p>Tidal energy.<script>var wind = 1;</script>"
    )
    write(tmp_path, "image.png", b"\x89PNG")
    write(tmp_path, ".hidden/secret.md", "# Hidden")
    found = {p.url: p for p in Corpus.load(tmp_path)}
    assert set(found) == {markdown.as_uri(), text.as_uri(), page.as_uri()}
    assert [found[file.as_uri()].title for file in (markdown, text, page)] == [
        "Solar *power*",
        "plain",
        "Tide & wave",
    ]
    assert "%C3%89t%C3%A9%201.md" in markdown.as_uri()


def test_pages_of_a_folder_are_searched_and_fetched_by_their_file_address(tmp_path: Path) -> None:
    file = write(tmp_path, "a.txt", "Wind turbines stand in the North Sea.")
    write(tmp_path, "b.txt", "Panels stand on roofs.")
    corpus = Corpus.load(tmp_path)
    hit = corpus.search("Where do wind turbines stand?")[0]
    assert (hit.page.url, hit.excerpts) == (file.as_uri(), ("Wind turbines stand in the North Sea.",))
    assert corpus.page(file.as_uri()) == hit.page


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("utf8.txt", "Zürich – 5 €".encode()),
        ("bom8.txt", codecs.BOM_UTF8 + "Zürich – 5 €".encode()),
        ("le16.txt", codecs.BOM_UTF16_LE + "Zürich – 5 €".encode("utf-16-le")),
        ("be16.txt", codecs.BOM_UTF16_BE + "Zürich – 5 €".encode("utf-16-be")),
        ("le32.txt", codecs.BOM_UTF32_LE + "Zürich – 5 €".encode("utf-32-le")),
        ("cp1252.txt", "Zürich – 5 €".encode("cp1252")),
        (
            "latin9.html",
            b'<meta charset="iso-8859-15"><p>' + "Zürich".encode("iso-8859-15") + b" \x2d 5 \xa4",
        ),
        (
            "declared.html",
            b'<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">'
            + "Цюрих".encode("cp1251"),
        ),
        ("lying.html", b'<meta charset="no-such-thing">' + "Zürich – 5 €".encode("cp1252")),
    ],
)
def test_the_encoding_is_found_by_mark_then_utf8_then_declaration(
    tmp_path: Path, name: str, data: bytes
) -> None:
    """Case I046: titles and texts are never garbled."""
    text = documents.read_file(write(tmp_path, name, data)).text
    assert ("Zürich" in text and text.endswith("5 €")) or text == "Цюрих"


def test_bytes_that_fit_no_encoding_are_replaced_and_never_fatal(tmp_path: Path) -> None:
    file = write(tmp_path, "odd.txt", b"caf\x81 \xff\x00 end")
    assert documents.read_file(file).text == "caf\N{REPLACEMENT CHARACTER} ÿ\N{REPLACEMENT CHARACTER} end"


def test_html_becomes_the_text_that_a_reader_sees() -> None:
    html = """<!doctype html><head><title>A
      title</title><style>p { color: red }</style></head><body><h1>Head<br>ing</h1>
      <p>One <b>bold</b>&nbsp;word &lt;tag&gt;.<p>Two<ul><li>first<li>second</ul>
      <script>if (a < b) alert("</p>")</script><noscript>No</noscript>
      <pre>  x = 1
  y = 2</pre><template>never</template>"""
    title, text = documents.html_text(html)
    assert title == "A title"
    assert documents.paragraphs(text) == [
        "Head\ning",
        "One bold word <tag>.",
        "Two",
        "first",
        "second",
        "```\n  x = 1\n  y = 2\n```",
    ]


def test_wrapped_prose_is_joined_and_lists_tables_verse_and_code_are_not(tmp_path: Path) -> None:
    prose = "A paragraph that was wrapped by hand at a well-\nknown column goes on and on until it has\na."
    kept = [
        "- one item that is as long as the whole block is wide, really\n- two",
        "| a long cell in a table row with | columns |\n| another | row |",
        "Roses are red,\nviolets are blue.",
        "```python\nvalue = compute(first_argument, second_argument, third)\ny = 2",
        "z = 3\n```",
    ]
    page = documents.read_file(write(tmp_path, "a.md", "\n\n".join([prose, *kept])))
    joined = prose.replace("-\n", "-").replace("\n", " ")
    assert page.text.split("\n\n") == [joined, *kept]


def test_html_without_a_title_is_called_after_its_heading() -> None:
    assert documents.html_text("<body><h1>Wave <i>energy</i></h1><p>Text.")[0] == "Wave energy"


@pytest.mark.parametrize(
    "html", ["", "<", "<p", "<title>open", "</p></div>", "<!--", "<script>x", "&#xD800;&bogus;"]
)
def test_broken_html_is_read_as_far_as_it_goes(html: str) -> None:
    documents.html_text(html)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path / "nowhere", "does not exist"),
        (lambda path: write(path, "file.txt", "x"), "is not a folder"),
        (lambda path: path, "no file in it"),
        (lambda path: write(path, "blank/only.md", " \n ").parent, "no file in it"),
    ],
)
def test_an_unusable_folder_is_a_usage_error_that_says_so(tmp_path: Path, make, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=says):
        Corpus.load(make(tmp_path))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(tmp_path, "a.txt", "x")

    def refuse(_: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(UsageError, match=r"a\.txt cannot be read: Permission denied"):
        Corpus.load(tmp_path)


def test_a_link_that_leads_back_into_the_folder_is_not_followed_for_ever(tmp_path: Path) -> None:
    write(tmp_path, "a.txt", "Some text.")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert len(Corpus.load(tmp_path)) == 1
