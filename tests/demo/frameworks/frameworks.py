# SPDX-License-Identifier: Apache-2.0
"""The trainings of tools/demo --frameworks, and what it leaves out."""
from dataclasses import dataclass, field

import gpt

KINDS = (
    "grad_unreduced",
    "grad_reduced",
    "param_origin",
    "param_updated",
    "exp_avg",
    "exp_avg_sq",
    "actv",
    "actv_grad",
)


@dataclass
class Framework:
    title: str
    job: str  # of train.py
    venv: str = "venv"  # below build/
    ranks: int = gpt.PLACES
    package: str = "torch"  # its version is printed
    # Kinds whose rows cannot be joined, with a part of the error that gradmon.load(whole=True) must give, and
    # why.
    not_joined: "dict[str, tuple[str, str]]" = field(default_factory=dict)

    @property
    def groups(self) -> int:
        """Groups of data-parallel ranks, one for each tensor-parallel rank. What tensor parallelism does not
        split has a joined row of each group."""
        return max(1, self.ranks // gpt.PLACES)

    def place_of(self, rank: int) -> int:
        """The data-parallel rank."""
        return rank * gpt.PLACES // self.ranks


_LOCAL = (
    "nothing says what the tensor of rank",
    "a plain tensor within a tensor-parallel model does not tell which features it has",
)

FRAMEWORKS = (
    Framework("plain torch", "plain", ranks=1),
    Framework("DDP", "ddp"),
    Framework("FSDP2", "fsdp2"),
    Framework(
        "FSDP2 + TP", "fsdp2_tp", ranks=2 * gpt.PLACES, not_joined={"actv": _LOCAL, "actv_grad": _LOCAL}
    ),
    Framework("HF Trainer", "hugging_face", "frameworks-venv", package="transformers"),
    Framework("Accelerate", "accelerate", "frameworks-venv", package="accelerate"),
    Framework("Lightning", "lightning", "frameworks-venv", package="lightning"),
    Framework("DeepSpeed ZeRO 2", "deepspeed2", "engines-venv", package="deepspeed"),
    Framework("DeepSpeed ZeRO 3", "deepspeed3", "engines-venv", package="deepspeed"),
    Framework("Megatron core", "megatron", "engines-venv", package="megatron-core"),
)

# What tools/demo --frameworks does not show, with the reason.
LEFT_OUT = (
    "the whole model's own input and output: Trainer and Lightning call the model in another way",
    "Megatron's GPTModel, tensor, pipeline and expert parallelism: here its DistributedDataParallel and its "
    "distributed optimizer train the same small GPT; tests/python/frameworks/test_megatron.py has GPTModel",
    "FSDP1, HSDP, accumulation, clipping, bfloat16, overflows: tests/python/sharded, tests/python/frameworks",
    "torchtitan, ColossalAI, JAX, MindSpore: they train with models or arrays of their own",
    "any GPU: everything here runs on a CPU, with gloo",
)
