"""Writes the weight tables of the collations: general_ci.bin, uca-4.0.0.bin and uca-9.0.0.bin, beside this script.

    python3 generate.py GENERAL_CI UNICODE_CI ALLKEYS_9

GENERAL_CI and UNICODE_CI list every scalar of the Basic Multilingual Plane, one a line: the code point and what
WEIGHT_STRING gives for it, both in hexadecimal digits. ALLKEYS_9 is unicode.org/Public/UCA/9.0.0/allkeys.txt.

A table lists the code points whose weights follow from no rule (`src/table.rs` has the rules):

    byte: levels (1 or 3)
    for each code point, ascending:
        number: distance from the one before (the first: from -1)
        number: count of elements
        for each element:
            number: primary weight, as the zigzag difference from the primary before it in the file
            number, number: secondary and tertiary weight, if there are three levels

A number is little-endian base 128, the high bit of a byte saying that more follow.

The checksums that are printed are those of `tests/tables.rs`: FNV-1a of the weights of all scalars at one level, two
bytes each, the high one first, and two zeros after each scalar.
"""

import re
import sys
from pathlib import Path

ELEMENT_COUNT_MAX = 8  # of a character; MySQL and TiDB cut U+FDFA, which has 18


def numbers(*values):
    encoded = bytearray()
    for value in values:
        while value >= 128:
            encoded.append(value & 127 | 128)
            value >>= 7
        encoded.append(value)
    return encoded


def write(name, level_count, table):
    encoded = bytearray([level_count])
    char, primary = -1, 0
    for next_char, elements in sorted(table.items()):
        encoded += numbers(next_char - char, len(elements))
        char = next_char
        for element in elements:
            difference = element[0] - primary
            primary = element[0]
            encoded += numbers(difference * 2 if difference >= 0 else -difference * 2 - 1, *element[1:level_count])
    Path(__file__).with_name(name).write_bytes(encoded)
    print(f"{name}: {len(table)} code points, {len(encoded)} bytes")


def weight_strings(path):
    table = {}
    for line in open(path):
        char, *digits = line.split()
        digits = "".join(digits)
        table[int(char, 16)] = [(int(digits[i : i + 4], 16),) for i in range(0, len(digits), 4)]
    return table


def implicit_400(char):
    """The weights of a code point that UCA 4.0.0 does not list."""
    if 0x4E00 <= char <= 0x9FA5 or 0xFA0E <= char <= 0xFA29:
        lead = 0xFB40
    elif 0x3400 <= char <= 0x4DB5:
        lead = 0xFB80
    else:
        lead = 0xFBC0
    return [(lead + (char >> 15),), (char & 0x7FFF | 0x8000,)]


def is_implicit(char, elements):
    """Whether UCA 9.0.0 would give an unlisted core ideograph these elements; it lists twelve of them."""
    return [element[0] for element in elements] == [0xFB40 + (char >> 15), char & 0x7FFF | 0x8000]


def allkeys(path):
    table = {}
    for line in open(path, encoding="utf-8"):
        chars, _, elements = line.partition("#")[0].partition(";")
        # MySQL takes the characters of a contraction one by one.
        if line.startswith("@") or not elements or len(chars.split()) > 1:
            continue
        found = re.findall(r"\[[.*]([0-9A-F]{4})\.([0-9A-F]{4})\.([0-9A-F]{4})\]", elements)
        levels = [tuple(int(weight, 16) for weight in element) for element in found]
        if not is_implicit(int(chars, 16), levels):
            table[int(chars, 16)] = levels[:ELEMENT_COUNT_MAX]
    return table


def implicit_900(char):
    """The elements of a code point that UCA 9.0.0 does not list."""
    if 0x17000 <= char <= 0x18AFF:
        lead, char = 0xFB00, char - 0x17000
    elif 0x4E00 <= char <= 0x9FD5 or 0xFA0E <= char <= 0xFA29:
        lead = 0xFB40 + (char >> 15)
    elif any(first <= char <= last for first, last in HAN_EXTENSIONS):
        lead = 0xFB80 + (char >> 15)
    else:
        lead = 0xFBC0 + (char >> 15)
    return [(lead, 0x20, 2), (char & 0x7FFF | 0x8000, 0, 0)]


HAN_EXTENSIONS = [
    (0x3400, 0x4DB5),
    (0x20000, 0x2A6D6),
    (0x2A700, 0x2B734),
    (0x2B740, 0x2B81D),
    (0x2B820, 0x2CEA1),
]


def elements_900(table, char):
    if char in table:
        return table[char]
    if 0xAC00 <= char <= 0xD7A3:
        lead, vowel, trail = (char - 0xAC00) // 588, (char - 0xAC00) // 28 % 21, (char - 0xAC00) % 28
        jamo = [0x1100 + lead, 0x1161 + vowel] + [0x11A7 + trail] * (trail > 0)
        return [element for part in jamo for element in table[part]]
    return implicit_900(char)


def checksum(elements_of, level):
    hash = 0xCBF29CE484222325
    for char in [*range(0xD800), *range(0xE000, 0x110000)]:
        weights = [element[level] for element in elements_of(char)]
        encoded = b"".join(weight.to_bytes(2, "big") for weight in weights if weight)
        for byte in encoded + b"\0\0":
            hash = (hash ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"0x{hash:016X}"


def main(general_ci, unicode_ci, allkeys_9):
    general = weight_strings(general_ci)
    write("general_ci.bin", 1, {char: found for char, found in general.items() if found != [(char,)]})
    uca = weight_strings(unicode_ci)
    write("uca-4.0.0.bin", 1, {char: found for char, found in uca.items() if found != implicit_400(char)})
    uca_9 = allkeys(allkeys_9)
    write("uca-9.0.0.bin", 3, uca_9)
    print("general_ci", checksum(lambda char: general.get(char, [(0xFFFD,)]), 0))
    print("unicode_ci", checksum(lambda char: uca.get(char, [(0xFFFD,)]), 0))
    for level in range(3):
        print("0900, level", level, checksum(lambda char: elements_900(uca_9, char), level))


main(*sys.argv[1:])
