"""Kernels, right as they are written, of which a release of Triton makes PTX that is not. What each release made of them lies beside this file;
`python -m benchmarks.checks.compilers_faults --make` writes it with the release that is installed."""
import triton
import triton.language as tl


@triton.jit
def counted(index, out):
    at = tl.atomic_add(index + tl.arange(0, 1), 1, sem="relaxed")
    tl.store(out + at[:, None] * 64 + tl.arange(0, 64)[None, :], 2)


@triton.jit
def _joined(m1, v1, n1, m2, v2, n2):
    d = m2 - m1
    n = n1 + n2
    f = n2 / n
    return m1 + d * f, v1 + v2 + d * d * n1 * f, n


@triton.jit
def spread(x, out):
    v = tl.load(x + tl.arange(0, 256))
    mean, squares, _ = tl.reduce((v, tl.zeros_like(v), tl.full([256], 1.0, tl.float32)), 0, _joined)
    tl.store(out, mean)
    tl.store(out + 1, squares)


@triton.jit
def squared(x, w, y):
    rows, columns = tl.arange(0, 4), tl.arange(0, 32)
    v = tl.load(x + rows[:, None] * 32 + columns[None, :])
    tl.store(y + rows, tl.sum(v * tl.load(w + columns)[None, :], axis=1))
