"""What is left when a kernel or a program ends: operations in flight, outputs that nobody has written, and who wrote the others."""
from __future__ import annotations

import numpy as np

from kir.interp.checking.happens_before import HappensBefore
from kir.interp.numerics.number import storage
from kir.interp.numerics.values import Mask
from kir.interp.scheduling import async_operations
from kir.interp.state.frame import Frame, Queue
from kir.interp.state.memory import Handle
from kir.interp.state.result import Access
from kir.ir import nodes as n
from kir.ir.visit import statements


def in_flight(c: HappensBefore, queue: Queue, f: Frame) -> None:
    """Reports operations that nobody waited for (KIR-I017): the shared memory that they read or write may be another CTA's by then."""
    kernel = c.m.kernel.name if c.m.kernel is not None else ""
    for o, why in async_operations.unfinished(queue):
        c.m.site = o.site
        lane = int(o.lanes.argmax())
        end = Access("end of the kernel", kernel, c.m.thread_name(f, lane))
        c.m.report("async", "error", f"an asynchronous operation is in flight when its threads end: {why}", f, lane, id="KIR-I017",
                   verb="issue", accesses=(end,))


def undefined(c: HappensBefore, handle: Handle, ok: Mask) -> None:
    """Reports an output element that is undefined when the program ends (KIR-I012: where `ok` says so), at the first statement that writes the output."""
    name = handle.buffer.name
    if ok is None:
        return
    where = [int(x) for x in np.argwhere(~ok)[0]] if ok.ndim else []
    c.m.site = _store_to(c, name)
    own = writer(c, handle, tuple(where))
    message = f"{name}{where} is undefined when the program ends ({int((~ok).sum())} elements are)"
    reads = Access("read by the caller", f"{name}{where}", "")
    c.m.report("poison", "error", message, None, id="KIR-I012", buffer=name, verb="store of other elements" if own is None else own.verb,
               accesses=(reads,))


def _store_to(c: HappensBefore, name: str) -> n.Stmt | None:
    for k in c.m.program.kernels:
        for s in statements(k.body):
            if (isinstance(s, n.Store) and s.at.buffer.name == name) or (isinstance(s, n.Copy) and s.dst.buffer.name == name):
                return s
    return None


def writer(c: HappensBefore, handle: Handle, index: tuple[int, ...]) -> Access | None:
    """Who wrote an element of global memory last, at `index` of its buffer."""
    memory, shadow = handle.memory, handle.memory.shadow
    if shadow is None or len(index) != len(handle.shape):
        return None
    itemsize = storage(handle.buffer.dtype).itemsize
    element = handle.element([np.array([i]) for i in index], itemsize)
    g = int(memory.granules(element, itemsize).reshape(-1)[0])
    cta, agent, site = int(shadow.cta[g]), int(shadow.agent[g]), c.sites[int(shadow.site[g])]
    if cta < 0:
        return None
    names = next((x.names for x in c.roots.values() if cta in x.numbers and agent < len(x.names)), [])
    who = f"CTA {cta}" + (f", {names[agent]}" if 0 < agent < len(names) else "")
    return Access.at("write", c.m.anchor(site), who, site.origin if site is not None else None)
