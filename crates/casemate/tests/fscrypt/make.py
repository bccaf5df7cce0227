"""Lets this machine's kernel fill an ext4 image with encrypted files, and say what it sees, with keys and without.

  make.py IMAGE FOLDER JSON

JSON: {"keys": [{"version", "key_hex"}], "policies": [{"dir", "key", ...}], "many": names in one directory, "copy":
[[file, path in the image]]}.
FOLDER is where the image is mounted. Prints a manifest as JSON; exit status 77 if this kernel can't do it.
"""
import errno, fcntl, hashlib, json, os, struct, subprocess, sys

# <linux/fscrypt.h>
SET_POLICY, ADD_KEY, GET_NONCE = 0x800C6613, 0xC0506617, 0x8010661B
MODES = {"aes-256-xts": 1, "aes-256-cts": 4, "aes-128-cbc": 5, "aes-128-cts": 6, "adiantum": 9, "aes-256-hctr2": 10}
FLAGS = {None: 0, "DIRECT_KEY": 4, "IV_INO_LBLK_64": 8, "IV_INO_LBLK_32": 16}

SIZES = [0, 1, 15, 16, 17, 511, 512, 1023, 1025, 4095, 4096, 4097, 10000, 70000]
LINKS = [1, 15, 16, 17, 31, 32, 33, 56, 57, 58, 59, 60, 61, 255, 256, 900]


def cannot(why):
    print("this kernel: %s" % why, file=sys.stderr)
    sys.exit(77)


def ioctl(path, number, data):
    data = bytearray(data)
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        fcntl.ioctl(fd, number, data, True)
    finally:
        os.close(fd)
    return bytes(data)


def descriptor(key):
    return hashlib.sha512(hashlib.sha512(key).digest()).digest()[:8]


def add_key(top, version, key):
    """Gives the kernel a key; returns what it calls it."""
    spec = struct.pack("<II8s24x", 1, 0, descriptor(key)) if version == 1 else struct.pack("<II32x", 2, 0)
    answer = ioctl(top, ADD_KEY, spec + struct.pack("<II32x", len(key), 0) + key)
    return descriptor(key) if version == 1 else answer[8:24]


def set_policy(path, name, policy):
    flags = {4: 0, 8: 1, 16: 2, 32: 3}[policy["padding"]] | FLAGS[policy.get("flag")]
    contents, names = MODES[policy["contents"]], MODES[policy["filenames"]]
    if len(name) == 8:
        ioctl(path, SET_POLICY, struct.pack("<BBBB8s", 0, contents, names, flags, name))
    else:
        log2 = policy.get("data_unit_size", 0).bit_length()
        log2 = log2 - 1 if log2 else 0
        ioctl(path, SET_POLICY, struct.pack("<BBBBB3x16s", 2, contents, names, flags, log2, name))


def stream(seed, size):
    out = bytearray()
    while len(out) < size:
        out += hashlib.sha256(b"%s:%d" % (seed, len(out))).digest()
    return bytes(out[:size])


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def fill(top, many):
    """Everything that a directory can hold."""
    for size in SIZES:
        write(top + b"/size%d" % size, stream(top + b"%d" % size, size))
    with open(top + b"/holes", "wb") as f:
        for at in (0, 20000, 300000):
            f.seek(at)
            f.write(stream(b"holes%d" % at, 5000))
        f.truncate(400001)
    with open(top + b"/unwritten", "wb") as f:
        try:
            os.posix_fallocate(f.fileno(), 0, 100000)
        except OSError:
            f.truncate(100000)
        f.write(b"start")
    with open(top + b"/beyond-the-end", "wb") as f:
        f.write(stream(b"beyond", 3000))
        f.flush()
        # FALLOC_FL_KEEP_SIZE; maps of blocks without extents have no such thing.
        subprocess.run(["fallocate", "--keep-size", "-l", "200000", os.fsdecode(top) + "/beyond-the-end"], check=False,
                       stderr=subprocess.DEVNULL)
    os.link(top + b"/size1", top + b"/a hard link")
    os.mkfifo(top + b"/fifo")
    for length in LINKS:
        os.symlink(b"t" * length, top + b"/link%d" % length)
    names = top + b"/names"
    os.mkdir(names)
    for length in list(range(1, 40)) + [63, 64, 65, 127, 128, 148, 149, 150, 159, 160, 161, 191, 223, 224, 253, 254, 255]:
        write(names + b"/" + (b"%d" % length + b"n" * 255)[:length], b"")
    for name in (b"\xff\xfe no UTF-8", "\u00fc\u00f1\u00ef\u6f22".encode(), b"-", b".hidden", b" ", b"line\nfeed"):
        write(names + b"/" + name, b"x")
    os.makedirs(top + b"/deep/deeper/deepest")
    write(top + b"/deep/deeper/deepest/file", b"at the bottom")
    os.mkdir(top + b"/many")
    for number in range(many):
        write(top + b"/many/entry-%d-%s" % (number, b"+" * (number % 23)), b"")


def walk(top):
    """Paths below `top`, as bytes, parents first."""
    folders = [b""]
    while folders:
        folder = folders.pop()
        for name in os.listdir(os.path.join(top, folder)):
            path = os.path.join(folder, name)
            if path == b"lost+found":
                continue
            yield path
            if os.path.isdir(os.path.join(top, path)) and not os.path.islink(os.path.join(top, path)):
                folders.append(path)


def mount(image, top):
    if subprocess.run(["mount", "-t", "ext4", "-o", "loop", image, top], stderr=subprocess.PIPE).returncode:
        cannot("no loop mount of an ext4 image with encryption")


def main():
    image, top, work = sys.argv[1], os.fsencode(sys.argv[2]), json.loads(sys.argv[3])
    mount(image, top)
    policies, names = [], []
    try:
        for key in work["keys"]:
            name = add_key(top, key["version"], bytes.fromhex(key["key_hex"]))
            names.append(name)
            key["descriptor" if len(name) == 8 else "identifier"] = name.hex()
    except OSError as error:
        cannot(error)
    for policy in work["policies"]:
        path = os.path.join(top, policy["dir"].encode())
        os.makedirs(path)
        try:
            set_policy(path, names[policy["key"]], policy)
            fill(path, work["many"])
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOPKG, errno.EOPNOTSUPP, errno.ENOTTY):
                raise
            # Older kernels lack one or the other.
            subprocess.run(["rm", "-rf", path], check=True)
            continue
        policies.append(policy)
    for source, target in work.get("copy", []):
        with open(source, "rb") as f:
            write(os.path.join(top, target.encode()), f.read())
    if not policies:
        cannot("takes none of the policies")
    os.makedirs(top + b"/plain/folder")
    write(top + b"/plain/folder/file", b"in clear")
    os.symlink(b"folder/file", top + b"/plain/link")
    entries = []
    for path in walk(top):
        whole = os.path.join(top, path)
        stat = os.lstat(whole)
        entry = {"path_hex": path.hex(), "inode": stat.st_ino}
        if os.path.islink(whole):
            entry["target_hex"] = os.readlink(whole).hex()
        elif os.path.isfile(whole):
            with open(whole, "rb") as f:
                data = f.read()
            entry.update(size=len(data), sha256=hashlib.sha256(data).hexdigest())
        if os.path.isdir(whole) or os.path.isfile(whole):
            try:
                entry["nonce"] = ioctl(whole, GET_NONCE, bytes(16)).hex()
            except OSError as error:
                if error.errno not in (errno.ENODATA, errno.ELOOP):
                    raise
        entries.append(entry)
    subprocess.run(["umount", top], check=True)
    # A new mount knows no keys.
    mount(image, top)
    shown, targets = {}, {}
    for path in walk(top):
        whole = os.path.join(top, path)
        inode = os.lstat(whole).st_ino
        shown.setdefault(inode, []).append(os.path.basename(path).decode("latin-1"))
        if os.path.islink(whole):
            targets[inode] = os.readlink(whole).decode()
    subprocess.run(["umount", top], check=True)
    for entry in entries:
        found = shown[entry["inode"]]
        if len(found) == 1:
            entry["nokey_name"] = found[0]
        else:
            entry["nokey_names_one_of"] = found
        if entry["inode"] in targets:
            entry["nokey_target"] = targets[entry["inode"]]
    json.dump({"keys": work["keys"], "policies": policies, "entries": entries}, sys.stdout)


main()
