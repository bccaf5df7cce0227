# What system calls say of a tree: a line for each name, and one for the file system. Errors are told by their names.
import errno, hashlib, os, stat, sys

top = os.fsencode(sys.argv[1])


def told(call, *arguments, **more):
    try:
        return call(*arguments, **more)
    except OSError as error:
        return errno.errorcode[error.errno]


def contents(path):
    """A digest of what is read, piece by piece, and where data and holes begin."""
    file = told(os.open, path, os.O_RDONLY)
    if isinstance(file, str):
        return file
    # Before anything is read: what the kernel has in memory counts as data.
    holes, at = [], 0
    while len(holes) < 200:
        at = told(os.lseek, file, at, os.SEEK_DATA)
        holes.append(at)
        if isinstance(at, str):
            break
        at = told(os.lseek, file, at, os.SEEK_HOLE)
        holes.append(at)
    digest, at, size, seen = hashlib.sha256(), 0, os.fstat(file).st_size, []
    while at < size:
        piece = told(os.pread, file, 65536, at)
        if isinstance(piece, str):
            seen.append((at, piece))
            piece = bytes(65536)
        digest.update(piece)
        at += 65536
    past = told(os.pread, file, 10, size)
    os.close(file)
    return digest.hexdigest(), seen, holes, past


def attributes(path):
    names = told(os.listxattr, path, follow_symlinks=False)
    if isinstance(names, str):
        return names
    # The kernel's own mount shows labels that are not stored.
    return [(name, told(os.getxattr, path, name, follow_symlinks=False)) for name in sorted(names)]


def described(path):
    found = told(os.lstat, path)
    if isinstance(found, str):
        return found
    what = [oct(found.st_mode), found.st_ino, found.st_nlink, found.st_uid, found.st_gid, found.st_size]
    what += [found.st_blocks, found.st_blksize, found.st_rdev, found.st_mtime_ns, found.st_ctime_ns]
    what.append(attributes(path))
    if stat.S_ISLNK(found.st_mode):
        what.append(told(os.readlink, path))
    if stat.S_ISREG(found.st_mode):
        what.append(contents(path))
    return what


def walk(path):
    print(path[len(top):], described(path))
    if not stat.S_ISDIR(getattr(told(os.lstat, path), "st_mode", 0)):
        return
    entries = told(lambda: sorted((entry.name, entry.inode()) for entry in os.scandir(path)))
    if isinstance(entries, str):
        print(path[len(top):], "list", entries)
        return
    for name, inode in entries:
        print(path[len(top):], name, inode)
        walk(os.path.join(path, name))


print([getattr(os.statvfs(top), f"f_{name}") for name in "bsize frsize blocks bfree bavail files ffree namemax".split()])
walk(top)
