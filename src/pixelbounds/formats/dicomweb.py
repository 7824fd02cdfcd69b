"""An archive that speaks DICOMweb, by `dicomweb-client`: series are searched (QIDO-RS), fetched (WADO-RS) and stored
(STOW-RS).

A series is named by its address, https://HOST/dicom-web/studies/UID/series/UID. Who asks is said by ~/.netrc. An object
is stored once: identifiers depend on the content, and what the archive has already is not sent again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..storage.files import aside, swap_folder
from .arrays import FilePath
from .scans import FormatError, needed

_UID = r"[0-9][0-9.]{0,63}"
_SERIES = re.compile(rf"(https?):/+(.+)/studies/({_UID})/series/({_UID})/?")  # a Path has one slash of two
_WAIT = 600  # seconds, for an answer of the archive
_REQUEST_BYTES = 2**26  # a request is sent in one piece
_OURS = "pixelbounds "  # begins the description of a series that we wrote


class SeriesAddress(NamedTuple):
    """A series in an archive."""

    archive: str
    study: str
    series: str

    def __str__(self) -> str:
        return f"{self.archive}/studies/{self.study}/series/{self.series}"


def address_of(text: FilePath) -> SeriesAddress:
    """The series that an address names.

    >>> str(address_of("http://localhost:8042/dicom-web/studies/1.2/series/1.2.3"))
    'http://localhost:8042/dicom-web/studies/1.2/series/1.2.3'
    """
    parts = _SERIES.fullmatch(str(text))
    if parts is None:
        raise FormatError(
            f"{text} is no series; give https://HOST/dicom-web/studies/UID/series/UID, of digits and dots"
        )
    return SeriesAddress(f"{parts[1]}://{parts[2]}", parts[3], parts[4])


def fetch_series(address: SeriesAddress, folder: Path) -> None:
    """Fetch the instances of a series, as they are stored, into a new folder that is whole or not there."""
    instances = _client(address.archive).iter_series(address.study, address.series, (("application/dicom", "*"),))
    with aside(folder) as place:
        (place / "new").mkdir()
        for number, data in enumerate(instances, 1):
            data.save_as(place / "new" / f"{number:05}.dcm", enforce_file_format=True)
        swap_folder(place / "new", folder)


def search_series(archive: str, match: Mapping[str, str]) -> dict[SeriesAddress, int]:
    """How many instances each series has that matches (values by keywords of DICOM) and that we did not write."""
    fields = ["SeriesDescription", "NumberOfSeriesRelatedInstances"]
    rows = _client(archive).search_for_series(search_filters=dict(match), fields=fields, get_remaining=True)
    found: dict[SeriesAddress, int] = {}
    for row in map(needed("pydicom").Dataset.from_json, rows):
        address = address_of(f"{archive}/studies/{row.StudyInstanceUID}/series/{row.SeriesInstanceUID}")
        if not str(row.get("SeriesDescription", "")).startswith(_OURS):
            found[address] = int(row.NumberOfSeriesRelatedInstances)
    return found


def store_files(archive: str, files: Sequence[Path]) -> int:
    """Store the objects of files that the archive does not have yet; how many these were."""
    client, sent = _client(archive), 0
    for some in _new_objects(client, files):
        answer = client.store_instances(some)
        refused = [str(x.ReferencedSOPInstanceUID) for x in answer.get("FailedSOPSequence", ())]
        if refused:
            raise OSError(f"{archive} refused {len(refused)} of {len(some)} objects, first {refused[0]}: see its log")
        sent += len(some)
    return sent


def _new_objects(client: Any, files: Sequence[Path]) -> Iterator[list[Any]]:
    """Objects that the archive does not have, so many at a time as one request takes."""
    there: dict[str, set[str]] = {}
    some: list[Any] = []
    size = 0
    for file in files:
        data = needed("pydicom").dcmread(file)
        series = str(data.SeriesInstanceUID)
        if series not in there:
            stored = client.search_for_instances(data.StudyInstanceUID, series, get_remaining=True)
            there[series] = {row["00080018"]["Value"][0] for row in stored}
        if data.SOPInstanceUID in there[series]:
            continue
        if some and size + file.stat().st_size > _REQUEST_BYTES:
            yield some
            some, size = [], 0
        some.append(data)
        size += file.stat().st_size
    if some:
        yield some


def _client(archive: str) -> Any:
    return needed("dicomweb_client").DICOMwebClient(archive.rstrip("/"), timeout=_WAIT)
