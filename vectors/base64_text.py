#!/usr/bin/env python3
"""Write base64.json: vectors for encoding and strict decoding, by Python's binascii module.

The result must not change:  python3 base64_text.py && git diff --exit-code base64.json
(A file named base64.py would hide Python's own module of that name from every script in this folder.)
"""

import binascii
import json
import pathlib

COMMENT = (
    "Made by base64_text.py. alphabets: the last two of the 64 characters. encoded: input of `length` bytes, byte i is "
    "i % 251, and its text in each alphabet, unpadded; padded is the same filled up with = to a multiple of 4. "
    "named: inputs in hex with their standard text, padded. texts: texts in hex that a strict decoder of the "
    "standard alphabet refuses (padded or unpadded is null) or accepts (the bytes in hex)."
)
ALPHABETS = {"standard": "+/", "url_safe": "-_", "imap": "+,"}
# 0..=67: every small case. 95 97 191 193: two and four groups of 48 bytes and their neighbours. 255: a file name.
LENGTHS = [*range(68), 95, 96, 97, 191, 192, 193, 207, 208, 209, 255, 256, 1023, 1024, 1025, 4096]

# The RFC's examples and what the kernel's KUnit suite tries.
NAMED = [b"", b"f", b"fo", b"foo", b"foob", b"fooba", b"foobar", b"Hello, world!",
         b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz", b"0123456789+/", b"\x00\xfb\xff\x7f\x80"]
TEXTS = [b"", b"Zg==", b"Zg", b"Zg=", b"Zg=!", b"Zm$=", b"Z===", b"Z", b"Zm8=", b"Zm8", b"Zm9v", b"Zm9v====",
         b"Zm9v=", b"Zm==A", b"Zm==v", b"Zg\0=", b"Zg\n", b"Zg==\n", b" Zg=", b"====", b"=", b"==", b"===", b"=Zg=",
         b"Zh==", b"Zh", b"Zv==", b"Zv", b"Zm9", b"Zm9=", b"Zm+=", b"Zm-_", b"Zm+,", b"Zm+/", b"\xff\xff\xff\xff",
         b"Zm9vZg==Zm9v", b"Zm9vYmE=", b"Zm9vYmE", b"Zm9vYmF", b"Zm9vYmE=="]


def standard(data):
    return binascii.b2a_base64(data, newline=False)


def encode(data, last):
    """The unpadded text in an alphabet with these last two characters."""
    return standard(data).decode().rstrip("=").translate(str.maketrans("+/", last))


def decode(text, padded):
    """The bytes, or None. A text is canonical if encoding what it decodes to gives it back."""
    try:
        data = binascii.a2b_base64(text if padded else text + b"=" * (-len(text) % 4), strict_mode=True)
    except binascii.Error:
        return None
    again = standard(data)
    return data if (again if padded else again.rstrip(b"=")) == text else None


def hex_or_none(data):
    return None if data is None else data.hex()


def main():
    inputs = {length: bytes(i % 251 for i in range(length)) for length in LENGTHS}
    document = {
        "_comment": COMMENT,
        "alphabets": ALPHABETS,
        "encoded": [{"length": n, **{name: encode(data, last) for name, last in ALPHABETS.items()}}
                    for n, data in inputs.items()],
        "named": [{"bytes": data.hex(), "text": standard(data).decode()} for data in NAMED],
        "texts": [{"text": text.hex(), "padded": hex_or_none(decode(text, True)),
                   "unpadded": hex_or_none(decode(text, False))} for text in TEXTS],
    }
    path = pathlib.Path(__file__).with_name("base64.json")
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
