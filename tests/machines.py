"""The tests as on other machines: `./run_all.sh test --machines [arguments of pytest]`.

Instruction sets of torch, oneDNN and MKL are capped, or threads added; every row has an order of tests of its own. The
row of the oldest processor runs the whole suite; the others leave out what computes nothing that a processor changes.
"""

import os
import subprocess
import sys

MACHINES = {
    "as it is": "",
    "torch without AVX": "ATEN_CPU_CAPABILITY=default",
    "torch with AVX2": "ATEN_CPU_CAPABILITY=avx2",
    "torch with AVX-512": "ATEN_CPU_CAPABILITY=avx512",  # where there is none, as it is
    "oneDNN with SSE4.1": "ONEDNN_MAX_CPU_ISA=SSE41",
    "MKL as on any processor": "MKL_CBWR=COMPATIBLE",
    "all of an old processor": "ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE",
    "two threads": "TEST_THREADS=2",
    "four threads": "TEST_THREADS=4 OMP_WAIT_POLICY=PASSIVE",
}
WHOLE = "all of an old processor"
WITHOUT_NUMBERS = ("args", "bench", "cluster", "data", "refusals", "pocket", "results", "safety")  # tests/test_*.py


def main() -> int:
    codes = []
    print(f"{'machine':24} outcome")
    for order, (machine, settings) in enumerate(MACHINES.items()):
        # a fork has one thread, whatever its parent has
        which = ["-m", "not slow and not forks"] if "THREADS" in settings else ["-m", "not slow", "-n", "2"]
        if machine != WHOLE:
            which += [f"--ignore=tests/test_{name}.py" for name in WITHOUT_NUMBERS]
        words = ["--dist", "loadfile", "--random-order-seed", str(order), *which, *sys.argv[1:]]
        environment = os.environ | dict(word.split("=") for word in settings.split())
        done = subprocess.run([sys.executable, "-m", "pytest", *words], env=environment, capture_output=True, text=True)
        lines = done.stdout.splitlines() or done.stderr.splitlines()
        print(f"{machine:24} {lines[-1]}", *(f"    {line}" for line in lines if line.startswith(("FAILED", "ERROR"))),
              sep="\n", flush=True)  # fmt: skip
        codes.append(done.returncode)
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
