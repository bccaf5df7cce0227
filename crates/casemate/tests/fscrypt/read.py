"""Lets this machine's kernel read an encrypted ext4 image: read.py IMAGE MOUNTPOINT KEYFILE...

Prints as JSON what each path holds, by the hex digits of its bytes: "" for a directory, "-> TARGET" for a link, the
SHA-256 of a file. A folder at the top whose cipher this kernel lacks is null. Exit status 77 if this kernel can't do it.
"""
import errno, fcntl, hashlib, json, os, struct, subprocess, sys

# <linux/fscrypt.h>
ADD_KEY = 0xC0506617


def cannot(why):
    print("this kernel: %s" % why, file=sys.stderr)
    sys.exit(77)


def walk(folder, path, found):
    for name in os.listdir(folder):
        inside, below = os.path.join(folder, name), path + b"/" + name
        if below == b"/lost+found":
            continue
        if os.path.islink(inside):
            value = "-> " + os.readlink(inside).hex()
        elif os.path.isdir(inside):
            value = ""
            more = {}
            try:
                walk(inside, below, more)
            except OSError as error:
                # A file that can't be opened speaks for all of the folder: its names are ciphertext.
                if path or error.errno not in (errno.ENOPKG, errno.ENOKEY, errno.EOPNOTSUPP):
                    raise
                value, more = None, {}
            found.update(more)
        else:
            with open(inside, "rb") as f:
                value = hashlib.sha256(f.read()).hexdigest()
        found[below.hex()] = value


image, top, *keys = sys.argv[1:]
if subprocess.run(["mount", "-t", "ext4", "-o", "loop,ro", image, top]).returncode:
    cannot("no loop mount of this image")
fd = os.open(top, os.O_RDONLY)
for path in keys:
    with open(path, "rb") as f:
        key = f.read()
    try:
        fcntl.ioctl(fd, ADD_KEY, bytearray(struct.pack("<II32xII32x", 2, 0, len(key), 0) + key), True)
    except OSError as error:
        cannot(error)
os.close(fd)
found = {}
walk(os.fsencode(top), b"", found)
print(json.dumps(found))
subprocess.run(["umount", top], check=True)
