"""What a URL names: one canonical form for registry, check and renderer, and which URLs may be sources.

Parsing is `pydantic_core.Url`, the binding of the WHATWG parser (Rust's `url`) that pydantic brings along:
what a browser reads is what we compare (decimal and octal IPv4, full-width digits, IDNA, dot segments,
default ports), in a microsecond and without a further dependency. Compared: `yarl` and `rfc3986` follow
RFC 3986 and keep `http://0x7f.1` as a name; `w3lib`, `courlan` and `url-normalize` bring policies of their
own; `ada-url` parses alike but is one more binary.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote, unquote_to_bytes

from pydantic_core import Url, ValidationError

TRACKING_PREFIXES: Final = ("utm_", "hsa_", "pk_", "mtm_", "stm_")
TRACKING_PARAMETERS: Final = """
    fbclid gclid gclsrc dclid gbraid wbraid gad_source gad_campaignid srsltid msclkid yclid ysclid twclid
    ttclid igshid igsh li_fat_id epik rdt_cid mc_cid mc_eid _hsenc _hsmi hsctatracking mkt_tok vero_id
    vero_conv oly_anon_id oly_enc_id wickedid _ga _gl _openstat _branch_match_id ref_src ref_url cmpid
    ns_campaign ns_mchannel ns_source ns_linkname __hstc __hssc __hsfp rb_clickid s_cid ml_subscriber
    ml_subscriber_hash dm_i sc_cid guccounter guce_referrer guce_referrer_sig
"""
"""Click and campaign identifiers of advertising, mail and analytics services, in lower case. A name is here
only if it means nothing but tracking wherever it occurs: `ref`, `source`, `si` or `s` may choose content."""
_TRACKING = frozenset(TRACKING_PARAMETERS.split())
_LOCAL_NAMES: Final = re.compile(
    r"(?:.*\.)?(?:localhost|localdomain|local|internal|intranet|lan|home|corp|home\.arpa)$"
)
_NO_SOURCE: Final = re.compile(
    r"(?:javascript|vbscript|data|blob|about|mailto|tel|sms|wss?|chrome|view-source|ftps?|ssh):",
    re.IGNORECASE,
)
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_PLAIN: Final = frozenset("-._~!'()*,:@$")
"""Characters that mean the same in a path or a query whether they are percent-encoded or not."""
_KEEP_IN_PATH: Final = "%/:@!$&'()*+,;=~-._"
_KEEP_IN_QUERY: Final = "%/:@!$'()*,;=?~-._"
_ENCODED: Final = {ord(char): f"%{ord(char):02X}" for char in "()[]<>{}|\\^`\"'* \t\r\n"}
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,30}:\S")
_NAT64: Final = tuple(ipaddress.ip_network(net) for net in ("64:ff9b::/96", "64:ff9b:1::/48", "::/96"))


@lru_cache(maxsize=65_536)
def canonical(url: str) -> str:
    """Return the identity of what a URL names; two spellings of one address give the same string.

    http and https, `www.`, default ports, a trailing slash, dot segments, percent-encoding of ordinary
    characters, the order of query parameters, tracking parameters and fragments make no difference. Fragments
    that route (`#/page`, `#!page`) do. What is no URL comes back stripped.
    """
    parsed = _parse(url)
    if parsed is None:
        return url.strip()
    path = _tidy(parsed.path or "", _KEEP_IN_PATH).rstrip("/")
    query = _query(parsed.query or "")
    fragment = parsed.fragment or ""
    route = f"#{fragment}" if fragment.startswith(("/", "!")) else ""
    if parsed.scheme not in ("http", "https"):
        slashes = "//" if str(parsed).startswith(f"{parsed.scheme}://") else ""
        return f"{parsed.scheme}:{slashes}{parsed.host or ''}{path}{query}{route}"
    return f"https://{_host(parsed)}{path}{query}{route}"


def may_be_source(url: str) -> bool:
    """Tell whether a URL names a public web page, or something that is not on the web (`file:`, `note:`).

    Private, loopback and link-local addresses in any spelling, names that only resolve locally, and addresses
    with a user name in them are refused: we never fetch a source's URL, but readers and models follow it.
    """
    parsed = _parse(url)
    if parsed is None or not _SCHEME.match(url.strip()) or _NO_SOURCE.match(url.strip()):
        return False
    if parsed.scheme in ("http", "https"):
        return not (parsed.username or parsed.password) and _public(_host(parsed, port=False))
    return bool(parsed.path and parsed.path.strip("/")) or bool(parsed.host)


def title_of(url: str) -> str:
    """Return a name for a page without title: its host and path, readable."""
    parsed = _parse(url)
    if parsed is None:
        return url.strip()
    path = unquote(parsed.path or "").rstrip("/")
    if "\ufffd" in path:  # not UTF-8: better as it stands
        path = parsed.path or ""
    return f"{(parsed.unicode_host() or '').removeprefix('www.')}{path}" or url.strip()


def spelled(url: str) -> str:
    """Write a URL without brackets, quotes and spaces: the same page's, and it breaks no text around it."""
    return url.strip().translate(_ENCODED)


def _parse(url: str) -> Url | None:
    try:
        return Url(url.strip())
    except (ValidationError, ValueError):
        return None


def _host(parsed: Url, *, port: bool = True) -> str:
    host = (parsed.host or "").rstrip(".")
    bare = host.removeprefix("www.")
    if "." in bare:
        host = bare
    default = parsed.port in (None, 80, 443)
    return host if default or not port else f"{host}:{parsed.port}"


def _tidy(part: str, keep: str) -> str:
    """Decode what needs no percent-encoding, encode the rest in capitals, leave reserved characters apart."""

    def settle(found: re.Match[str]) -> str:
        char = chr(int(found[1], 16))
        return char if char.isascii() and (char.isalnum() or char in _PLAIN) else found[0].upper()

    return quote(_ESCAPE.sub(settle, part), safe=keep)


def _query(query: str) -> str:
    kept = []
    for item in query.split("&"):
        name = unquote_to_bytes(item.partition("=")[0]).decode("utf-8", "replace").lower()
        if item and name not in _TRACKING and not name.startswith(TRACKING_PREFIXES):
            kept.append(_tidy(item.replace("+", "%20"), _KEEP_IN_QUERY))
    # Sorting by name keeps the order of a name that is given several times.
    kept.sort(key=lambda item: item.partition("=")[0])
    return "?" + "&".join(kept) if kept else ""


def _public(host: str) -> bool:
    if host.startswith("["):
        address = ipaddress.ip_address(host.strip("[]"))
        return _public_address(address)
    try:
        return _public_address(ipaddress.ip_address(host))
    except ValueError:
        labels = host.split(".")
        return len(labels) > 1 and all(labels) and not labels[-1].isdigit() and not _LOCAL_NAMES.match(host)


def _public_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        # Transition forms (6to4, Teredo, mapped, compatible, NAT64) hide an IPv4 address; none names a page.
        tunnelled = address.ipv4_mapped or address.sixtofour or address.teredo
        if tunnelled or any(address in net for net in _NAT64):
            return False
    return address.is_global and not address.is_multicast
