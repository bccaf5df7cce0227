"""sigstore's model-signing: files hashed by their fs-verity digests, which is as sound as SHA-256 of the whole, uses all cores, and
is what a kernel measures at no cost."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

from model_signing._hashing.hashing import Digest
from model_signing._hashing.io import FileHasher
from model_signing.manifest import FileManifestItem, Manifest, _FileSerialization

from .. import fsverity

#: Name of the digests in manifests.
NAME = "fsverity-sha256"


class FsverityFileHasher(FileHasher):
    """A hash engine for one file at a time; where the kernel has a digest, that is taken."""

    def __init__(self, file: pathlib.Path, *, threads: int | None = None) -> None:
        self._file, self._threads = file, threads

    def set_file(self, file: pathlib.Path) -> None:
        """Goes on to another file."""
        self._file = file

    def compute(self) -> Digest:
        found = fsverity.measure(self._file)
        # A kernel's digest may have other parameters.
        if found is None or found.algorithm != "sha256":
            found = fsverity.digest(self._file, threads=self._threads)
        return Digest(self.digest_name, found.digest)

    @property
    def digest_name(self) -> str:
        return NAME

    @property
    def digest_size(self) -> int:
        return 32


def manifest(name: str, root: str, found: Iterable[tuple[str, fsverity.Digest]]) -> Manifest:
    """The manifest of a model called `name`, of digests that `casemate.fleet` has made of the files below `root`: it is signed as
    those are that model-signing makes."""
    top = root.rstrip("/") + "/"
    items = []
    for url, digest in found:
        if digest.algorithm != "sha256" or not url.startswith(top):
            raise ValueError(f"{url}: not below {root}, or no digest of sha256")
        path = pathlib.PurePosixPath(url.removeprefix(top))
        items.append(FileManifestItem(path=path, digest=Digest(NAME, digest.digest)))
    return Manifest(name, items, _FileSerialization(NAME))
