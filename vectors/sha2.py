#!/usr/bin/env python3
"""Writes sha256.json and sha512.json: digests of many messages, computed by Python's hashlib.

Independent of the code under test: it knows neither blocks nor lanes. Run it in this folder.
"""

import hashlib
import json

COMMENT = (
    "Made by sha2.py with Python's hashlib. fill(seed, n) is the bytes (seed + 31 * i + (i * i >> 7)) & 255 for i in 0..n. "
    "prefix = fill(1, prefix_len); suffix = fill(2, suffix_len); message k is the bytes k * message_len .. "
    "(k + 1) * message_len of fill(3, count * message_len). digest_of_digests is the hash of the "
    "concatenated hashes of prefix || message k || suffix, for all k in order."
)


def fill(seed, n):
    return bytes((seed + 31 * i + (i * i >> 7)) & 255 for i in range(n))


def case(name, prefix_len, message_len, count, suffix_len):
    prefix, suffix = fill(1, prefix_len), fill(2, suffix_len)
    data = fill(3, count * message_len)
    digests = b"".join(
        hashlib.new(name, prefix + data[k * message_len : (k + 1) * message_len] + suffix).digest()
        for k in range(count)
    )
    return {
        "prefix_len": prefix_len,
        "message_len": message_len,
        "count": count,
        "suffix_len": suffix_len,
        "digest_of_digests": hashlib.new(name, digests).hexdigest(),
    }


def cases(name, block):
    length_field = block // 8
    for prefix_len in (0, 1, 32, block - 1, block, 256):
        for message_len in (0, 1, block - length_field - 1, block - length_field, block, 2 * block + 1, 1024):
            for suffix_len in (0, 32, 256):
                # A count that changes from case to case and is often no multiple of a lane count.
                count = 1 + (prefix_len * 7 + message_len * 3 + suffix_len) % 40
                yield case(name, prefix_len, message_len, count, suffix_len)
    for count in (1, 2, 31, 32, 33, 63, 64, 65, 100):
        yield case(name, 32, 4096, count, 0)
        yield case(name, 0, 4096, count, 32)


for name, block in (("sha256", 64), ("sha512", 128)):
    with open(f"{name}.json", "w") as file:
        rows = ",\n    ".join(json.dumps(row) for row in cases(name, block))
        file.write('{\n  "_comment": %s,\n  "cases": [\n    %s\n  ]\n}\n' % (json.dumps(COMMENT), rows))
