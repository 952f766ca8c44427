"""Jobs as tasks of a Ray cluster: a local one, or the one at an address. Needs `[ray]`."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Sequence
from typing import Any

from intervae.errors import RunError, UsageError
from intervae.experiments.engines import JOBS_PER_GPU, RETRIES, Ended
from intervae.experiments.engines.task import absolute, run_task, shared_storage
from intervae.experiments.records import Task

MISSING = "--on ray needs ray; install it with pip install 'intervae[ray]'."
CONNECT_SECONDS = 5.0
TICK_SECONDS = 1.0
PORT = 6379  # of a cluster's head, 10001 for ray://
# a gRPC server, as Ray's are, answers with a SETTINGS frame at once
SETTINGS_FRAME = 4
OPENING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS_FRAME, 0, 0, 0, 0, 0])
# environment variables of this process
PASSED = ("INTERVAE_DATA", "INTERVAE_ORACLES", "INTERVAE_CACHE", "INTERVAE_REVISION")


def run_on_ray(
    tasks: Sequence[Task], device: str, address: str, gpus: float | None, *, tf32: bool
) -> Ended:
    """Run the tasks; yield (number, error or "") as they end, and None while waiting."""
    with shared_storage(tasks) as marker, _cluster(address) as ray:
        available = ray.cluster_resources().get("GPU", 0.0)
        if gpus is None:
            gpus = 1 / JOBS_PER_GPU if available and device != "cpu" else 0.0
        if gpus > available:
            raise UsageError(
                f"{gpus:g} GPUs per job are more than the cluster's {available:g}; give fewer."
            )
        # a lost worker or node is retried, an error of the job is not
        remote = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(run_task)
        waiting = {
            remote.remote(absolute(task), device, marker.resolve(), tf32): number
            for number, task in enumerate(tasks)
        }
        while waiting:
            ended, _ = ray.wait(list(waiting), timeout=TICK_SECONDS)
            for reference in ended:
                yield waiting.pop(reference), _error(ray, reference)
            if not ended:
                yield None


def _error(ray: Any, reference: Any) -> str:
    """Return the error of an ended task, "" if it has none."""
    try:
        return str(ray.get(reference))
    except ray.exceptions.RayError as error:
        reason = str(error).strip().splitlines()
        return (
            f"its worker was lost more than {RETRIES} times, or could not start "
            f"({reason[0] if reason else type(error).__name__})."
        )


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[Any]:
    """Yield the module `ray`, connected; a local cluster ends with the context."""
    _check_answers(address)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to Ray's makers
    os.environ.setdefault("RAY_gcs_rpc_server_connect_timeout_s", str(round(CONNECT_SECONDS)))
    try:
        import ray
    except ImportError:
        raise UsageError(MISSING) from None
    variables = {name: os.environ[name] for name in PASSED if name in os.environ}
    try:
        ray.init(
            address=address or "local",
            include_dashboard=False if not address else None,
            log_to_driver=False,
            logging_level="ERROR",
            runtime_env={"env_vars": variables} if variables else None,
            **({} if address else {"num_cpus": _local_cpus()}),
        )
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        where = f"the Ray cluster at {address} does not answer" if address else "Ray did not start"
        raise RunError(
            f"{where} ({reason}); check the address and Ray's own authentication, or use --on ray."
        ) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _local_cpus() -> int:
    return max(1, os.cpu_count() or 1)


def _check_answers(address: str) -> None:
    """Raise a RunError soon for an address at which nothing listens; Ray itself waits long."""
    if address in ("", "auto", "local"):
        return
    text = address.removeprefix("ray://")
    host, _, port = text.rpartition(":") if ":" in text else (text, "", "")
    default = 10001 if address.startswith("ray://") else PORT
    if not host or (port and not port.isdigit()):
        raise UsageError(f"--on ray:{address}: the address is HOST:PORT or ray://HOST:PORT.")
    try:
        with socket.create_connection((host, int(port or default)), CONNECT_SECONDS) as server:
            if not os.environ.get("RAY_USE_TLS"):  # encrypted: Ray has to find out
                server.sendall(OPENING)
                answer = server.recv(9)
                if len(answer) < 4 or answer[3] != SETTINGS_FRAME:
                    raise OSError("the server there is not Ray")
    except (OSError, OverflowError) as error:
        raise RunError(
            f"the Ray cluster at {address} does not answer ({error}); check the address, or use "
            "--on ray for a cluster on this machine."
        ) from None
