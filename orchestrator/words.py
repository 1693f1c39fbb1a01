"""The few things the support check knows about words: stems, empty words, negations, opposites, near-synonyms."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from functools import lru_cache

import snowballstemmer

_ENGLISH = snowballstemmer.stemmer("english")
_RUSSIAN = snowballstemmer.stemmer("russian")


@lru_cache(maxsize=1 << 16)
def fold(word: str) -> str:
    """Return the word without case and accents."""
    if word.isascii():
        return word.lower()
    bare = unicodedata.normalize("NFKD", word.casefold())
    return unicodedata.normalize("NFC", "".join(c for c in bare if not unicodedata.combining(c)))


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Return the stem of a folded word."""
    word = _IRREGULAR.get(word, word)
    language = _RUSSIAN if "а" <= word[:1] <= "я" else _ENGLISH
    stemmed: str = language.stemWord(word[:40])
    return stemmed


def concept(stemmed: str) -> str:
    """Return what a stem and its near-synonyms have in common: one of them."""
    return _SYNONYMS.get(stemmed, stemmed)


def _lines(table: str) -> Iterator[list[str]]:
    return (line.split() for line in table.strip().splitlines())


_IRREGULAR = {
    form: base
    for base, *forms in _lines("""
        be is are was were been being am
        have has had having
        do does did done doing
        rise rose risen
        fall fell fallen
        grow grew grown
        shrink shrank shrunk
        begin began begun
        become became
        make made
        give gave given
        take took taken
        write wrote written writes
        find found
        hold held
        keep kept
        lose lost
        win won
        lead led
        leave left
        build built
        buy bought
        sell sold
        send sent
        spend spent
        bring brought
        think thought
        teach taught
        say said
        pay paid
        see saw seen
        know knew known
        show shown
        choose chose chosen
        speak spoke spoken
        break broke broken
        drive drove driven
        fly flew flown
        go went gone
        come came
        run ran
        meet met
        get got gotten
        set sets
        stand stood
        draw drew drawn
        throw threw thrown
        bear bore borne
        catch caught
        fight fought
        seek sought
        tell told
        hide hid hidden
        strike struck
        wear wore worn
        man men
        woman women
        child children
        foot feet
        tooth teeth
        mouse mice
        person people
        early earlier earliest
        late later latest
        low lower lowest
        high higher highest
        large larger largest
        small smaller smallest
        long longer longest
        short shorter shortest
        old older oldest
        new newer newest
        great greater greatest
        fast faster fastest
        slow slower slowest
        strong stronger strongest
        weak weaker weakest
        hot hotter hottest
        cold colder coldest
        big bigger biggest
        few fewer fewest
        heavy heavier heaviest
        light lighter lightest
        wide wider widest
        narrow narrower narrowest
        easy easier easiest
        hard harder hardest
        warm warmer warmest
        rich richer richest
        poor poorer poorest
        young younger youngest
        near nearer nearest
        far farther further farthest
        deep deeper deepest
        good better best
        bad worse worst
        cheap cheaper cheapest
        leaf leaves
        life lives
        die died dies dying
        lie lay lain
    """)
    for form in forms
}

_SYNONYMS: dict[str, str] = {}
for _first, *_others in _lines("""
    begin start commence launch
    end finish conclude terminate stop cease
    allow permit let
    forbid prohibit ban
    make create produce construct build
    use employ utilize utilise
    show demonstrate reveal indicate
    big large huge
    small little tiny
    buy purchase acquire
    help assist aid
    need require must necessary mandatory
    name call term title
    happen occur
    increase rise grow climb
    decrease fall drop decline shrink diminish
    choose select pick
    change alter modify amend
    replace substitute supersede
    contain include comprise
    try attempt
    get obtain receive gain
    give provide supply offer
    kill die death dead
    year annual
    fast quick rapid swift
    near close adjacent
    about approximately roughly around
    also additionally moreover
    destroy ruin wreck
    live reside inhabit dwell
    car automobile
    country nation
    city town
    goal aim purpose objective
    explain describe
    evaluate compute calculate
    remove delete discard eliminate
    keep retain maintain preserve
    suggest propose recommend
    common usual typical
    kind type sort
    part portion section
    whole entire complete full
    place location site
    sea ocean
    ill sick
    equal same identical
    run execute
    argument parameter
    mean signify denote
"""):
    for _other in _others:
        _SYNONYMS.setdefault(stem(_other), stem(_first))

EMPTY = frozenset(
    """a an the this that these those it its he she they them their theirs his her hers him we us our you your i me my
    be is are was were been being am do does did done doing have has had having will would shall should can could
    may might must of in on at to from by for with as into onto upon about than then so such also too very just
    and or but nor if while when where which who whom whose what why how there here s t re ve ll d m both each
    other another some any own same more most much many few less least only even still yet again further once
    during per via between among through over under above below up down out off against within along across
    before after since until because although though whereas however therefore thus hence not no never none
    neither without cannot according said says say called named known""".split()
)
"""Words that carry no content of their own; some of them carry a direction or a negation."""

NEGATIONS = frozenset(
    """not no never none nobody nothing nowhere neither nor without cannot unable hardly scarcely rarely seldom lack
    lacks lacked lacking fail fails failed failing refuse refuses refused absent except unless instead""".split()
)

_AXES: dict[str, list[tuple[int, int]]] = {}
for _axis, _line in enumerate(
    """
    rise increase grow climb gain expand surge soar jump up upward raise boost double triple extend | fall decrease decline drop shrink lose contract plunge down downward reduce cut halve diminish sink
    more greater above over exceed higher larger bigger longer older faster stronger heavier | less fewer below under lower smaller shorter younger slower weaker lighter
    before earlier prior precede previously until beforehand ahead | after later follow subsequently since afterward behind succeed
    first initially original initial | last finally final ultimate latest
    maximum most highest largest biggest longest oldest fastest strongest atmost utmost greatest | minimum least lowest smallest shortest youngest slowest weakest atleast
    begin start open launch commence | end stop close finish terminate cease
    allow permit enable let may can legalize | forbid prohibit disable prevent ban disallow refuse block
    require mandatory must obligatory compulsory necessary | optional voluntary unnecessary
    accept approve support adopt favor endorse agree | reject oppose disapprove deny decline veto disagree
    true correct right valid truth | false incorrect wrong invalid
    succeed success win victory victorious | fail failure lose defeat
    same equal identical alike | different unequal distinct differ
    include contain inside within inclusive | exclude omit outside exclusive
    always every all everyone everything | never none nobody nothing
    north northern | south southern
    east eastern | west western
    left | right
    import | export
    buy purchase | sell
    add insert create append establish | remove delete destroy abolish
    fast quick rapid | slow gradual
    early | late
    long | short brief
    large big huge | small little tiny
    high tall | low
    old ancient | new modern recent
    strong | weak
    hot warm | cold cool
    rich wealthy | poor
    easy simple | hard difficult complex complicated
    heavy | light
    wide broad | narrow
    cheap inexpensive | expensive costly
    public | private
    static | dynamic
    ascending | descending
    upper top | lower bottom
    internal inner | external outer
    positive | negative
    active | passive
    explicit | implicit
    odd | even
    majority | minority
    input | output
    read | write
    send | receive
    arrive | depart leave
    male man men | female woman women
    day | night
    summer | winter
    spring | autumn
    birth born | death die
    join enter | leave exit withdraw
    ally | enemy
    war | peace
    presence present | absence absent
    forward | backward
    horizontal | vertical
    better improve best | worse deteriorate worsen worst
    many | few
    frequent often common | rare seldom rarely uncommon
    with | without
    safe | dangerous unsafe
    near close | far distant
    deep | shallow
    full | empty
    thick | thin
    wet | dry
    mutable | immutable
    singular | plural
    parent | child
    superclass base | subclass derived
    enclosing outermost | innermost nested
    temporary | permanent
    local | global
    urban | rural
    import | export
    victory | defeat
    attack | defend
    advance | retreat
    single | multiple
    inland | coastal
    beginning start | end
    innocent | guilty
    gain profit | loss
    cause | prevent
    """.strip().splitlines()
):
    for _sign, _side in zip((1, -1), _line.split("|"), strict=True):
        for _word in _side.split():
            _AXES.setdefault(_word, []).append((_axis, _sign))
            if (_axis, _sign) not in _AXES.setdefault(stem(_word), []):
                _AXES[stem(_word)].append((_axis, _sign))


def axes(word: str) -> list[tuple[int, int]]:
    """Return the scales on which a folded word stands, each with the end (1 or -1) it stands at."""
    return _AXES.get(word) or _AXES.get(stem(word), [])
