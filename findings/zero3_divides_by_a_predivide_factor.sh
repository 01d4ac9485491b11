#!/bin/bash
# One would guess: gradient_predivide_factor only splits DeepSpeed's division by the number of ranks in two, before and
# after the sum, against overflow in float16. Whatever the factor, the optimizer gets the mean over the ranks; so it
# is with ZeRO 1 and 2.
# What happens with ZeRO 3 and reduce_scatter off: the gradient is divided by the factor and by the number of ranks,
# and multiplied by the factor only if the factor is not the number of ranks. With the factor that suggests itself,
# the number of ranks, each gradient is too small by that number. The reported norm and clipping are wrong by the same
# factor; Adam hides it, clipping and SGD do not.
# Seen with DeepSpeed 0.19.8, torch 2.13.0 on the CPU (runtime/zero/stage3.py, __avg_scatter_contiguous_grads).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
pip() { "$place/venv/bin/pip" install -q --disable-pip-version-check "$@" 2>/dev/null; }
pip torch==2.13.0 numpy==2.3.5
pip setuptools==80.9.0 wheel==0.45.1 packaging==25.0
pip --no-deps einops==0.8.2 hjson==3.1.0 msgpack==1.2.4 ninja==1.13.2 psutil==7.2.2 py-cpuinfo==9.0.0 tqdm==4.70.1 \
  pydantic==2.14.4 pydantic_core==2.50.5 annotated-types==0.8.0 typing-inspection==0.4.5
DS_BUILD_OPS=0 pip --no-deps --no-build-isolation deepspeed==0.19.8
cat > "$place/ranks.py" <<'END'
import os
import sys

import deepspeed
import torch

rank = int(os.environ["RANK"])
os.environ["LOCAL_RANK"] = str(rank)
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # gloo does everything; nothing is compiled
deepspeed.init_distributed("gloo", auto_mpi_discovery=False)


def ratio(stage, factor):
    """The gradient that the optimizer gets, by the mean over the ranks. SGD with a rate of 1 shows it."""
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 2, bias=False)
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_clipping": 0.0,
        "gradient_predivide_factor": factor,
        "zero_optimization": {
            "stage": stage, "reduce_scatter": False, "stage3_param_persistence_threshold": 0, "overlap_comm": False
        },
        "zero_allow_untested_optimizer": True,
    }
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    engine = deepspeed.initialize(model=net, optimizer=optimizer, config=config)[0]

    def weight():
        with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
            return engine.module.weight.detach().clone()

    before = weight()
    engine.backward(engine(torch.full((1, 4), 1.0 + rank)).sum())
    engine.step()
    return ((before - weight()).mean() / 1.5).item()  # the mean of 1 and 2


seen = {f"ZeRO {stage}, factor {factor}": ratio(stage, factor) for stage in (1, 2, 3) for factor in (1.0, 2.0, 4.0)}
if rank == 0:
    print("torch", torch.__version__, "| DeepSpeed", deepspeed.__version__, "| two ranks")
    for case, value in seen.items():
        print(f"{case}: gradient / mean = {value:.3f}")
    for case, value in seen.items():
        expected = 0.5 if case == "ZeRO 3, factor 2.0" else 1.0
        if abs(value - expected) > 1e-5:
            sys.exit(f"this has changed: {case}")
END
export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 9000)) OMP_NUM_THREADS=1
RANK=1 "$place/venv/bin/python" "$place/ranks.py" > "$place/other.log" 2>&1 &
RANK=0 "$place/venv/bin/python" "$place/ranks.py" 2> "$place/errors.log" | grep -v -e INFO -e WARNING ||
  { tail -5 "$place/errors.log"; exit 1; }
wait
