"""The commands of `python -m bench run` and `sweep` with `--engine ray`, each where its processors and GPUs are free.

    pip install -r requirements-cluster.txt
    ray start --head                                    # on one machine
    ray start --address HOST:6379                       # on each of the others
    python -m bench run quick --engine ray --address auto --gpus 1

Ray places, queues and starts again: a command that is lost with its machine runs on another, where it goes on from its
checkpoint. All machines have the repository, and the folder of the results, under the same paths.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import results
from common.args import BadInput, first_line

RETRIES = 5  # of a command whose machine or worker was lost


def die_with_worker() -> None:
    """In a new process: end with the one that started it (Linux), or a lost worker would leave its command behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def command(words: list[str], log: str, environment: dict[str, str], patience: float) -> int:
    """On a machine of the cluster: run a script of the repository to its end; its exit code. Cancelled, it is stopped
    as Ctrl-C would stop it, with a checkpoint."""
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as file:
        process = subprocess.Popen([sys.executable, *words], cwd=results.ROOT, stdin=subprocess.DEVNULL, stdout=file,
                                   stderr=file, env=os.environ | environment, start_new_session=True,
                                   preexec_fn=die_with_worker)  # fmt: skip
    try:
        while process.poll() is None:  # `wait` would not be interrupted
            time.sleep(0.2)
        return process.returncode
    except KeyboardInterrupt:  # what `ray.cancel` raises here
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        process.kill()
        raise


class Command:
    """A command on the cluster, with the part of `multiprocessing.Process` that the bench asks for."""

    def __init__(self, ray: Any, task: Any) -> None:
        self.ray, self.task = ray, task
        self.code: int | None = None

    @property
    def exitcode(self) -> int | None:
        """None while it waits or runs; -1 where Ray gave it up."""
        try:
            if self.code is None and self.ray.wait([self.task], timeout=0)[0]:
                self.code = int(self.ray.get(self.task))
        except self.ray.exceptions.RayError as error:
            print(f"ray: {first_line(error)}", file=sys.stderr)
            self.code = -1
        except SystemError as error:  # what Ray's own code makes of a signal's exception
            raise error.__cause__ or error from None
        return self.code


class Cluster:
    """A Ray cluster that is there already. Each command takes so many of its processors and GPUs."""

    def __init__(self, address: str, cpus: float, gpus: float) -> None:
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError:
            raise BadInput("--engine ray: needs `pip install -r requirements-cluster.txt`") from None
        self.ray = ray
        path = {"env_vars": {"PYTHONPATH": str(results.ROOT)}}
        try:
            host, _, port = address.removeprefix("ray://").rpartition(":")
            if port.isdecimal():  # where nobody listens, Ray goes on asking for minutes
                socket.create_connection((host, int(port)), timeout=10).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, runtime_env=path)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            line = first_line(error)
            raise BadInput(f"--address {address}: no cluster there ({line}); `ray start --head` makes one") from error
        asked = [(kind, n) for kind, n in (("CPU", cpus), ("GPU", gpus)) if n]
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # a command runs on one of them
        self.places = sum(int(min(has.get(kind, 0) / n for kind, n in asked) + 1e-9) for has in machines)
        if not self.places:
            there = ray.cluster_resources()
            ray.shutdown()
            raise BadInput(f"--cpus {cpus:g} --gpus {gpus:g}: the cluster has {there.get('CPU', 0):g} processors and"
                           f" {there.get('GPU', 0):g} GPUs, no machine so many; ask for fewer")  # fmt: skip
        self.task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(command)

    def start(self, words: tuple[str, ...], log: Path, threads: int, patience: float) -> Command:
        environment = {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
        return Command(self.ray, self.task.remote(list(words), str(log), environment, patience))

    def stop(self, commands: list[Command], patience: float) -> None:
        """Cancel what waits, and stop what runs with a checkpoint."""
        for found in commands:
            self.ray.cancel(found.task)
        if commands:
            self.ray.wait([found.task for found in commands], num_returns=len(commands), timeout=patience + 5)
