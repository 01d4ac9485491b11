# SPDX-License-Identifier: Apache-2.0
"""torchrun of Debian's torch, which cannot start without two changes: 1.13 does not parse its own default of
--redirects, because Python 3.11's Flag has no member of value 0, and 2.6 asks for libuv, but is built without
it."""
from typing import Any

import torch.distributed


class TCPStore(torch.distributed.TCPStore):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{**options, "use_libuv": False})


if not torch.__version__.startswith("1."):
    torch.distributed.TCPStore = TCPStore  # before torchrun's modules import it

from torch.distributed.elastic.multiprocessing.api import Std  # noqa: E402
from torch.distributed.run import main  # noqa: E402

Std.from_str = classmethod(lambda kind, text: kind(int(text)))
main()
