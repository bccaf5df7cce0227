# Changes a tree at random, the same way for the same seed: a line for each call with what it said, and at the end all files.
# Called with a folder, a seed, and how many calls.
import ctypes, errno, hashlib, os, random, stat, sys

top, seed, count = os.fsencode(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)
draw = random.Random(seed)
SIZES = [0, 1, 59, 60, 100, 1000, 4095, 4096, 4097, 10000, 65536, 70001, 300000]
LONG = b"n" * 255
NAMES = [b"a", b"b", b"c", b"d", b"e", b"f", b"Long " * 40, LONG]
held = []


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


def rename(one, other, flags):
    return checked(libc.renameat2(-100, one, -100, other, flags))


def fallocate(file, mode, at, length):
    return checked(libc.fallocate(file, mode, ctypes.c_long(at), ctypes.c_long(length)))


def path():
    """Of something that is there, more often than not."""
    where = top
    for _ in range(draw.choice([0, 0, 1, 1, 2])):
        below = sorted(entry.name for entry in os.scandir(where) if entry.is_dir(follow_symlinks=False))
        if not below:
            break
        where = os.path.join(where, draw.choice(below))
    there = [name for name in sorted(os.listdir(where)) if name != b"lost+found"]
    return os.path.join(where, draw.choice(there) if there and draw.random() < 0.7 else draw.choice(NAMES))


def offset():
    return draw.choice([0, draw.choice(SIZES), draw.randrange(200000), draw.randrange(3000000)])


def opened(flags):
    file = os.open(path(), flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.ENOTSUP, "")
    return file


def using(file, use):
    try:
        return use(file)
    finally:
        os.close(file)


def write(file):
    data = bytes([draw.randrange(1, 256)]) * draw.choice(SIZES)
    return os.pwrite(file, data, offset())


def append():
    data = bytes([draw.randrange(1, 256)]) * draw.choice(SIZES[:9])
    return using(opened(os.O_WRONLY | os.O_APPEND), lambda file: os.write(file, data))


def allocate(file):
    mode, at, length = draw.choice([0, 1, 3, 3, 16, 17, 2]), offset(), draw.choice(SIZES)
    return fallocate(file, mode, at, length)


def digest(file):
    size = os.fstat(file).st_size
    return size, hashlib.sha256(os.pread(file, 4 << 20, 0)).hexdigest()[:16]


def hold():
    """A file that stays open, whatever becomes of its name."""
    held.append(opened(os.O_RDWR | draw.choice([0, os.O_CREAT])))


def use_held():
    if not held:
        return None
    file = held[draw.randrange(len(held))]
    what = draw.choice(["write", "truncate", "allocate", "read", "stat", "chmod", "sync", "close"])
    if what == "close":
        held.remove(file)
        os.close(file)
        return what
    if what == "stat":
        return what, os.fstat(file).st_nlink
    calls = {"write": lambda: write(file), "truncate": lambda: os.ftruncate(file, offset()), "read": lambda: digest(file)}
    calls.update(allocate=lambda: allocate(file), chmod=lambda: os.fchmod(file, 0o600), sync=lambda: os.fsync(file))
    return what, calls[what]()


def attribute():
    name = draw.choice(["user.a", "user.b", "trusted.c", "security.d", "odd.e", "user.", "system.f"])
    value = bytes([draw.randrange(256)]) * draw.choice([0, 1, 20, 100, 500, 3000, 5000])
    return os.setxattr(path(), name, value, draw.choice([0, 0, 1, 2]), follow_symlinks=False)


def listed():
    where = path()
    return sorted(os.listdir(where))


def told():
    found = os.lstat(path())
    return oct(found.st_mode), found.st_nlink, found.st_uid, found.st_gid, found.st_size * (not stat.S_ISDIR(found.st_mode))


CALLS = {
    "create": lambda: os.close(os.open(path(), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)),
    "write": lambda: using(opened(os.O_WRONLY | os.O_CREAT | draw.choice([0, 0, os.O_TRUNC])), write),
    "overwrite": lambda: using(opened(os.O_RDWR), write),
    "append": append,
    "truncate": lambda: using(opened(os.O_WRONLY), lambda file: os.ftruncate(file, offset())),
    "allocate": lambda: using(opened(os.O_RDWR), allocate),
    "read": lambda: using(opened(os.O_RDONLY), digest),
    "mkdir": lambda: os.mkdir(path(), draw.choice([0o755, 0o2775, 0o1777])),
    "rmdir": lambda: os.rmdir(path()),
    "unlink": lambda: os.unlink(path()),
    "rename": lambda: rename(path(), path(), draw.choice([0, 0, 0, 1, 2, 2, 3, 4, 4, 5, 6])),
    "link": lambda: os.link(path(), path(), follow_symlinks=False),
    "symlink": lambda: os.symlink(draw.choice([b"a", b"../b", b"t" * 59, b"t" * 60, b"t" * 1000, b"t" * 4095]), path()),
    "mknod": lambda: os.mknod(path(), draw.choice([0o010644, 0o020644, 0o060600, 0o140644, 0o100644]), os.makedev(3, 700)),
    "chmod": lambda: os.chmod(path(), draw.choice([0, 0o644, 0o4755, 0o2750, 0o1777, 0o6777])),
    "chown": lambda: os.chown(path(), draw.choice([0, 1000]), draw.choice([-1, 0, 70000]), follow_symlinks=False),
    "utime": lambda: os.utime(path(), ns=(draw.randrange(1 << 60), draw.randrange(1 << 60)), follow_symlinks=False),
    "setxattr": attribute,
    "removexattr": lambda: os.removexattr(path(), draw.choice(["user.a", "user.b", "trusted.c"]), follow_symlinks=False),
    "hold": hold,
    "held": use_held,
    "sync": lambda: using(opened(os.O_RDONLY), os.fsync),
    "stat": told,
    "list": listed,
}
OFTEN = list(CALLS) + ["write", "overwrite", "allocate", "truncate", "append", "create", "mkdir", "held", "held", "rename"]

os.umask(0o022)
for number in range(count):
    name = draw.choice(OFTEN)
    try:
        result = CALLS[name]()
    except OSError as error:
        result = errno.errorcode[error.errno]
    # The same numbers are drawn whether a call failed half-way or not.
    draw = random.Random(seed * 1000003 + number)
    print(number, name, result)
    if len(held) > 20:
        os.close(held.pop(0))
for file in held:
    print("held", os.fstat(file).st_nlink, digest(file))
    os.close(file)


def walk(where):
    found = os.lstat(where)
    what = [oct(found.st_mode), found.st_nlink, found.st_uid, found.st_gid, found.st_rdev]
    what += [(name, hashlib.sha256(os.getxattr(where, name, follow_symlinks=False)).hexdigest()[:8])
             for name in sorted(os.listxattr(where, follow_symlinks=False))]
    if stat.S_ISREG(found.st_mode):
        file = os.open(where, os.O_RDONLY)
        what.append(using(file, digest))
    elif stat.S_ISLNK(found.st_mode):
        what.append(os.readlink(where))
    elif stat.S_ISDIR(found.st_mode):
        for name in sorted(os.listdir(where)):
            if name != b"lost+found":
                walk(os.path.join(where, name))
    print(where[len(top):], what)


walk(top)
