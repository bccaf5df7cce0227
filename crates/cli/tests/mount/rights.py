# What becomes of set-user-ID and set-group-ID when others change a file, of times before 1970, and of attributes that are not
# there: a line for each case. Called by root with a folder of one's own.
import ctypes, errno, os, struct, sys

top = sys.argv[1]
libc = ctypes.CDLL(None, use_errno=True)
path = os.path.join(top, "file")


def fallocate(mode, length):
    def call():
        file = os.open(path, os.O_WRONLY)
        if libc.fallocate(file, mode, ctypes.c_long(0), ctypes.c_long(length)) < 0:
            raise OSError(ctypes.get_errno(), "")
        os.close(file)

    return call


def write(flags):
    def call():
        file = os.open(path, os.O_WRONLY | flags)
        if not flags:
            os.write(file, b"other")
        os.close(file)

    return call


def acl(*permissions):
    tags = zip([1, 4, 0x20], permissions)
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, bits, 0xFFFFFFFF) for tag, bits in tags)


def acl_of_a_user():
    entries = [(1, 7, -1), (2, 7, 1000), (4, 7, -1), (0x10, 7, -1), (0x20, 7, -1)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)


def set_acl(value):
    return lambda: os.setxattr(path, "system.posix_acl_access", value)


def by(uid, gid, groups, call):
    """The name of the error, or nothing."""
    read, out = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        try:
            call()
            said = "done"
        except OSError as error:
            said = errno.errorcode[error.errno]
        os.write(out, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(read, 100).decode()
    os.close(read)
    os.close(out)
    return said


def case(what, owner, mode, who, call, folder=False):
    if folder:
        os.mkdir(path)
    else:
        open(path, "w").write("text" * 3000)
    os.chown(path, *owner)
    os.chmod(path, mode)
    os.stat(path)
    said = by(*who, call)
    print(what, oct(mode), who, said, oct(os.stat(path).st_mode))
    os.rmdir(path) if folder else os.unlink(path)


os.chmod(top, 0o777)
changes = {
    "allocate": fallocate(0, 50000), "keep size": fallocate(1, 50000), "punch": fallocate(3, 4096), "zero": fallocate(16, 4096),
    "write": write(0), "truncate": lambda: os.truncate(path, 3), "open": write(os.O_TRUNC),
}
users = [(1000, 1000, []), (1000, 1000, [77, 5]), (1000, 77, []), (0, 0, [])]
for what, call in changes.items():
    for mode in [0o6777, 0o4777, 0o2777, 0o2767, 0o6767]:
        for who in users:
            case(what, (0, 77), mode, who, call)
for mode in [0o2755, 0o6755, 0o2745]:
    for who in [(1000, 1000, []), (1000, 1000, [77]), (1000, 77, []), (0, 0, [])]:
        for folder in [False, True]:
            case("acl", (1000, 77), mode, who, set_acl(acl(7, 7, 7)), folder)
            case("acl of a user", (1000, 77), mode, who, set_acl(acl_of_a_user()), folder)
        case("chgrp", (1000, 77), mode, who, lambda: os.chown(path, -1, who[1]))
        case("chmod", (1000, 77), mode, who, lambda: os.chmod(path, 0o2777))

open(path, "w").close()
SECOND = 1_000_000_000
times = [-SECOND // 4, -1, -SECOND * 3 // 2, -SECOND, -SECOND - 1, 1, SECOND // 4, (1 - (1 << 31)) * SECOND + 7]
for number, time in enumerate(times):
    name = f"{path}{number}"
    open(name, "w").close()
    os.utime(name, ns=(time, time))
    print("time", time, os.stat(name).st_mtime_ns)


def told(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]


for name in ["user.", "trusted.", "foo", "system.foo", "system.posix_acl_access", "system.posix_acl_accessx", "user.none"]:
    print(name, told(lambda: os.getxattr(path, name)), told(lambda: os.removexattr(path, name)), told(lambda: os.setxattr(path, name, b"")))
