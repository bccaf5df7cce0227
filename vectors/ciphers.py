#!/usr/bin/env python3
"""Selects published vectors of the ciphers into ciphers.json.

    ciphers.py NIST ADIANTUM HCTR2 LAB

NIST: the folder ciphers/AES of the PyPI package cryptography-vectors (CAVP files of NIST, public domain).
ADIANTUM, HCTR2: checkouts of github.com/google/adiantum and github.com/google/hctr2 (MIT).
LAB: a folder with dm-crypt devices that a kernel wrote: NAME.json with the table line and the plaintext's seed, and
NAME.img.xz; stream() below is how their plaintext was made.
IEEE 1619 and RFC 3962 vectors are typed in from those documents.
"""

import collections
import hashlib
import json
import lzma
import pathlib
import sys

# (key 1 || key 2, data unit, plaintext, ciphertext) of IEEE 1619-2007, annex B.
IEEE_1619 = [
    ("00" * 32, "00" * 16, "00" * 32, "917cf69ebd68b2ec9b9fe9a3eadda692cd43d2f59598ed858c02c2652fbf922e"),
    ("11" * 16 + "22" * 16, "33" * 5 + "00" * 11, "44" * 32,
     "c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0"),
    ("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0" + "22" * 16, "33" * 5 + "00" * 11, "44" * 32,
     "af85336b597afc1a900b2eb21ec949d292df4c047e0b21532186a5971a227a89"),
] + [
    ("fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0bfbebdbcbbbab9b8b7b6b5b4b3b2b1b0", "9a78563412" + "00" * 11,
     bytes(range(len(c) // 2)).hex(), c)
    for c in ("6c1625db4671522d3d7599601de7ca09ed", "d069444b7a7e0cab09e24447d24deb1fedbf",
              "e5df1351c0544ba1350b3363cd8ef4beedbf9d", "9d84c813f719aa2c7be3f66171c7c5c2edbf9dac")
]

# RFC 3962, appendix B: (length of the plaintext, ciphertext), key and plaintext below, IV 0.
RFC_3962_KEY = b"chicken teriyaki"
RFC_3962_TEXT = b"I would like the General Gau's Chicken, please, and wonton soup."
RFC_3962 = [
    (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
    (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
    (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
    (47, "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e39312523a78662d5be7fcbcc98ebf5"),
    (48, "97687268d6ecccc0c07b25e25ecfe5849dad8bbb96c4cdc03bc103e1a194bbd8"
         "39312523a78662d5be7fcbcc98ebf5a8"),
    (64, "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a8"
         "4807efe836ee89a526730dbc2f7bc8409dad8bbb96c4cdc03bc103e1a194bbd8"),
]

# NIST SP 800-38A, F.5: (key, counter, plaintext, ciphertext) of CTR.
SP_800_38A = [(
    "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
    "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
    "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
    "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6",
)]

# What a dm-crypt name is in terms of the library: mode, where IVs come from, sectors in a step.
KERNEL = {
    "xts-plain64-s512": ("xts", "little"),
    "xts-plain64-s4096": ("xts", "little"),
    "xts-plain64-s4096-large": ("xts", "little"),
    "xts-plain-wrap": ("xts", "wrapping"),
    "xts-plain64be-wrap": ("xts", "big"),
    "xts-plain64-offset-skip": ("xts", "little"),
    "cbc-plain": ("cbc", "wrapping"),
    "cbc-null": ("cbc", "null"),
    "cbc-benbi": ("cbc", "benbi"),
    "cbc-eboiv": ("cbc", "eboiv"),
    "cbc-essiv-sha256-key256": ("cbc", "essiv"),
    "ctr-plain64": ("ctr", "little"),
    "hctr2-capi": ("hctr2", "little"),
    "xchacha12_aes-adiantum-plain64-s512": ("adiantum12", "little"),
    "xchacha12_aes-adiantum-plain64-s4096": ("adiantum12", "little"),
}


def rsp(path, wanted):
    """Cases of a CAVP response file, at most `wanted` for each direction and length."""
    case, seen = {}, collections.Counter()
    for line in path.read_text().splitlines() + [""]:
        if line.startswith("["):
            direction = line.strip("[]")
        elif " = " in line:
            name, value = line.split(" = ", 1)
            case[name.upper()] = value.strip()
        elif case:
            text = case.get("PT", case.get("PLAINTEXT", ""))
            bits = int(case.get("DATAUNITLEN", 4 * len(text)))
            seen[direction, bits] += 1
            if bits % 8 == 0 and bits == 4 * len(text) and seen[direction, bits] <= wanted:
                iv = case.get("IV") or case.get("I")
                if iv is None:
                    iv = int(case["DATAUNITSEQNUMBER"]).to_bytes(16, "little").hex()
                yield case["KEY"], iv, text, case.get("CT", case.get("CIPHERTEXT"))
            case = {}


def wide(path, wanted):
    """Cases with 32-byte tweaks, at most `wanted` of each length."""
    seen = collections.Counter()
    for case in json.loads(path.read_text()):
        given = case["input"]
        if "tweak_hex" in given and len(given["tweak_hex"]) != 64:
            continue
        text = case.get("plaintext_hex", given.get("message_hex"))
        seen[len(text)] += 1
        if seen[len(text)] <= wanted:
            iv = given.get("tweak_hex", given.get("nonce_hex", ""))
            yield given["key_hex"], iv, text, case.get("ciphertext_hex", case.get("hash_hex"))


def stream(seed, size):
    blocks = (hashlib.sha256(f"{seed}:{i}".encode()).digest() for i in range(size // 32 + 1))
    return b"".join(blocks)[:size]


def kernel(folder, name):
    told = json.loads((folder / f"{name}.json").read_text())
    table = told["table"].split()
    mode, ivs = KERNEL[name]
    size = 512 * int(table[1])
    start = 512 * int(table[7])
    image = lzma.open(folder / f"{name}.img.xz").read()[start : start + size]
    plain = stream(told["plaintext_seed"], size)
    assert hashlib.sha256(plain).hexdigest() == told["plaintext_sha256"], name
    sector = next((int(o[12:]) for o in table if o.startswith("sector_size:")), 512)
    large = "iv_large_sectors" in table
    return {
        "name": name,
        "table": told["table"],
        "mode": mode,
        "ivs": ivs,
        "key": table[4],
        "first": int(table[5]) // (sector // 512 if large else 1),
        "step": 1 if large else sector // 512,
        "sector": sector,
        "size": size,
        "seed": told["plaintext_seed"],
        "plain_sha256": told["plaintext_sha256"],
        "cipher_sha256": hashlib.sha256(image).hexdigest(),
        "cipher_start": image[:16].hex(),
    }


def main():
    nist, adiantum, hctr2, lab = map(pathlib.Path, sys.argv[1:])
    ours = "test_vectors/ours"
    cases = {
        "xts": list(IEEE_1619),
        "cbc": [],
        "cts": [(RFC_3962_KEY.hex(), "00" * 16, RFC_3962_TEXT[:n].hex(), c) for n, c in RFC_3962],
        "ctr": SP_800_38A,
        "xctr": [c for k in (128, 192, 256) for c in wide(hctr2 / ours / f"XCTR/XCTR_AES{k}.json", 1)],
        "polyval": list(wide(hctr2 / ours / "Polyval/Polyval.json", 2)),
        "hctr2": [c for k in (128, 192, 256) for c in wide(hctr2 / ours / f"HCTR2/HCTR2_AES{k}.json", 2)],
        "adiantum12": list(wide(adiantum / ours / "Adiantum/Adiantum_XChaCha12_32_AES256.json", 3)),
        "adiantum20": list(wide(adiantum / ours / "Adiantum/Adiantum_XChaCha20_32_AES256.json", 2)),
    }
    for path in sorted(nist.glob("XTS/*/*.rsp")):
        cases["xts"] += rsp(path, 10)
    for path in sorted(nist.glob("CBC/*.rsp")):
        cases["cbc"] += rsp(path, 10)
    comment = (
        "Made by ciphers.py, which says where the vectors come from. Each list but kernel: key, IV or tweak, "
        "plaintext, ciphertext (polyval: hash), in hex. kernel: a dm-crypt device's plaintext is SHA-256 of "
        "`seed:i` for i = 0, 1, ...; first and step say the sectors' IVs."
    )
    with open(pathlib.Path(__file__).with_name("ciphers.json"), "w") as out:
        out.write('{\n "_comment": ' + json.dumps(comment))
        for name, rows in cases.items():
            lines = ",\n".join("  " + json.dumps(row) for row in rows)
            out.write(f',\n "{name}": [\n{lines}\n ]')
        lines = ",\n".join("  " + json.dumps(kernel(lab, name)) for name in KERNEL)
        out.write(f',\n "kernel": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
