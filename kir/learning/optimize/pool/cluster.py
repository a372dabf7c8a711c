"""Tasks on a Ray cluster: one task a candidate, one CPU or one whole GPU each. Ray starts workers, and replaces those that are lost."""
from __future__ import annotations

import contextlib
import os
import shutil
from typing import Any

from kir.base.dataclass import dataclass
from kir.base.diagnostic import error
from kir.hardware.device.client import join, joined
from kir.learning.optimize.pool.engines import Lost, Work

LOCAL = "local"
"""The address that means: start a cluster on this machine, and end it with the search."""


@dataclass
class Cluster:
    """A Ray cluster at `address` (`HOST:PORT`, `ray://HOST:PORT`, `auto` for the one that this machine is part of, `local` for one of its own with `cpus`).
    A task takes `gpus` GPUs, a part of one where several take turns; a cluster of its own has the first `devices` of this machine's, or all. Raises
    KirError KIR-U034 without Ray, and for a cluster that does not answer."""

    address: str
    gpus: float = 0.0
    cpus: int = 0
    devices: int = 0
    parallel: int = 1
    _ray: Any = None
    _remote: Any = None

    def __post_init__(self) -> None:
        try:
            import ray
        except ImportError:
            raise error("KIR-U034", "Ray is not installed", attempt="pip install 'kernel-lineage[cluster]'") from None
        self._ray = ray
        try:
            if self.address == LOCAL:
                ray.init(num_cpus=self.cpus or None, num_gpus=self.devices or None, include_dashboard=False, log_to_driver=False, configure_logging=False)
            else:
                ray.init(address=self.address, log_to_driver=False)
        except (ConnectionError, RuntimeError, ValueError) as bad:
            raise error("KIR-U034", f"there is no Ray cluster at {self.address}: {str(bad).partition(chr(10))[0]}",
                        attempt="ray start --head, and its address; or --cluster local") from bad
        there: dict[str, float] = self._ray.cluster_resources()
        self.parallel = max(1, int(there.get("GPU", 0) / self.gpus + 1e-9) if self.gpus else int(there.get("CPU", 1)))

    def begin(self, work: Work, task: Any) -> Any:
        """Begin a task; Ray makes no second try by itself, so that what ends its workers is known."""
        if self._remote is None:
            self._remote = self._ray.remote(num_cpus=0 if self.gpus else 1, num_gpus=self.gpus or None, max_retries=0)(_beside)
        return self._remote.remote(work, task, max(1, self.parallel // max(1, len(self._ray.nodes()))))

    def result(self, begun: Any, seconds: float) -> dict[str, Any]:
        """What came of it. Raises KirError KIR-U034 where the cluster itself is gone."""
        lost = self._ray.exceptions
        try:
            return self._ray.get(begun, timeout=seconds)  # type: ignore[no-any-return]  # what the task gave
        except lost.GetTimeoutError:
            with contextlib.suppress(Exception):
                self._ray.cancel(begun, force=True)
            raise TimeoutError from None
        except (lost.WorkerCrashedError, lost.NodeDiedError, lost.ObjectLostError, lost.OutOfMemoryError):
            raise Lost(alone=True) from None
        except lost.RayTaskError as bad:
            raise (bad.cause if isinstance(bad.cause, Exception) else bad) from None
        except (lost.RaySystemError, ConnectionError) as bad:
            raise error("KIR-U034", f"the cluster at {self.address} is gone: {str(bad).partition(chr(10))[0]}", needs="a cluster that answers") from bad

    def done(self, begun: Any) -> bool:
        """Whether `result` would not wait."""
        return bool(self._ray.wait([begun], timeout=0)[0])

    def withdraw(self, begun: Any) -> None:
        """What waits is not done."""
        with contextlib.suppress(Exception):
            self._ray.cancel(begun)

    def again(self) -> bool:
        """What had been begun beside a lost worker goes on."""
        return False

    def close(self) -> None:
        """Leave the cluster; one of its own ends."""
        if self._ray is not None and self._ray.is_initialized():
            folder = joined(_name(self._ray))
            self._ray.shutdown()
            if self.address == LOCAL:
                shutil.rmtree(folder, ignore_errors=True)  # where no server was started, nothing else does


def _name(ray: Any) -> str:
    """What a driver and its workers on one machine have in common."""
    here = ray.get_runtime_context()
    return f"{here.get_node_id()}-{here.get_job_id()}"


def _beside(work: Work, task: Any, workers: int) -> dict[str, Any]:
    """In a worker, one of so many on its machine: compilers are loaded once for all of them, and oracles take this one's share of the cores, where nothing
    else is said."""
    import ray

    join(_name(ray))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max(1, len(os.sched_getaffinity(0)) // workers)))
    return work(task)
