#!/bin/bash
# One would guess: a CSV file of several zstd frames, of which a killed program has left the last one torn, is read up to
# there by every reader, or refused by every one.
# What happens, for frames of 1,000 rows: pandas and DuckDB read the whole frames in silence; Polars and pyarrow raise,
# and pyarrow's stream gives nothing at all if one read() meets the torn end: what it has decoded before is lost.
# zstandard.decompress() returns the first frame alone, of a sound file too, without an error; zstandard's stream_reader
# goes on across frames and ends in silence. So a reader that wants all whole rows of a file that is being written takes
# the stream_reader.
# Seen with zstandard 0.25.0, pyarrow 26.0.1, pandas 3.1.1, Polars 2.1.0, DuckDB 2.0.1.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check zstandard==0.25.0 pyarrow==26.0.1 pandas==3.1.1 \
  polars==2.1.0 duckdb==2.0.1 2>/dev/null
"$place/venv/bin/python" - "$place" <<'END'
import os
import sys

import duckdb
import pandas
import polars
import pyarrow
import pyarrow.csv
import zstandard

compressor = zstandard.ZstdCompressor(write_checksum=True)
texts = [b"".join(b"layer%d,%d,0.5\n" % (i, step) for i in range(1000)) for step in range(3)]
sound = b"".join(map(compressor.compress, [b"name,step,norm\n" + texts[0], *texts[1:]]))


def streamed(file):
    stream, rows = pyarrow.input_stream(file, compression="zstd"), -1
    try:
        while text := stream.read(1 << 20):
            rows += text.count(b"\n")
    except OSError:
        return f"OSError after {max(rows, 0)}"
    return rows


def across(file):
    with open(file, "rb") as opened:
        return zstandard.ZstdDecompressor().stream_reader(opened, read_across_frames=True).read().count(b"\n") - 1


READERS = {
    "pandas": lambda file: len(pandas.read_csv(file)),
    "DuckDB": lambda file: duckdb.sql(f"SELECT count(*) FROM read_csv('{file}')").fetchall()[0][0],
    "Polars": lambda file: polars.read_csv(file).height,
    "pyarrow.csv": lambda file: pyarrow.csv.read_csv(file).num_rows,
    "pyarrow's stream": streamed,
    "zstandard.decompress": lambda file: zstandard.decompress(open(file, "rb").read()).count(b"\n") - 1,
    "zstandard's stream_reader": across,
}
found = {}
for reader, read in READERS.items():
    found[reader] = []
    for name, data in (("sound", sound), ("torn", sound[:-7])):
        file = os.path.join(sys.argv[1], f"{name}.csv.zst")
        with open(file, "wb") as made:
            made.write(data)
        try:
            found[reader].append(read(file))
        except OSError:
            found[reader].append("OSError")
print("zstandard", zstandard.__version__, "pyarrow", pyarrow.__version__, "pandas", pandas.__version__, end=" ")
print("Polars", polars.__version__, "DuckDB", duckdb.__version__)
for reader, (of_sound, of_torn) in found.items():
    print(f"{reader}: {of_sound} rows of the sound file, {of_torn} of the torn one")
assert found == {
    "pandas": [3000, 2000],
    "DuckDB": [3000, 2000],
    "Polars": [3000, "OSError"],
    "pyarrow.csv": [3000, "OSError"],
    "pyarrow's stream": [3000, "OSError after 0"],
    "zstandard.decompress": [1000, 1000],
    "zstandard's stream_reader": [3000, 2000],
}, "this has changed"
END
