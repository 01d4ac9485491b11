#!/bin/bash
# One would guess: a forward hook that is registered before a compiled module's first call is part of its compiled code.
# The manual warns only of hooks that are added after compiling.
# What happens: if another module of the same class was compiled before, without hooks, the second module runs the first
# one's code, and its hooks are never called: no message, no new compilation. Parameters are inputs of the graph, so that
# nothing in it tells the two apart, and by default guards leave the hooks of modules out
# (torch._dynamo.config.skip_nnmodule_hook_guards is True). Set to False, the hook is called. The other way round, with the
# hook on the module that is compiled first, the second one gets a graph of its own.
# Seen with torch 2.13.0 on the CPU, by modules within a compiled one.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5 2>/dev/null
"$place/venv/bin/python" - 2>/dev/null <<'END'
import torch
from torch._dynamo.utils import counters


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.inner(x)


def outputs(hooks_on_first, skip_guards):
    """The outputs of two equal modules; a hook replaces the output of one by ones."""
    torch._dynamo.reset()
    counters.clear()
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=skip_guards):
        found = []
        for has_hook in (hooks_on_first, not hooks_on_first):
            net = Net()
            torch.nn.init.zeros_(net.inner.weight)
            torch.nn.init.zeros_(net.inner.bias)
            if has_hook:
                net.inner.register_forward_hook(lambda module, inputs, output: torch.ones_like(output))
            found.append(torch.compile(net, backend="aot_eager")(torch.zeros(1, 2)).sum().item())
        return found, counters["stats"]["unique_graphs"]


print("torch", torch.__version__, "| expected sums: 0 and 2, or 2 and 0")
seen = {
    "hook on the second": outputs(False, True),
    "hook on the first": outputs(True, True),
    "hook on the second, hooks guarded": outputs(False, False),
}
for name, (sums, graphs) in seen.items():
    print(f"{name}: {sums}, {graphs} graphs")
assert list(seen.values()) == [([0.0, 0.0], 1), ([2.0, 0.0], 2), ([0.0, 2.0], 2)], "this has changed"
END
