"""Digests, trees and checks of more data than one machine holds, on an engine that runs already.

`plan` cuts files into tasks, `run` does one of them wherever it is sent, and `merge` joins what comes back; the engine does the
rest. `manifest`, `digests`, `trees`, `verify` and `check_images` are all three on an executor of concurrent.futures, on Ray, Dask
or Spark, or without any on this machine's cores. Files are whatever fsspec opens; importing this needs fsspec.
"""

try:
    import fsspec as _fsspec  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("casemate.fleet needs fsspec, which pip installs", name="fsspec") from error

from .jobs import check_images, digests, manifest, merge, trees, verify
from .kinds import Area, Checksum, Kind, Parameters
from .entries import Entry, read_manifest
from .plan import BATCH, FILES, SHARD, Part, Piece, Task, plan, run

__all__ = [
    "BATCH",
    "FILES",
    "SHARD",
    "Area",
    "Checksum",
    "Entry",
    "Kind",
    "Parameters",
    "Part",
    "Piece",
    "Task",
    "check_images",
    "digests",
    "manifest",
    "merge",
    "plan",
    "read_manifest",
    "run",
    "trees",
    "verify",
]
