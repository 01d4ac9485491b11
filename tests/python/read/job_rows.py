# SPDX-License-Identifier: Apache-2.0
"""Writes the CSV files of small jobs as ranks do (FORMAT.md). As a program, the output of a large job, to
measure the commands of `gradmonctl analyse` on it:

    job_rows.py DIRECTORY ROWS [STEPS_A_FILE]

4 ranks, gradients before and after reduction of 500 parameters, six statistics. The last step has a NaN."""
import math
import sys
from pathlib import Path
from typing import NamedTuple, Sequence

_WITH_MICRO_STEP = ("actv", "actv_grad")
RANKS = 4
PARAMETERS = 500


class TestRow(NamedTuple):
    """A row with norm and nans, of a tensor [2, 2] of float32."""

    __test__ = False
    kind: str
    name: str
    norm: float = 1.0
    micro_step: int = 0
    vpp_stage: int = 0


class RankFiles:
    """The files of one rank. Makes its directory."""

    def __init__(self, output_dir: Path, rank: int, steps_a_file: int = 1) -> None:
        self.directory = output_dir / f"Nov24_12-04-37-rank{rank}-1a2b3c4d"
        self.directory.mkdir(parents=True, exist_ok=True)
        self._steps_a_file = steps_a_file

    def write(self, step: int, rows: "Sequence[TestRow]") -> None:
        for kind in dict.fromkeys(row.kind for row in rows):
            micro = kind in _WITH_MICRO_STEP
            lines = [
                f"{row.vpp_stage},{row.name},{step},{f'{row.micro_step},' if micro else ''}"
                f'{float(row.norm)!r},{int(math.isnan(row.norm))},"[2, 2]",torch.float32\n'
                for row in rows
                if row.kind == kind
            ]
            titles = f"vpp_stage,name,step,{'micro_step,' if micro else ''}norm,nans,shape,dtype\n"
            self.append(kind, step, titles, lines)

    def append(self, kind: str, step: int, titles: str, lines: "list[str]") -> None:
        first = step // self._steps_a_file * self._steps_a_file
        path = self.directory / f"{kind}_{first}-{first + self._steps_a_file - 1}.csv"
        with path.open("a") as file:
            file.write("".join([titles if file.tell() == 0 else "", *lines]))


def write_large_job(output_dir: Path, rows: int, steps_a_file: int) -> None:
    import numpy

    random = numpy.random.default_rng(1)
    layers = [f"module.layers.{i // 10}.self_attention.weight_{i % 10}" for i in range(PARAMETERS)]
    titles = "vpp_stage,name,step,norm,min,max,mean,nans,zeros,shape,dtype\n"
    steps = rows // (RANKS * 2 * PARAMETERS)
    for rank in range(RANKS):
        files = RankFiles(output_dir, rank, steps_a_file)
        for step in range(steps):
            for kind in ("grad_unreduced", "grad_reduced"):
                numbers = random.normal(size=(PARAMETERS, 4)) * [10, 0.1, 0.1, 0.1]
                numbers[0, 0] = math.nan if step + 1 == steps else 1
                lines = [
                    f'0,{name},{step},{norm},{least},{greatest},{mean},0,0.0,"[4096, 1024]",torch.bfloat16\n'
                    for name, (norm, least, greatest, mean) in zip(layers, numbers.round(6).tolist())
                ]
                files.append(kind, step, titles, lines)


if __name__ == "__main__":
    write_large_job(Path(sys.argv[1]), int(sys.argv[2]), int((sys.argv[3:] or ["1"])[0]))
