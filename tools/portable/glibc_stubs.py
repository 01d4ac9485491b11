# SPDX-License-Identifier: Apache-2.0
"""Usage: glibc_stubs.py DIRECTORY LIBRARY...
Writes stubs of these libraries of glibc in DIRECTORY, with each symbol at its newest version up to glibc
2.28. A binary that is linked with the stubs loads with glibc 2.28 and later. Compiles with $CC."""
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

NEWEST = (2, 28)
SECTIONS = {"TLS": '.section .tdata,"awT",@progbits', "OBJECT": ".data"}
TYPES = {"TLS": "tls_object", "OBJECT": "object"}


class Symbol(NamedTuple):
    version: "tuple[int, ...]"
    kind: str
    size: int


def symbols(library: Path) -> "dict[str, Symbol]":
    """The symbols of the library, each at its newest version up to NEWEST."""
    command = ["readelf", "--wide", "--dyn-syms", str(library)]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: "dict[str, Symbol]" = {}
    line = r"^ *\d+: \w+ +(\w+) (\w+) +(?:GLOBAL|WEAK) +DEFAULT +\d+ (\w+)@+GLIBC_([0-9.]+)$"
    for size, kind, name, version in re.findall(line, table, re.MULTILINE):
        symbol = Symbol(tuple(map(int, version.split("."))), kind, int(size, 0))
        if symbol.version <= NEWEST and (name not in found or found[name].version < symbol.version):
            found[name] = symbol
    return found


def write_stub(directory: Path, library: Path) -> None:
    stub, assembly, nodes = directory / library.name, list[str](), list[str]()
    ordered = sorted(symbols(library).items(), key=lambda item: item[1].version)
    for version, group in itertools.groupby(ordered, key=lambda item: item[1].version):
        names = []
        for name, (_, kind, size) in group:
            names.append(name)
            assembly.append(SECTIONS.get(kind, ".text"))
            assembly.append(f".globl {name}\n.type {name}, %{TYPES.get(kind, 'function')}")
            assembly.append(f"{name}: .skip {max(size, 1)}\n.size {name}, {size}")
        nodes.append(f"GLIBC_{'.'.join(map(str, version))} {{ {'; '.join(names)}; }};")
    source, versions = stub.with_suffix(".s"), stub.with_suffix(".map")
    source.write_text("\n".join(assembly) + "\n")
    versions.write_text("\n".join(nodes))
    command = [os.environ.get("CC", "cc"), "-shared", "-nostdlib", f"-Wl,-soname,{library.name}"]
    command += [f"-Wl,--version-script={versions}", "-o", str(stub), str(source)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    for each in sys.argv[2:]:
        write_stub(Path(sys.argv[1]), Path(each))
