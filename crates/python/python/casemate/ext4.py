"""ext4 file systems with the verbs of pathlib."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import functools
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, cast

from . import _casemate
from .device import Device, ranged, secret, shown
from .fscrypt import Context, Policy
from .fsverity import Digest
from .upkeep import Altered as Altered
from .upkeep import Finding as Finding
from .upkeep import Repaired as Repaired
from .upkeep import Resized as Resized
from .upkeep import check as check
from .upkeep import minimize as minimize
from .upkeep import minimum_size as minimum_size
from .upkeep import repair as repair
from .upkeep import resize as resize

if TYPE_CHECKING:
    from types import TracebackType

    from .device import Buffer, StrPath
    from .luks import Pbkdf

#: Bytes that a buffered file reads at once.
BUFFER = 256 * 1024

_new = object.__new__

#: Numbers of errors by which a path leads to nothing; pathlib has the same.
NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Stat(NamedTuple):
    """Fields of an inode, under the names of `os.stat_result`. `st_blocks` counts 512 bytes."""

    st_mode: int
    st_ino: int
    st_nlink: int
    st_uid: int
    st_gid: int
    st_size: int
    st_blocks: int
    st_rdev: int
    st_atime_ns: int
    st_mtime_ns: int
    st_ctime_ns: int
    st_birthtime_ns: int | None

    @property
    def st_atime(self) -> float:
        return self.st_atime_ns / 1e9

    @property
    def st_mtime(self) -> float:
        return self.st_mtime_ns / 1e9

    @property
    def st_ctime(self) -> float:
        return self.st_ctime_ns / 1e9


class Extent(NamedTuple):
    """Bytes of a file that lie one after the other: where in the file, where on the device, how many, and whether they were ever
    written; if not, they read as zeros."""

    offset: int
    physical: int
    size: int
    written: bool


class Built(NamedTuple):
    """An image that was made: the file system's size in bytes, how many files there are in it, its UUID, the root hash of
    dm-verity, the digests of files with fs-verity by their paths, and the PKCS#7 signature of the root hash in DER, if there is a
    signer."""

    size: int
    files: int
    directories: int
    others: int
    uuid: str
    root_hash: bytes | None
    digests: dict[bytes, str]
    root_hash_signature: bytes | None = None


class Encrypted(NamedTuple):
    """A directory of a new image that is encrypted with all that is in it: the raw master key, and the policy."""

    key: Buffer
    policy: Policy = Policy()

    def __repr__(self) -> str:
        return shown(self, "key")


class Protected(NamedTuple):
    """A directory of a new image that is encrypted with a random key, which google/fscrypt opens with a secret: a passphrase
    ("custom_passphrase"), or a key of 32 bytes ("raw_key")."""

    secret: str | Buffer
    source: Literal["custom_passphrase", "raw_key"] = "custom_passphrase"
    policy: Policy = Policy()

    def __repr__(self) -> str:
        return shown(self, "secret")


class Parity(NamedTuple):
    """Parity of dm-verity over a new image: a file or device, the first byte there, and parity bytes for each codeword, 2 to 24."""

    path: StrPath
    offset: int = 0
    roots: int | None = None


class Source(NamedTuple):
    """A source of a new image's files. Of an OCI layout folder the image may be named: by its name, digest or platform."""

    kind: Literal["folder", "tar", "layer", "oci"]
    path: StrPath
    image: str | None = None


class Description(NamedTuple):
    """A file that says what becomes of a new image's files, and its format."""

    format: Literal["fs_config", "device_table", "mtree", "composefs_dump"]
    path: StrPath


class Mode(NamedTuple):
    """Permission bits of files that match a pattern, as chmod(1) takes them: "0644", "u+x,go=r"."""

    pattern: str | bytes
    mode: str


class Xattr(NamedTuple):
    """An extended attribute that files get which match a pattern."""

    pattern: str | bytes
    name: str | bytes
    value: Buffer


class Signer(NamedTuple):
    """Signer of fs-verity's digests and of dm-verity's root hash: the private key in PEM, and its certificate in PEM or DER. In place
    of the key a function may sign elsewhere, such as in a token: any thread calls it with the bytes to sign and the name of the
    hash, and it returns an RSA PKCS#1 v1.5 block, or ECDSA's (r, s) in DER, which is verified with the certificate."""

    key: Buffer | Callable[[bytes, str], Buffer]
    certificate: Buffer

    def __repr__(self) -> str:
        return shown(self, "key")


class Luks(NamedTuple):
    """A LUKS2 volume around a new image. With a volume key, which is random otherwise, it follows from the build's seed."""

    passphrase: str | Buffer
    volume_key: Buffer | None = None
    sector_size: int = 512
    pbkdf: Pbkdf | None = None

    def __repr__(self) -> str:
        return shown(self, "passphrase volume_key")


def ordered_sources(sources: Iterable[Source], lists: dict[str, Iterable[StrPath]]) -> list[Source]:
    """One list of sources in the order that is meant; lists of several kinds have none."""
    all_sources = {"sources": [Source(*source) for source in sources]}
    for name, paths in lists.items():
        all_sources[name] = [Source(name.removesuffix("s"), path) for path in paths]  # type: ignore[arg-type]
    given = {name: found for name, found in all_sources.items() if found}
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)}: which of them lies over which is not said; give all as `sources`, in their order")
    return next(iter(given.values()), [])


@ranged
def build(
    image: StrPath,
    *,
    sources: Iterable[Source] = (),
    folders: Iterable[StrPath] = (),
    tars: Iterable[StrPath] = (),
    layers: Iterable[StrPath] = (),
    oci: Iterable[StrPath] = (),
    size: int | None = None,
    free: int = 0,
    offset: int | None = None,
    partition: int | None = None,
    android_sparse: bool = False,
    overwrite: bool = False,
    type: str = "ext4",
    features: str = "",
    label: str = "",
    block_size: int = 4096,
    uuid: str | None = None,
    owner: tuple[int, int] | None = None,
    uid_map: Iterable[tuple[int, int, int]] = (),
    gid_map: Iterable[tuple[int, int, int]] = (),
    copy_xattrs: bool = True,
    seed: str | None = None,
    verity: bool | Iterable[str | bytes] = False,
    verity_manifest: StrPath | None = None,
    verity_algorithm: str = "sha256",
    verity_salt: Buffer = b"",
    descriptions: Iterable[Description] = (),
    file_contexts: StrPath | None = None,
    mount_point: str | bytes = "/",
    modes: Iterable[Mode] = (),
    xattrs: Iterable[Xattr] = (),
    signer: Signer | None = None,
    encrypt: Mapping[str | bytes, Encrypted | Protected | Buffer] | None = None,
    dm_verity: bool | StrPath = False,
    parity: Parity | None = None,
    luks: Luks | None = None,
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Built:
    """Makes an image of folders, tar streams, layers of OCI images and OCI layout folders, as small as it can be or of `size` bytes,
    with `free` bytes left; in a file that is there whole or not at all, on a block device, or in a part of one: from
    `offset` on, or in a `partition`. The same files and options give the same bytes.

    `sources` are taken in their order, and later ones replace files of earlier ones; whiteouts of a layer remove files of all sources
    before it. Where all sources are of one kind, `folders`, `tars`, `layers` or `oci` list them.

    `descriptions` change owners, modes and other attributes of files, and `file_contexts` labels them for SELinux; paths of
    fs_config and of labels begin at `mount_point`. `modes` and `xattrs` do so for files that match patterns, of which each must
    match one. `uid_map` and `gid_map` map owners of the sources, and ids in ACLs and capabilities: the first ID in the image, the first one of the source, and
    their count; without `copy_xattrs` attributes of sources are left out. With `verity` all files have fs-verity, or those that match patterns, of
    which each must match one; those of `verity_manifest` must have its digests. `encrypt` names directories that are
    encrypted, with their master keys or with secrets. `dm_verity` makes a hash area behind the file system, or in a file of
    its own, and `parity` goes with it. A `signer` signs the digests of files with fs-verity, and the root hash. `luks` makes a volume around all of that. Something else at the target is lost with
    `overwrite` alone."""
    patterns = [] if isinstance(verity, bool) else [os.fsencode(pattern) for pattern in verity]
    is_sealed = verity is True or bool(patterns) or verity_manifest is not None
    removed = {word.strip()[1:] for word in features.split(",") if word.strip().startswith("^")}
    for feature, is_wanted in (("verity", is_sealed), ("encrypt", bool(encrypt))):
        if feature in removed and is_wanted:
            raise ValueError(f"features={features!r}: files are to have {feature}, and the feature is removed")
    if dm_verity == "":
        raise ValueError("dm_verity='': the name of a file, or True")
    spec = _casemate.Build(os.fspath(image), offset, partition)
    for source in ordered_sources(sources, {"folders": folders, "tars": tars, "layers": layers, "oci": oci}):
        spec.source(source.kind, os.fspath(source.path), source.image)
    spec.file_system(type, features, label, block_size)
    spec.size(size, free)
    if android_sparse:
        spec.android_sparse()
    if uuid is not None:
        spec.uuid(uuid)
    if owner is not None:
        spec.owner(*owner)
    spec.map_ids(list(uid_map), list(gid_map))
    if not copy_xattrs:
        spec.no_xattrs()
    if seed is not None:
        spec.seed(seed)
    if is_sealed:
        if verity is True and verity_manifest is not None:
            patterns = [b"*"]
        manifest = None if verity_manifest is None else os.fspath(verity_manifest)
        spec.verity(patterns, manifest, verity_algorithm, verity_salt)
    for description in descriptions:
        spec.describe(description.format, os.fspath(description.path))
    if file_contexts is not None:
        spec.label(os.fspath(file_contexts))
    spec.mount_point(os.fsencode(mount_point))
    for pattern, mode in modes:
        spec.mode(os.fsencode(pattern), mode)
    for pattern, name, value in xattrs:
        spec.xattr(os.fsencode(pattern), os.fsencode(name), value)
    if signer is not None:
        spec.signer(*signer)
    for folder, how in (encrypt or {}).items():
        if isinstance(how, Protected):
            spec.protect(os.fsencode(folder), secret(how.secret), how.source, how.policy)
        else:
            spec.encrypt(os.fsencode(folder), *(how if isinstance(how, Encrypted) else Encrypted(how)))
    if dm_verity:
        place = None if parity is None else (os.fspath(parity.path), parity.offset, parity.roots)
        spec.dm_verity(None if dm_verity is True else os.fspath(dm_verity), place)
    elif parity is not None:
        raise ValueError("parity goes with dm_verity, which was not given")
    if luks is not None:
        spec.luks(secret(luks.passphrase), luks.volume_key, luks.sector_size, luks.pbkdf)
    return Built(**spec.run(overwrite, (threads, progress)))


class Ext4:
    """A file system that is open for reading, by any number of threads."""

    def __init__(self, native: _casemate.FileSystem) -> None:
        self._native = native

    @property
    def root(self) -> Path:
        """The root directory."""
        return Path(self, PurePosixPath("/"))

    def path(self, *parts: str | bytes | PurePosixPath) -> Path:
        """The path in the file system, with a slash at its beginning or without. A name that is not UTF-8 is `bytes`, or a string as
        `os.fsdecode` returns it."""
        return Path(self, PurePosixPath("/", *map(os.fsdecode, parts)))

    __truediv__ = path

    @property
    def uuid(self) -> str:
        return self._native.uuid

    @property
    def label(self) -> str:
        return self._native.label

    @property
    def block_size(self) -> int:
        """Bytes of a block."""
        return self._native.block_size

    @property
    def blocks(self) -> int:
        """Blocks of the file system."""
        return self._native.blocks[0]

    @property
    def free_blocks(self) -> int:
        """Blocks that no file has, those that only root may use among them."""
        return self._native.blocks[1]

    @property
    def reserved_blocks(self) -> int:
        """Blocks that only root may use."""
        return self._native.blocks[2]

    def read_many(
        self, paths: Iterable[Path], *, threads: int | None = None
    ) -> Iterator[tuple[Path, bytes | Exception]]:
        """The contents of many files, read by all threads; an exception in the place of one that could not be read. Paths that
        come from `iterdir` or `walk` are not looked up again. Paths of another `Ext4` are refused, also of the same image."""
        found = list(paths)
        for path in found:
            if path.fs is not self:
                raise ValueError(f"{path}: a path of {path.fs!r}, not of this file system, {self!r}")
        numbers = [path._number() for path in found]
        return zip(found, self._native.read_many(numbers, (threads, None)), strict=True)

    def extract(
        self,
        target: StrPath,
        *,
        top: str | PurePosixPath = "/",
        tar: bool = False,
        owners: bool = True,
        xattrs: bool = True,
        threads: int | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> list[tuple[str, str]]:
        """Copies what is below a directory to a folder of the host, which is made if it is not there, or with `tar` into a
        file. Returns what could not be copied: paths, each with what is wrong."""
        left, more = self._native.extract(
            str(top), os.fspath(target), tar=tar, owners=owners, xattrs=xattrs, effort=(threads, progress)
        )
        return left + [("", f"{more} more")] * (more > 0)

    def __repr__(self) -> str:
        return f"<Ext4 on {self._native.name!r}>"


@functools.total_ordering
class Path:
    """A path in a file system. One that comes out of a directory keeps the number and the kind of its inode, and looks nothing
    up."""

    __slots__ = ("_found", "_kind", "_name", "_parent", "_pure", "fs")

    def __init__(self, fs: Ext4, pure: PurePosixPath) -> None:
        self.fs = fs
        self._pure: PurePosixPath | None = pure
        self._parent: Path | None = None
        self._name = ""
        self._found: int | None = None
        self._kind = 0

    @classmethod
    def _entry(cls, parent: Path, name: str, found: int, kind: int) -> Path:
        """A name in a directory, whose inode and kind it told; the path is made on demand."""
        entry = cls.__new__(cls)
        entry.fs, entry._pure, entry._parent, entry._name = parent.fs, None, parent, name
        entry._found, entry._kind = found, kind
        return entry

    @property
    def pure(self) -> PurePosixPath:
        """The path without the file system."""
        if self._pure is None:
            assert self._parent is not None
            self._pure = self._parent.pure / self._name
        return self._pure

    def _number(self, follow: bool = True) -> int:
        native = self.fs._native
        if self._found is None:
            return native.lookup(str(self.pure), follow)
        if follow and self._own_kind(self._found) == stat.S_IFLNK:
            return native.lookup(str(self.pure), True)
        return self._found

    def _own_kind(self, found: int) -> int:
        """Type of the inode, as in modes; directories without the feature `filetype` do not record it."""
        if not self._kind:
            self._kind = stat.S_IFMT(self.fs._native.stat(found)[0])
        return self._kind

    @property
    def name(self) -> str:
        return self._name or self.pure.name

    @property
    def stem(self) -> str:
        return self.pure.stem

    @property
    def suffixes(self) -> list[str]:
        return self.pure.suffixes

    @property
    def suffix(self) -> str:
        return self.pure.suffix

    @property
    def parts(self) -> tuple[str, ...]:
        return self.pure.parts

    @property
    def parent(self) -> Path:
        return self._parent or Path(self.fs, self.pure.parent)

    @property
    def parents(self) -> tuple[Path, ...]:
        return tuple(Path(self.fs, parent) for parent in self.pure.parents)

    def joinpath(self, *parts: str | bytes | PurePosixPath) -> Path:
        return Path(self.fs, self.pure.joinpath(*map(os.fsdecode, parts)))

    def with_name(self, name: str) -> Path:
        return Path(self.fs, self.pure.with_name(name))

    def with_stem(self, stem: str) -> Path:
        return Path(self.fs, self.pure.with_stem(stem))

    def with_suffix(self, suffix: str) -> Path:
        return Path(self.fs, self.pure.with_suffix(suffix))

    def relative_to(self, other: str | PurePosixPath | Path) -> PurePosixPath:
        """The way from another path to this one, which is a path in no file system."""
        return self.pure.relative_to(_pure(other))

    def is_relative_to(self, other: str | PurePosixPath | Path) -> bool:
        return self.pure.is_relative_to(_pure(other))

    def match(self, pattern: str) -> bool:
        return self.pure.match(pattern)

    def as_posix(self) -> str:
        return self.pure.as_posix()

    def samefile(self, other: str | PurePosixPath | Path) -> bool:
        """Whether both lead to one inode."""
        path = other if isinstance(other, Path) else Path(self.fs, self.pure / other)
        return self.fs is path.fs and self._number() == path._number()

    __truediv__ = joinpath

    def stat(self, *, follow_symlinks: bool = True) -> Stat:
        found = self.fs._native.stat(self._number(follow_symlinks))
        return Stat(*found[:7], os.makedev(*found[7]), *found[8:])

    def lstat(self) -> Stat:
        return self.stat(follow_symlinks=False)

    def exists(self) -> bool:
        try:
            self._number()
        except OSError as error:
            if error.errno in NOTHING:
                return False
            raise
        return True

    def _is(self, kind: int, follow: bool = True) -> bool:
        own = self._kind
        if own and not (follow and own == stat.S_IFLNK):
            return own == kind
        try:
            return stat.S_IFMT(self.stat(follow_symlinks=follow).st_mode) == kind
        except OSError as error:
            if error.errno in NOTHING:
                return False
            raise

    def is_dir(self) -> bool:
        return self._is(stat.S_IFDIR)

    def is_file(self) -> bool:
        return self._is(stat.S_IFREG)

    def is_symlink(self) -> bool:
        return self._is(stat.S_IFLNK, False)

    def iterdir(self) -> Iterator[Path]:
        """Entries of a directory, in the order of the disk."""
        with self._naming():
            entries = self.fs._native.entries(self._number())
        for name, number, kind in entries:
            yield Path._entry(self, name, number, kind)

    def glob(self, pattern: str) -> Iterator[Path]:
        """Paths below this directory that match a relative pattern; links to directories are followed, except by `**`. With a
        slash at the end they are directories."""
        parts = PurePosixPath(pattern).parts
        if not parts or parts[0] == "/":
            raise ValueError(f"pattern {pattern!r}: a relative one is wanted")
        found = self._select(parts)
        # As pathlib has it.
        return iter(dict.fromkeys(filter(Path.is_dir, found) if pattern.endswith("/") else found))

    def rglob(self, pattern: str) -> Iterator[Path]:
        """As `glob` with `**/` before the pattern."""
        return self.glob(f"**/{pattern}")

    def _select(self, parts: tuple[str, ...]) -> Iterator[Path]:
        if not parts:
            yield self
        elif parts[0] == "**":
            if self.is_dir():
                for folder, _, _ in self.walk():
                    yield from folder._select(parts[1:])
        elif not any(magic in parts[0] for magic in "*?["):
            if parts[0] == ".." or (self / parts[0]).exists():
                yield from (self / parts[0])._select(parts[1:])
        elif self.is_dir():
            for entry in self.iterdir():
                if fnmatch.fnmatchcase(entry.name, parts[0]) and (len(parts) == 1 or entry.is_dir()):
                    yield from entry._select(parts[1:])

    def walk(self) -> Iterator[tuple[Path, list[str], list[str]]]:
        """Directories from this one down, each with the names of its directories and of everything else, as `os.walk` does;
        links are not followed, and a directory that is met twice is no longer gone through."""
        seen: set[int] = set()
        waiting: list[Path] = [self]
        while waiting:
            top = waiting.pop()
            number = top._number()
            if number in seen:
                continue
            seen.add(number)
            entries = list(top.iterdir())
            folders = [entry for entry in entries if entry._is(stat.S_IFDIR, False)]
            names = [entry.name for entry in folders]
            others = set(names)
            yield top, names, [entry.name for entry in entries if entry.name not in others]
            waiting.extend(entry for entry in reversed(folders) if entry.name in names)

    def read_tree(self, *, threads: int | None = None) -> Iterator[tuple[Path, bytes | Exception]]:
        """All regular files below this directory with their contents, read by all threads; an exception in the place of the
        contents of one that could not be read, or of a directory. Links are not followed. Files come in the order of `walk`, and
        some MiB of them are in memory at a time, or one that is larger."""
        fs, files = self.fs, self.fs._native.files(self._number())
        while groups := files.read((threads, None)):
            for folder, number, names, numbers, contents in groups:
                top = Path(fs, self.pure / folder) if folder else self
                top._found = number
                for name, found, data in zip(names, numbers, contents, strict=True):
                    # As _entry does it, without a call.
                    path = _new(Path)
                    path.fs, path._pure, path._parent, path._name, path._found = fs, None, top, name, found
                    path._kind = stat.S_IFREG if type(data) is bytes else 0
                    yield path if name else top, data
            # Room for the next ones.
            del groups, contents, data

    def readlink(self) -> PurePosixPath:
        number = self._number(False)
        if not stat.S_ISLNK(self.fs._native.stat(number)[0]):
            raise OSError(errno.EINVAL, "is not a symbolic link", str(self.pure))
        return PurePosixPath(self.fs._native.readlink(number))

    def read_bytes(self) -> bytes:
        with self._naming():
            return self.fs._native.read(self._number())

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self.read_bytes().decode(encoding, errors)

    def device(self) -> Device:
        """The file as a device, on which whatever it holds is laid."""
        with self._naming():
            return Device(self.fs._native.open(self._number(), str(self.pure)))

    @contextlib.contextmanager
    def _naming(self) -> Iterator[None]:
        """Has errors of an inode come out as errors of this path. Those of a path are so already, and those without a code are of
        the function that fetches the device's bytes."""
        try:
            yield
        except OSError as error:
            image = self.fs._native.name
            is_named = error.filename == image and str(self.pure) in (error.strerror or "")
            if error.errno is None or is_named or not hasattr(error, "code"):
                raise
            named: Any = OSError(error.errno, f"{self.pure}: {error.strerror}", image)
            named.code, named.advice = error.code, getattr(error, "advice", ())
            raise named from None

    def open(
        self, mode: str = "rb", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """A file object, for reading: "r" for text, "rb" for bytes."""
        if mode not in ("r", "rt", "rb", "br"):
            raise ValueError(f"mode {mode!r}: files are opened for reading; Device.ext4_writer changes them")
        raw = self.device()
        if "b" in mode and buffering == 0:
            return cast(IO[Any], raw)
        buffered = io.BufferedReader(raw, buffering if buffering > 1 else BUFFER)
        return cast(IO[Any], buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline))

    def xattrs(self) -> dict[str, bytes]:
        """Extended attributes by their names."""
        return dict(self.fs._native.xattrs(self._number()))

    def extents(self) -> list[Extent]:
        """Where the contents lie, in order and in whole blocks; holes are what is not mentioned, and so are contents that lie in
        the inode."""
        return [Extent(*row) for row in self.fs._native.extents(self._number())]

    def encryption(self) -> Context | None:
        """How the file or directory is encrypted; `None` for one that is not."""
        found = self.fs._native.context(self._number(False))
        return None if found is None else Context.from_bytes(found)

    def fsverity(self) -> Digest | None:
        """The digest that the kernel would measure; `None` for a file without fs-verity."""
        found = self.fs._native.verity(self._number())
        return None if found is None else Digest(*found)

    def __str__(self) -> str:
        return str(self.pure)

    def __repr__(self) -> str:
        return f"Path({str(self.pure)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Path) and (self.fs, self.pure) == (other.fs, other.pure)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Path):
            return NotImplemented
        return (self.pure, id(self.fs)) < (other.pure, id(other.fs))

    def __hash__(self) -> int:
        return hash((id(self.fs), self.pure))


def _pure(path: str | PurePosixPath | Path) -> PurePosixPath | str:
    return path.pure if isinstance(path, Path) else path


class Writer:
    """Changes of a file system, in memory until they are committed; used in a `with` block, whose end commits them, unless it
    ends by an exception. Then, as after `close`, nothing has happened."""

    def __init__(self, native: _casemate.Writer) -> None:
        self._native = native

    def commit(self) -> None:
        """Makes all changes so far permanent, all at once."""
        self._native.commit()

    def close(self) -> None:
        """Forgets what was not committed."""
        self._native.close()

    def put(self, source: StrPath, to: StrPath, *, recursive: bool = False) -> None:
        """Copies a file of the host, or with `recursive` a folder. What a folder `source/.` has goes right into `to`. Large
        copies are committed on the way."""
        self._native.put(source, to, recursive)

    def write_bytes(self, path: StrPath, data: Buffer) -> None:
        """Makes a file of bytes, in the place of one that has the name, whose mode, owner and attributes it keeps."""
        self._native.write_bytes(path, data)

    @ranged
    def mkdir(self, path: StrPath, mode: int = 0o755, *, parents: bool = False) -> None:
        self._native.mkdir(path, mode, parents)

    def symlink(self, path: StrPath, target: StrPath) -> None:
        self._native.symlink(path, os.fspath(target))

    def link(self, existing: StrPath, path: StrPath) -> None:
        self._native.link(existing, path)

    def rename(self, old: StrPath, new: StrPath) -> None:
        self._native.rename(old, new)

    def remove(self, path: StrPath) -> None:
        """Removes a file, or an empty directory."""
        self._native.remove(path, False)

    def rmtree(self, path: StrPath) -> None:
        """Removes a file or a directory with all that it has."""
        self._native.remove(path, True)

    @ranged
    def chmod(self, path: StrPath, mode: int) -> None:
        self._native.chmod(path, mode)

    @ranged
    def chown(
        self, path: StrPath, uid: int | None = None, gid: int | None = None, *, follow_symlinks: bool = True
    ) -> None:
        self._native.chown(path, uid, gid, follow_symlinks)

    def set_policy(self, path: StrPath, key: Buffer, policy: Policy = Policy()) -> None:
        """Makes an empty directory an encrypted one, with this master key. To write into it, open the file system with the
        key."""
        self._native.set_policy(path, key, policy)

    @ranged
    def truncate(self, path: StrPath, size: int) -> None:
        self._native.truncate(path, size)

    def setxattr(self, path: StrPath, name: str, value: Buffer | None) -> None:
        """Sets an extended attribute, or removes it with `None`."""
        self._native.setxattr(path, name, value)

    @ranged
    def tune(
        self,
        *,
        label: str | None = None,
        uuid: str | None = None,
        features: str = "",
        mount_options: str = "",
        extended: str = "",
        on_errors: Literal["continue", "remount-ro", "panic"] | None = None,
        last_mounted: StrPath | None = None,
        journal_size: int | None = None,
        reserved_blocks: int | None = None,
        reserved_percent: float | None = None,
        reserved_user: int | None = None,
        reserved_group: int | None = None,
        max_mounts: int | None = None,
        mounts: int | None = None,
        check_interval: int | None = None,
        last_check: int | None = None,
    ) -> None:
        """Changes parameters of the file system, all of them or none; what is `None` stays as it is.

        `label` has at most 16 bytes; "" removes it. `uuid` is a UUID, or "random", "time" or "clear"; another one makes all
        checksums other ones, unless the file system has the feature metadata_csum_seed. `features` are names with commas to
        add, or with a ^ to remove, `mount_options` default mount options to set or to clear, `extended` tune2fs' extended options:
        stride, stripe_width, hash_alg, mount_opts, test_fs, force_fsck. `journal_size` are the bytes of a new journal, which is
        added. Either `reserved_percent`, at most 50, or `reserved_blocks` are what only root, `reserved_user` and `reserved_group`
        may use. The file system is checked after `max_mounts` mounts, of which there were `mounts` since the last check, and
        after `check_interval` seconds; 0 stands for never. `last_check` is in seconds since 1970, from 0 to
        2**40 - 1.

        Raises `ArgumentError` for values that no file system can have, and `UnsupportedError` for features that can't be added
        or removed."""
        self._native.tune(
            label=label, uuid=uuid, features=features, mount_options=mount_options, extended=extended, on_errors=on_errors,
            last_mounted=last_mounted, journal_size=journal_size, reserved_blocks=reserved_blocks,
            reserved_percent=reserved_percent, reserved_user=reserved_user, reserved_group=reserved_group,
            max_mounts=max_mounts, mounts=mounts, check_interval=check_interval, last_check=last_check,
        )

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.commit()
        finally:
            self.close()
