#!/usr/bin/env python3
"""Generates the tables of atoll/text/unicode_*.inc from PyPI unicodedata2 16.0.0 (Unicode 16).

unicode_tables.py          rewrites the files
unicode_tables.py --check  exits 1 unless the files are what this script would write

What normalizers of `tokenizers` take away (accents, nonspacing, unseen) is asked of the library: its Unicode is old, by table.
Those of letter case and of what Python's repr() writes as it is come from Python's own strings (templates, whose
reference they are, run in Python): of 3.11, Unicode 14. Another Python leaves them as they are.
"""
import pathlib
import sys
import unicodedata

import unicodedata2
from tokenizers import normalizers
from unicodedata2 import category, combining, decomposition, normalize

CLASS_LIMIT = 0x32400  # kClassLimit in unicode_classes.h.
folder = pathlib.Path(__file__).resolve().parent.parent / "atoll" / "text"

# Normalisation in `tokenizers` is that of Unicode 9. To it these later characters have no combining class and
# compose with nothing; all others are as they were, by Unicode's stability policy. First and last of each range.
AFTER_UNICODE_9 = [
    (0x7FD, 0x7FD), (0x897, 0x89F), (0x8CA, 0x8D3), (0x9FE, 0x9FE), (0xC3C, 0xC3C), (0xD3B, 0xD3C), (0xEBA, 0xEBA),
    (0x1715, 0x1715), (0x1ABF, 0x1ACE), (0x1DF6, 0x1DFA), (0xA82C, 0xA82C), (0x105C0, 0x105FF), (0x10D24, 0x10D27),
    (0x10D69, 0x10D6D), (0x10EAB, 0x10EFF), (0x10F46, 0x10F50), (0x10F82, 0x10F85), (0x11070, 0x11070),
    (0x1133B, 0x1133B), (0x11380, 0x113E2), (0x1145E, 0x1145E), (0x11839, 0x1183A), (0x11900, 0x11959),
    (0x119E0, 0x119E0), (0x11A34, 0x11A34), (0x11A47, 0x11A47), (0x11A99, 0x11A99), (0x11D42, 0x11D45),
    (0x11D97, 0x11D97), (0x11F41, 0x11F42), (0x16100, 0x16139), (0x16D40, 0x16D79), (0x16FF0, 0x16FF1),
    (0x1E08F, 0x1E08F), (0x1E130, 0x1E136), (0x1E2AE, 0x1E2AE), (0x1E2EC, 0x1E2EF), (0x1E4EC, 0x1E4EF),
    (0x1E5EE, 0x1E5EF),
]
# Nor are these compatible with others there.
COMPATIBLE_AFTER_9 = [(0x32FF, 0x32FF), (0xA7F2, 0xA7F4), (0xAB69, 0xAB69), (0x10781, 0x107BA), (0x1CCD6, 0x1CCF9),
                      (0x1E030, 0x1E06D), (0x1F16C, 0x1F16C), (0x1FBF0, 0x1FBF9)]
# Punctuation in `tokenizers` is that of Unicode 8; two characters were it then.
PUNCTUATION_AFTER_8 = [
    (0x61D, 0x61D), (0x9FD, 0x9FD), (0xA76, 0xA76), (0xC77, 0xC77), (0xC84, 0xC84), (0x1B4E, 0x1B4F), (0x1B7D, 0x1B7F),
    (0x2E43, 0x2E5D), (0x10D6E, 0x10D6E), (0x10EAD, 0x10EAD), (0x10F55, 0x10F89), (0x113D4, 0x113D8), (0x1144B, 0x1145D),
    (0x11660, 0x1166C), (0x116B9, 0x116B9), (0x1183B, 0x1183B), (0x11944, 0x11946), (0x119E2, 0x119E2), (0x11A3F, 0x11A46),
    (0x11A9A, 0x11AA2), (0x11B00, 0x11B09), (0x11BE1, 0x11BE1), (0x11C41, 0x11C71), (0x11EF7, 0x11EF8), (0x11F43, 0x11F4F),
    (0x11FFF, 0x11FFF), (0x12FF1, 0x12FF2), (0x16D6D, 0x16D6F), (0x16E97, 0x16E9A), (0x16FE2, 0x16FE2), (0x1E5FF, 0x1E5FF),
    (0x1E95E, 0x1E95F),
]
PUNCTUATION_UNTIL_8 = (0x166D, 0x111C9)


def is_among(ranges, code):
    return any(first <= code <= last for first, last in ranges)


def is_after_9(code):
    return is_among(AFTER_UNICODE_9, code)


def is_punctuation(code):  # Of ASCII all that is no letter, digit or space.
    is_now = category(chr(code))[0] == "P" and not is_among(PUNCTUATION_AFTER_8, code)
    return is_now or code in PUNCTUATION_UNTIL_8 or code < 128 and category(chr(code))[0] == "S"


def is_space(code):  # White_Space: the separators and six controls.
    return category(chr(code))[0] == "Z" or code in (9, 10, 11, 12, 13, 0x85)


def is_word(code):  # \w: Alphabetic (with the circled letters), marks, digits, connectors, Join_Control.
    circled = 0x24B6 <= code <= 0x24E9 or 0x1F130 <= code <= 0x1F189 and category(chr(code)) == "So" and not (
        0x1F14A <= code <= 0x1F14F or 0x1F16A <= code <= 0x1F16F)
    return category(chr(code)) in ("Nd", "Nl", "Pc") or category(chr(code))[0] in "LM" or circled or code in (0x200C, 0x200D)


def taken_by(normalizer):
    """Whether the library's normalizer takes the character away."""
    # Half of a surrogate pair is no text.
    return lambda code: not 0xD800 <= code < 0xE000 and normalizer.normalize_str("x" + chr(code)) == "x"


def bert(**steps):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**off | steps)


CLASSES = {
    "letters": lambda code: category(chr(code))[0] == "L",
    "numbers": lambda code: category(chr(code))[0] == "N",
    "spaces": is_space,
    "words": is_word,
    "punctuation": is_punctuation,
    "accents": taken_by(normalizers.StripAccents()),
    "nonspacing": taken_by(bert(strip_accents=True)),
    "unseen": taken_by(bert(clean_text=True)),
}
TABULATED = ("letters", "numbers", "spaces")  # By code point; the others are searched.


def ranges(value_of):
    """(first, last, value) where `value_of` stays the same and is not 0."""
    first, value = 0, 0
    for code in range(0x110001):
        now = value_of(code) if code < 0x110000 else 0
        if now == value:
            continue
        if value:
            yield first, code - 1, value
        first, value = code, now


def class_ranges(name):
    for first, last, _ in ranges(CLASSES[name]):
        assert last < CLASS_LIMIT or name not in TABULATED, f"raise CLASS_LIMIT: {last:#x}"
        yield f"{{{first:#x},{last:#x}}},"


def combining_classes():
    for first, last, value in ranges(lambda code: 0 if is_after_9(code) else combining(chr(code))):
        yield f"{{{first:#x},{last:#x},{value}}},"


def decompositions():
    """Code, first and second of its canonical decomposition (0: one character only), whether they compose to it."""
    for code in range(0x110000):
        parts = decomposition(chr(code)).split()
        if not parts or parts[0].startswith("<") or is_after_9(code):
            continue
        first, second = [int(part, 16) for part in parts] + [0] * (2 - len(parts))
        composes = normalize("NFC", chr(code)) == chr(code)
        yield f"{{{code:#x},{first:#x},{second:#x},{'true' if composes else 'false'}}},"


def compatible():
    """Code, how many characters it is compatible with in a row, those."""
    for code in range(0x110000):
        parts = decomposition(chr(code)).split()
        if parts and parts[0].startswith("<") and not is_among(COMPATIBLE_AFTER_9, code):
            yield f"{code:#x},{len(parts) - 1},{''.join(f'{int(part, 16):#x},' for part in parts[1:])}"


def python_ranges(has):
    yield from (f"{{{first:#x},{last:#x}}}," for first, last, _ in ranges(lambda code: code < 0x110000 and has(chr(code))))


def case_forms(code):
    """The character's upper, lower and title case."""
    return chr(code).upper(), chr(code).lower(), chr(code).title()


def simple_cases():
    """First, last, and what is added for upper, lower and title case, where each is one character."""
    def shifts(code):
        forms = case_forms(code) if code < 0x110000 else ()
        is_simple = forms and max(map(len, forms)) == 1 and set(forms) != {chr(code)}
        return tuple(ord(form) - code for form in forms) if is_simple else 0

    for first, last, (upper, lower, title) in ranges(shifts):
        yield f"{{{first:#x},{last:#x},{{{upper},{lower},{title}}}}},"


def special_cases():
    """Code, and its upper, lower and title case, where one of them is several characters."""
    for code in range(0x110000):
        forms = case_forms(code)
        if max(map(len, forms)) > 1:
            yield "{%#x,{%s}}," % (code, ",".join("{" + ",".join(f"{ord(c):#x}" for c in form) + "}" for form in forms))


def since_14():
    """First, last and general category of characters that had another in Unicode 14, small as regular expressions' names are."""
    def changed(code):
        now = category(chr(code)) if code < 0x110000 else 0
        return now.lower() if now and now != unicodedata.category(chr(code)) else 0

    for first, last, name in ranges(changed):
        yield f"{{{first:#x},{last:#x},\"{name}\"}},"


TABLES = {**{name: lambda name=name: class_ranges(name) for name in CLASSES},
          "combining": combining_classes, "decompositions": decompositions, "compatible": compatible}
if unicodedata.unidata_version == "14.0.0":
    TABLES |= {"since_14": since_14, "cases": simple_cases, "special_cases": special_cases,
               "cased": lambda: python_ranges(lambda c: c.isupper() or c.islower() or c.istitle()),
               "escaped": lambda: python_ranges(lambda c: not c.isprintable())}
PYTHONS = ("cases", "special_cases", "cased", "escaped")


def table(items, source="Unicode 16.0.0"):
    lines = [f"// Generated by scripts/unicode_tables.py ({source}): do not edit."]
    line = ""
    for item in items:
        if len(line) + len(item) > 100:
            lines.append(line)
            line = ""
        line += item
    return "\n".join(lines + [line]) + "\n"


def main():
    assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version
    stale = []
    for name, items in TABLES.items():
        path = folder / f"unicode_{name}.inc"
        text = table(items(), "Python 3.11") if name in PYTHONS else table(items())
        if "--check" not in sys.argv:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        print(f"stale: {', '.join(stale)}; run scripts/unicode_tables.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
