# SPDX-License-Identifier: Apache-2.0
"""torchrun of Debian's torch, which cannot start without two changes: 1.13 does not parse its own default of
--redirects, because Python 3.11's Flag has no member of value 0, and 2.6 is built without libuv, but its
rendezvous asks for it. Run it with USE_LIBUV=0."""
import functools

import torch
from torch.distributed.elastic.multiprocessing.api import Std
from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend as rendezvous
from torch.distributed.run import main

Std.from_str = classmethod(lambda kind, text: kind(int(text)))
if not torch.__version__.startswith("1."):
    rendezvous.TCPStore = functools.partial(rendezvous.TCPStore, use_libuv=False)
main()
