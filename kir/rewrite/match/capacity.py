"""Whether a CTA has what a rewrite asks of it: shared memory, and threads."""
from __future__ import annotations

from collections.abc import Callable

from kir.hardware.target import Target, target
from kir.ir import nodes as n
from kir.rewrite.match.accesses import allocated
from kir.rewrite.match.local_buffers import byte_count
from kir.rewrite.precondition import Context, Verdict, proved, refuted, unknown


def hardware_of(context: Context, usual: str = "sm_80") -> Target:
    """The hardware aimed at, or the usual one for a pass where none is named.

        hardware_of(context).architecture.max_threads_per_cta
        hardware_of(context, "sm_90a").name
    """
    return context.target or target(usual)


def shared_bytes(kernel: n.Kernel, times: Callable[[n.Buffer], int] = lambda b: 1,
                 size: Callable[[n.Buffer], int | None] = byte_count, more: int = 0) -> int | Verdict:
    """Bytes of shared memory that a kernel declares, each buffer of that size and `times` over, and `more`; or that the
    size of one is not known.

        total = shared_bytes(kernel, more=tile_bytes)
        shared_bytes(kernel, lambda b: stages if b.name in ring else 1)
    """
    total = more
    for b in allocated(kernel, "shared"):
        each = size(b)
        if each is None:
            return unknown(f"'{b.name}' has a symbolic extent", needs="a specialized program")
        total += each * times(b)
    return total


def fits_shared(total: int | Verdict, context: Context, needs: str = "", *, usual: str = "sm_80", what: str = "",
                held: str = "") -> Verdict:
    """Whether the shared memory of a CTA has `total` bytes. `what` begins the sentence of a refusal, `held` that of a proof.

        fits_shared(shared_bytes(kernel), context, "smaller tiles")
        fits_shared(total, context, "fewer stages", what=f"{stages} stages need {total} bytes")
    """
    if isinstance(total, Verdict):
        return total
    hardware = hardware_of(context, usual)
    limit = hardware.architecture.shared_per_cta
    if total > limit:
        return refuted(f"{what or f'{total} bytes of shared memory are needed'}; {hardware.name} has {limit} a CTA",
                       f"byte {limit} is one too many", needs=needs)
    return proved(f"{held or total} of the {limit} bytes of {hardware.name}")


def within_shared(total: int, context: Context, needs: str = "", attempt: str = "") -> Verdict:
    """The same, said without the name of the hardware.

        within_shared(total, context, "fewer elements")
        within_shared(total, context, attempt="alias-shared-lifetimes first")
    """
    most = hardware_of(context).architecture.shared_per_cta
    if total > most:
        return refuted(f"{total} bytes of shared memory do not fit", f"a CTA has at most {most}", needs=needs, attempt=attempt)
    return proved(f"{total} of {most} bytes")


def whole_warps(threads: int, context: Context) -> Verdict:
    """Whether that many threads are whole warps that one CTA may have.

        whole_warps(128, context)    # 4 whole warps
        not whole_warps(100, context)
    """
    hardware = hardware_of(context).architecture
    if threads % hardware.warp_size or threads > hardware.max_threads_per_cta:
        return refuted(f"{threads} threads are no whole warps of one CTA", f"a CTA has at most {hardware.max_threads_per_cta}",
                       needs=f"a multiple of {hardware.warp_size} up to {hardware.max_threads_per_cta}")
    return proved(f"{threads // hardware.warp_size} whole warps")
