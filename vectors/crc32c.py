#!/usr/bin/env python3
"""Write crc32c.json: raw CRC-32C registers of buffers and what small changes do to them, by long division.

The result must not change:  python3 crc32c.py && git diff --exit-code crc32c.json
Independent of the code under test: polynomials are Python integers, highest term first; no tables, no folded exponents.
"""

import json
import pathlib
import random

COMMENT = (
    "Made by crc32c.py. Registers are raw: no inversion before or after. fill(n): byte i is (31 * i + (i * i >> 7)) & 255. "
    "update: the register after fill(length), started at seed. combine: the register after A and B from crc_a and from "
    "crc_b, which was started at 0; len_b in bytes. flip, toggle: the change of the register when bits of a buffer of "
    "total_bits are inverted. splice: the change when old (hex) becomes new with `after` bytes behind it. "
    "Numbers above 2^53 are strings, as JSON readers round them."
)
P = 0x1_1EDC_6F41
LENGTHS = [0, 1, 2, 3, 4, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 95, 96, 97, 128, 255, 264, 511, 512, 767,
           768, 1000, 1020, 1023, 1024, 1025, 2047, 2048, 2049, 4084, 4096, 4097, 8191, 16384, 65536, 65537, 100003]
# Bitmaps of 1 KiB to 64 KiB, a bit on either side of 64 KiB, and where 31-bit, 62-bit and 64-bit arithmetic could slip.
TOTALS = [*(8192 << k for k in range(7)), 524287, 524289, (1 << 31) - 2, (1 << 31) - 1, 1 << 31, (1 << 32) + 1,
          (1 << 61) - 1, 1 << 62, (1 << 62) + (1 << 31) - 1, (1 << 63) + 5, (1 << 64) - 1]


def remainder(value):
    """The polynomial modulo P."""
    while value.bit_length() > 32:
        value ^= P << (value.bit_length() - 33)
    return value


def multiply(a, b):
    product = 0
    while b:
        if b & 1:
            product ^= a
        a, b = a << 1, b >> 1
    return remainder(product)


def power(n):
    """x^n, by squaring; the exponent is taken as it is."""
    if n == 0:
        return 1
    half = power(n // 2)
    square = multiply(half, half)
    return multiply(square, 2) if n & 1 else square


def ones(n):
    """x^(n-1) + ... + x + 1, by doubling."""
    if n == 0:
        return 0
    half = ones(n // 2)
    both = multiply(half, power(n // 2)) ^ half
    return multiply(both, 2) ^ 1 if n & 1 else both


def reflect(register):
    return int(f"{register:032b}"[::-1], 2)


def update(seed, data):
    """The definition: the message's bits, lowest of each byte first, the seed added to the first 32; times x^32."""
    register = reflect(seed)
    for byte in data:
        for bit in range(8):
            register = remainder((register << 1) ^ ((byte >> bit & 1) << 32))
    return reflect(register)


def fill(n):
    return bytes((31 * i + (i * i >> 7)) & 255 for i in range(n))


def number(n):
    return n if n < 1 << 53 else str(n)


def main():
    rng = random.Random(20260515)
    assert update(0xFFFFFFFF, b"123456789") ^ 0xFFFFFFFF == 0xE3069283
    assert update(0xFFFFFFFF, bytes(32)) ^ 0xFFFFFFFF == 0x8A9136AA  # RFC 3720, B.4
    assert update(0xFFFFFFFF, b"\xff" * 32) ^ 0xFFFFFFFF == 0x62A8AB43
    assert update(0xFFFFFFFF, bytes(range(32))) ^ 0xFFFFFFFF == 0x46DD794E
    updates = [{"length": n, "seed": seed, "crc": update(seed, fill(n))}
               for n in LENGTHS for seed in ((0, 0xFFFFFFFF, 0x12345678) if n < 300 else (0xFFFFFFFF,))]
    combines = []
    for len_b in [0, 1, 3, 4, 5, 4096, 65535, 65536, 65537, 1 << 28, (1 << 31) - 1, 1 << 61, (1 << 64) - 1]:
        crc_a, crc_b = rng.getrandbits(32), rng.getrandbits(32)
        crc = reflect(multiply(reflect(crc_a), power(8 * len_b))) ^ crc_b
        combines.append({"crc_a": crc_a, "crc_b": crc_b, "len_b": number(len_b), "crc": crc})
    flips, toggles, splices = [], [], []
    for total in TOTALS:
        for first, bits in [(0, total), (0, 1), (total - 1, 1), (total, 0),
                            *((f, rng.randrange(total - f + 1)) for f in [rng.randrange(total) for _ in range(4)])]:
            change = reflect(multiply(multiply(ones(bits), power(total - first - bits)), power(32)))
            flips.append({"total_bits": number(total), "first_bit": number(first), "bits": number(bits), "change": change})
        positions = [rng.randrange(total) for _ in range(5)]
        change = 0
        for position in positions:
            change ^= reflect(power(total - 1 - position + 32))
        toggles.append({"total_bits": number(total), "positions": [number(p) for p in positions], "change": change})
    for length in [1, 2, 3, 4, 7, 8, 12, 32, 64, 95, 96, 128, 264, 1024, 1025]:
        for after in [0, 1, 4, 1000, 65536, 1 << 40]:
            old, new = rng.randbytes(length), rng.randbytes(length)
            difference = update(0, bytes(a ^ b for a, b in zip(old, new)))
            change = reflect(multiply(reflect(difference), power(8 * after)))
            splices.append({"old": old.hex(), "new": new.hex(), "after": number(after), "change": change})
    document = {"_comment": COMMENT, "update": updates, "combine": combines, "flip": flips, "toggle": toggles,
                "splice": splices}
    lines = [f'"{key}": ' + (json.dumps(value) if isinstance(value, str) else
                             "[\n" + ",\n".join(map(json.dumps, value)) + "\n]") for key, value in document.items()]
    path = pathlib.Path(__file__).with_name("crc32c.json")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


main()
