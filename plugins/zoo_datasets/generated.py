"""Generated sets of texts with exact labels: subject-verb agreement, logical entailment, and arithmetic."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, count, islice
from typing import Any, TypeVar

import numpy as np

from zoo.data.loader import Array
from zoo.data.parallel import ParallelData
from zoo.data.table import Table
from zoo.data.text import TextData
from zoo.errors import InputError
from zoo.registry import check_option, passes_options_to

NUMBERS = ("singular", "plural")
MAX_NOUNS = 4  # nouns between head and verb

Item = TypeVar("Item")

PEOPLE = """
    actor artist author boy brother child:children clerk coach cousin daughter doctor driver farmer friend gentleman:gentlemen
    girl goose:geese guard guest judge king lady:ladies lawyer man:men mouse:mice nurse ox:oxen pilot poet queen sister singer
    spy:spies teacher thief:thieves wife:wives wolf:wolves woman:women
"""
THINGS = """
    bicycle book box:boxes bridge cabinet car cherry:cherries city:cities clock criterion:criteria crisis:crises door
    factory:factories foot:feet garden half:halves house key knife:knives lamp leaf:leaves letter loaf:loaves medium:media
    oasis:oases phenomenon:phenomena picture river road scarf:scarves shelf:shelves stone table tooth:teeth tower tree
"""
_split = str.split
ARTICLES = _split("the my your our their his her")
ADJECTIVES = _split(
    "big small old young new strange famous quiet heavy bright dark clever tired lucky foreign local grey green golden lonely"
)
PREPOSITIONS = _split("near behind beside with without above below around")
VERBS = _split("admired painted found described moved noticed forgot wanted followed sketched")  # past tense: shows no number


def _forms(words: str) -> list[tuple[str, str]]:
    """Parse words written as `singular` or `singular:plural`; the default plural ends in s."""
    pairs = (word.partition(":") for word in words.split())
    return [(singular, plural or f"{singular}s") for singular, _, plural in pairs]


LIVING = _forms(PEOPLE)
NOUNS = LIVING + _forms(THINGS)  # singular and plural of every noun


@passes_options_to(TextData, tokenizer="space", classes=NUMBERS)
def agreement(attractors: int | None = None, rows: int = 12000, **options: Any) -> TextData:
    """Sentences up to their verb, labeled by the number of the verb: singular or plural; 9600 / 1200 / 1200 rows.

    After Linzen et al. 2016, but from a grammar, so that the labels are exact:

        with the wives , the old key near the cabinets that the teacher painted    ->    singular

    The head noun is the first one after the comma, or the first of a sentence without a comma. Between it and the verb are 0 to
    4 further nouns (30, 25, 20, 15, 10 % of the sentences) of either number, in prepositional phrases and relative clauses,
    nested at random. No other word shows number. All 74 nouns are in the training split in both numbers. Both labels are
    equally frequent, and no sentence occurs twice.

    With `attractors` the test split has new sentences with exactly this many attractors (nouns of the other number) and no
    other noun between head and verb, the homogeneous intervention of Linzen et al. Training and validation do not change.

    Test accuracy in per cent, and with 4 attractors: majority 50.0, 50.0; number of the last noun 61.6, 0.0; of the first noun
    78.0, 79.8; logistic regression on words 74.3, 1.2, on words and their pairs 80.8, 2.9.

    Args:
        attractors: Attractors of every test sentence, 0 to 4; None for a mixed test split, like the training split.
        rows: Number of sentences, at least 100; 80, 10 and 10 % are for training, validation and testing.
        **options: Of `TextData`.
    """
    check_option("rows", int, rows, "[100, 200000]")
    if attractors is not None:
        check_option("attractors", int, attractors, f"[0, {MAX_NOUNS}]")
    return TextData(partial(_draw_splits, attractors, rows), "text_classification", **options)


def _draw_splits(attractors: int | None, rows: int) -> dict[str, Table]:
    held = rows // 10
    random, seen = np.random.RandomState(0), set[str]()
    splits = {name: _draw(random, count, seen) for name, count in (("train", rows - 2 * held), ("val", held))}
    if attractors is not None:
        random = np.random.RandomState(1 + attractors)
    splits["test"] = _draw(random, held, seen, attractors)
    return splits


def _draw(random: np.random.RandomState, count: int, seen: set[str], attractors: int | None = None) -> Table:
    """Draw new sentences with alternating labels, and add them to `seen`."""
    texts: list[str] = []
    while len(texts) < count:
        head = len(texts) % 2
        nouns = int(random.choice(MAX_NOUNS + 1, p=(0.30, 0.25, 0.20, 0.15, 0.10))) if attractors is None else attractors
        text = sentence(random, head, nouns, other=attractors is not None)
        if text not in seen:
            seen.add(text)
            texts.append(text)
    labels = [NUMBERS[i % 2] for i in range(count)]
    return Table({"text": texts, "label": labels}, "agreement")


def sentence(random: np.random.RandomState, head: int, nouns: int, *, other: bool = False) -> str:
    """Draw a sentence up to its verb: a head of this number (1: plural), then `nouns` nouns, of the other number if `other`."""
    words: list[str] = []
    if random.uniform() < 0.4:
        words += [_choose(random, PREPOSITIONS), *_phrase(random, None), *_modifiers(random, random.randint(2), None), ","]
    words += _phrase(random, head)
    return " ".join(words + _modifiers(random, nouns, 1 - head if other else None))


def _phrase(random: np.random.RandomState, number: int | None, nouns: Sequence[tuple[str, str]] = NOUNS) -> list[str]:
    """Draw an article, an optional adjective and a noun, of random number by default."""
    adjective = [_choose(random, ADJECTIVES)] if random.uniform() < 0.4 else []
    either = random.randint(2)
    return [_choose(random, ARTICLES), *adjective, _choose(random, nouns)[either if number is None else number]]


def _modifiers(random: np.random.RandomState, nouns: int, number: int | None) -> list[str]:
    """Draw modifiers of a noun that contain `nouns` nouns, of this number or of random ones."""
    if nouns == 0:
        return []
    kind, inner = random.randint(3), random.randint(min(nouns, 2))
    if kind == 0:  # near the cabinets
        words = [_choose(random, PREPOSITIONS), *_phrase(random, number)]
    elif kind == 1:  # that admired the cabinets
        words = ["that", _choose(random, VERBS), *_phrase(random, number)]
    else:  # that the teacher near the cabinets painted
        clause = _modifiers(random, inner, number)
        words = ["that", *_phrase(random, number, LIVING), *clause, _choose(random, VERBS)]
    return words + _modifiers(random, nouns - 1 - (inner if kind == 2 else 0), number)


def _choose(random: np.random.RandomState, items: Sequence[Item]) -> Item:
    return items[random.randint(len(items))]


CLASSES = ("contradiction", "entailment", "neutral")
RELATIONS = ("entailment", "contradiction", "neutral")  # of premise i to hypotheses i, i + 1 and i + 2
SQUARE = len(RELATIONS) ** 2
POOL_LIFETIME = 20  # squares per pool of formulas

NAMES = "abcdef"
MAX_VARIABLES = len(NAMES)  # 64 assignments: a truth table fits into a machine word

Row = tuple[str, str, str]


@dataclass(frozen=True)
class Formula:
    """A formula over a, b, c ...; `not` binds more tightly than `and` and `or`, which are not mixed without parentheses."""

    text: str  # its tokens, separated by spaces
    truth: int  # its truth table: bit i is its value if bit v of i is the value of variable v
    operator: str = ""  # its main connective, `and` or `or`; empty for a literal or a negation


def every(variables: int) -> int:
    """Return the truth table of a tautology."""
    return (1 << (1 << variables)) - 1


def formula(random: np.random.RandomState, variables: int, leaves: int) -> Formula:
    """Draw a formula with this number of leaves, which are variables with repetition."""
    if leaves == 1:
        literal = variable(_below(random, variables), variables)
        return _negated(literal, variables) if _below(random, 2) else literal
    left = 1 + _below(random, leaves - 1)
    parts = [formula(random, variables, count) for count in (left, leaves - left)]
    joined = _joined("or" if _below(random, 2) else "and", *parts)
    return joined if _below(random, 10) else _negated(joined, variables)


@cache
def variable(number: int, variables: int) -> Formula:
    """Return variable `number`."""
    return Formula(NAMES[number], sum(1 << world for world in range(1 << variables) if world >> number & 1))


def _negated(part: Formula, variables: int) -> Formula:
    return Formula(f"not ( {part.text} )" if part.operator else f"not {part.text}", part.truth ^ every(variables))


def _joined(operator: str, left: Formula, right: Formula) -> Formula:
    text = f" {operator} ".join(part.text if part.operator in ("", operator) else f"( {part.text} )" for part in (left, right))
    return Formula(text, left.truth & right.truth if operator == "and" else left.truth | right.truth, operator)


def _below(random: np.random.RandomState, limit: int) -> int:
    return int(random.random_sample() * limit)  # ten times faster than `randint`


def _squares(variables: int) -> Iterator[list[Row]]:
    """Yield squares, which are the premises, hypotheses and labels of nine pairs; no formula is in two squares."""
    random, used = np.random.RandomState(0), set[str]()
    for number in count():
        if number % POOL_LIFETIME == 0:  # formulas that fit nowhere accumulate
            premises, hypotheses = _formulas(random, variables, 1000, 5, used), _formulas(random, variables, 200, 4, used)
        related: list[Formula] = []
        while len(related) < len(RELATIONS):
            chosen = [_pick(random, hypotheses) for _ in RELATIONS]
            rows = [chosen[i:] + chosen[:i] for i in range(len(chosen))]
            if all(_possible(*row) for row in rows):
                related = list(filter(None, [_premise(random, premises, *row) for row in rows]))
        used |= {formula.text for formula in related + chosen}
        premises, hypotheses = ([formula for formula in pool if formula.text not in used] for pool in (premises, hypotheses))
        yield [
            (premise.text, hypothesis.text, relation)
            for premise, row in zip(related, rows, strict=True)
            for hypothesis, relation in zip(row, RELATIONS, strict=True)
        ]


def _premise(
    random: np.random.RandomState, premises: list[Formula], entailed: Formula, excluded: Formula, undecided: Formula
) -> Formula | None:
    """Draw a premise with these relations to three hypotheses, or return None."""
    fitting = [
        premise
        for premise in premises
        if not premise.truth & (~entailed.truth | excluded.truth)
        and premise.truth & undecided.truth
        and premise.truth & ~undecided.truth
    ]
    return _pick(random, fitting) if fitting else None


def _pick(random: np.random.RandomState, formulas: list[Formula]) -> Formula:
    return formulas[_below(random, len(formulas))]


def _formulas(random: np.random.RandomState, variables: int, size: int, most: int, used: set[str]) -> list[Formula]:
    """Draw unused formulas that are neither tautologies nor contradictions."""
    formulas: dict[str, Formula] = {}
    while len(formulas) < size:
        new = formula(random, variables, 2 + _below(random, most - 1))
        if 0 < new.truth < every(variables) and new.text not in used:
            formulas[new.text] = new
    return list(formulas.values())


def _possible(entailed: Formula, excluded: Formula, undecided: Formula) -> bool:
    """Return whether a premise with these relations to three hypotheses exists."""
    inside = entailed.truth & ~excluded.truth
    return bool(inside & undecided.truth and inside & ~undecided.truth)


@passes_options_to(TextData, tokenizer="space", classes=CLASSES)
def entailment(variables: int = 4, rows: int = 12000, **options: Any) -> TextData:
    """Pairs of propositional formulas: does the first entail, contradict or leave open the second? Exact labels.

    9603 / 1197 / 1197 pairs of three equally frequent classes, by truth table: ``( d or not b ) and not c`` and ``c and a``
    contradict each other. No formula is a tautology or a contradiction, so the labels exclude each other. Premises contain 2 to
    5 variables, hypotheses 2 to 4, with repetition. Neither formula alone is informative: the pairs are in squares of three
    premises and three hypotheses, in which every formula has every label once. No formula is in two squares, and thus in two
    splits.

    Accuracy on the test split, in per cent: any rule that reads one formula only 33.3; logistic regression on the counts of
    words, or of runs of one to three words, of both formulas 33.3: only interactions of the two help. A plain bidirectional
    LSTM of two layers reached 80.6 in 20 epochs, attention between words without their order 48.

    There are 4 to 6 `variables`; fewer are too few for such squares. Of at least 90 `rows`, whole squares of nine, 80, 10 and
    10 % are for training, validation and testing.
    """
    check_option("variables", int, variables, f"[4, {MAX_VARIABLES}]")
    check_option("rows", int, rows, f"[{10 * SQUARE}, 200000]")
    return TextData(partial(_draw_squares, variables, rows // SQUARE), "pair_classification", **options)


def _draw_squares(variables: int, num_squares: int) -> dict[str, Table]:
    squares, held = _squares(variables), num_squares // 10
    counts = {"train": num_squares - 2 * held, "val": held, "test": held}
    return {name: _table(list(chain.from_iterable(islice(squares, count)))) for name, count in counts.items()}


def _table(rows: list[Row]) -> Table:
    columns = map(list, zip(*rows, strict=True))
    return Table(dict(zip(("first", "second", "label"), columns, strict=True)), "entailment")


SPAN = 2000
OPERATIONS = "+-*"
LONGEST = len("x=-1000,y=-1000,x*y") + 1  # tokens of the longest possible text, [EOS] included
SAMPLES = SPAN * SPAN * len(OPERATIONS)  # all values of x and y under all operations: 12 million


@passes_options_to(ParallelData, tokenizer="char", max_length=LONGEST)
def mlu(train: int = 100_000, val: int = 1000, test: int = 2000, **options: Any) -> ParallelData:
    """Expressions of two variables and their value by character, such as ``y=691,x=-999,y*x`` and ``-690309``.

    Mathematical language understanding (Wangperawong 2018, arXiv 1812.02825), generated by its rules: x and y are integers from
    -1000 to 999, the operation is +, - or *. The order of the assignments and both operands are random and independent, and all
    distributions are uniform. Each of the 12 million triples of x, y and operation occurs at most once in all splits together.
    The test pairs depend on `test` only, the validation pairs on `val` and `test`.
    The original has about 10.8 million training pairs, and 1.2 million to test on.

    Example:
        >>> from zoo.data.module import ready
        >>> data = ready(mlu(train=50, val=2, test=2))
        >>> [column[0] for column in data.splits["test"].texts]
        ['x=463,y=-738,x*x', '214369']
    """
    counts = {"test": test, "val": val, "train": train}
    total = sum(check_option(name, int, count, "[1, inf)") for name, count in counts.items())
    if total > SAMPLES:
        raise InputError(f"mlu: train={train}, val={val} and test={test} are {total:,} pairs; use at most {SAMPLES:,}")
    return ParallelData(partial(_draw_expressions, counts), **options)


def _draw_expressions(counts: dict[str, int]) -> dict[str, Table]:
    total = sum(counts.values())
    random = np.random.RandomState(0)  # its streams are frozen
    codes = random.permutation(SAMPLES)[:total]
    forms = random.randint(8, size=SAMPLES, dtype=np.uint8)[codes]
    ends = np.cumsum([counts["test"], counts["val"]])
    parts = zip(counts, np.split(codes, ends), np.split(forms, ends), strict=True)
    return {name: _expressions(code, form) for name, code, form in parts}


def _expressions(codes: Array, forms: Array) -> Table:
    """Return the texts of samples, from codes of (x, y, operation) and 3-bit forms: first variable, left and right operand."""
    operation, x, y = codes % 3, codes // 3 % SPAN - SPAN // 2, codes // 3 // SPAN - SPAN // 2
    swapped, left, right = forms & 1, forms >> 1 & 1, forms >> 2
    a, b = np.where(left, y, x), np.where(right, y, x)
    values = np.choose(operation, [a + b, a - b, a * b])
    columns = (column.tolist() for column in (operation, x, y, swapped, left, right))
    sources = [
        (f"y={y},x={x}," if swap else f"x={x},y={y},") + "xy"[i] + OPERATIONS[sign] + "xy"[j]
        for sign, x, y, swap, i, j in zip(*columns, strict=True)
    ]
    return Table({"first": sources, "second": [str(value) for value in values.tolist()]}, "mlu")
