"""Answers ciphers' and hashes' questions with OpenSSL's libcrypto, which is asked through ctypes.

Each line of standard input is JSON; each line of standard output is the answer in hexadecimal:
  {"cipher": "AES-256-XTS", "encrypt": true, "cts": false, "key": hex, "ivs": [hex, ...], "data": hex}
      the data in as many equal units as there are IVs
  {"hash": "sha256", "data": hex}
"""
import ctypes
import ctypes.util
import hashlib
import json
import sys

CRYPTO = ctypes.CDLL(ctypes.util.find_library("crypto"))
CRYPTO.EVP_CIPHER_fetch.restype = ctypes.c_void_p
CRYPTO.EVP_CIPHER_CTX_new.restype = ctypes.c_void_p


class Param(ctypes.Structure):
    """OSSL_PARAM: one with the type 4 (a string), then one without a name, which ends the list."""
    _fields_ = [("key", ctypes.c_char_p), ("type", ctypes.c_uint), ("data", ctypes.c_void_p),
                ("size", ctypes.c_size_t), ("returned", ctypes.c_size_t)]


CS3 = ctypes.create_string_buffer(b"CS3")
CTS = (Param * 2)(Param(b"cts_mode", 4, ctypes.cast(CS3, ctypes.c_void_p), 3, 0), Param())


def unit(question, iv, data):
    cipher = CRYPTO.EVP_CIPHER_fetch(None, question["cipher"].encode(), None)
    assert cipher, question["cipher"]
    context = ctypes.c_void_p(CRYPTO.EVP_CIPHER_CTX_new())
    init = CRYPTO.EVP_EncryptInit_ex2 if question["encrypt"] else CRYPTO.EVP_DecryptInit_ex2
    update = CRYPTO.EVP_EncryptUpdate if question["encrypt"] else CRYPTO.EVP_DecryptUpdate
    params = ctypes.byref(CTS) if question["cts"] else None
    key = bytes.fromhex(question["key"])
    assert init(context, ctypes.c_void_p(cipher), key, iv or None, params) == 1, question["cipher"]
    CRYPTO.EVP_CIPHER_CTX_set_padding(context, 0)
    out, length = ctypes.create_string_buffer(len(data) + 64), ctypes.c_int()
    assert update(context, out, ctypes.byref(length), data, len(data)) == 1, question["cipher"]
    assert length.value == len(data), (length.value, len(data))
    CRYPTO.EVP_CIPHER_CTX_free(context)
    CRYPTO.EVP_CIPHER_free(ctypes.c_void_p(cipher))
    return out.raw[:len(data)]


for line in sys.stdin:
    question = json.loads(line)
    data = bytes.fromhex(question["data"])
    if "hash" in question:
        print(hashlib.new(question["hash"], data).hexdigest())
        continue
    size = len(data) // len(question["ivs"])
    units = [unit(question, bytes.fromhex(iv), data[k * size:(k + 1) * size])
             for k, iv in enumerate(question["ivs"])]
    print(b"".join(units).hex())
