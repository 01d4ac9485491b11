#!/bin/bash
# One would guess: a program that has imported torch and made an optimizer ends at once; only the import is slow. And a child
# of os.fork() that does nothing costs nothing.
# What happens: the end takes about half as long as the imports did, in a new interpreter and in a forked child alike. The
# interpreter's last garbage collections walk over every object of torch, torch._dynamo and sympy, which the first optimizer
# imports. gc.freeze() after the imports takes most of it away, because these collections leave frozen objects out; Python's
# manual recommends it for another reason, to share memory with forked children.
# So a test suite that forks ranks from a process with torch loaded spends most of its time on their ends.
# Seen with torch 2.13.0 on the CPU, CPython 3.11: 0.8 to 1.1 s of processor time, frozen 0.1 to 0.2 s. The children of
# multiprocessing are not hit: they end by os._exit().
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5 2>/dev/null
"$place/venv/bin/python" - <<'END'
import gc, os, statistics, sys, time
import torch


def ends(forks, frozen):
    """Processor seconds of the end of a child that has made an optimizer: of a fork, or of a new interpreter."""
    code = "import torch, gc, time\ntorch.optim.SGD([torch.zeros(1)], lr=0.1)\n"
    code += "gc.collect(); gc.freeze()\n" if frozen else ""
    code += "print(time.process_time(), flush=True)"
    found = []
    for _ in range(3):
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(writable, 1)
            if not forks:
                os.execv(sys.executable, [sys.executable, "-c", code])
            print(time.process_time(), flush=True)
            return None
        os.close(writable)
        before = float(os.read(readable, 100))
        used = os.wait4(child, 0)[2]
        os.close(readable)
        found.append(used.ru_utime + used.ru_stime - before)
    return statistics.median(found)


def main():
    fresh = ends(False, False), ends(False, True)
    torch.optim.SGD([torch.zeros(1)], lr=0.1)
    plain = ends(True, False)
    if plain is None:
        return  # a forked child
    gc.collect()
    gc.freeze()
    frozen = ends(True, True)
    if frozen is None:
        return
    print("torch", torch.__version__, "Python", sys.version.split()[0])
    print("processor seconds of the end, as it is and frozen: new interpreter %.2f %.2f," % fresh, end=" ")
    print("forked child %.2f %.2f" % (plain, frozen))
    if fresh[0] < 2 * fresh[1] or plain < 2 * frozen:
        raise SystemExit("changed: freezing no longer spares half of the end")


main()
END
