"""CUDA kernels of the usual families, each addressing its tensors flat: by a CTA's number and a thread's, through moved pointers, in vectors."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from textwrap import dedent, indent

from .kernel import Factors, Kernel, Memory, bounded, product, sized
from .triton_kernels import MOST, some

KINDS = {"f32": "float", "i32": "int"}


def kernel(rng: Random, family: str, params: Sequence[str], body: str, memories: Mapping[str, Memory], grid: Sequence[str],
           steps: dict[str, int] | None = None, scalars: dict[str, str] | None = None) -> Kernel:
    """A kernel of a body, whose tensors come first; each of `params` is a size, unless `scalars` says what it is."""
    tensors = [f"{'' if m.written else 'const '}{KINDS[m.dtype]}* {name}" for name, m in memories.items()]
    integer = rng.choice(("int", "int", "int", "long long", "unsigned"))
    text = f"__global__ void k({', '.join([*tensors, *(f'int {p}' for p in params)])}) {{\n{indent(dedent(body).strip(), '  ')}\n}}\n"
    names = tuple(dict.fromkeys(f for m in memories.values() for f in (*m.factors, *m.below) if isinstance(f, str)))
    return Kernel("cuda", family, text.replace("INT", integer), "k", memories, tuple(grid), sized(rng, names, MOST, steps), bounded(rng, names, steps),
                  {"threads_x": 32}, {p: (scalars or {}).get(p, p) for p in params})


def elementwise(rng: Random) -> Kernel:
    """An element a thread, or every so many; reversed, shifted, by the remainder."""
    f = some(rng, "B", "GR", "PG", "HW")
    place, extra = rng.choice((("i", "true"), ("total - 1 - i", "true"), ("i - 1", "i >= 1"), ("i + 3", "i + 3 < total"), ("(i + 5) % total", "true"),
                               ("i * 2", "i * 2 < total"), ("i / 2 * 2", "true")))
    read = f"{extra} ? X[{place}] : 0.f" if extra != "true" else f"X[{place}]"
    way = rng.choice(("once", "left", "grid"))
    if way == "grid":
        body = f"for (INT i = blockIdx.x * blockDim.x + threadIdx.x; i < total; i += gridDim.x * blockDim.x) Y[i] = ({read}) * 2.f + 1.f;"
    elif way == "left":
        body = f"INT i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i >= total) return;\nY[i] = ({read}) * 2.f + 1.f;"
    else:
        body = f"INT i = blockIdx.x * blockDim.x + threadIdx.x;\nif (i < total) Y[i] = ({read}) * 2.f + 1.f;"
    grid = "2" if way == "grid" else f"ceildiv({product(f)}, 32)"
    return kernel(rng, "elementwise", ["total"], body, {"X": Memory(f), "Y": Memory(f, written=True)}, [grid], None, {"total": str(product(f))})


def groups(rng: Random) -> Kernel:
    """A group a CTA: `x[pid * G + i]`, or a pointer moved there."""
    f: Factors = rng.choice((("B", "GR", "PG", "HW"), ("B", "GR", "PG", 8), ("B", "GR", 4, "HW"), ("B", "M", "N"), ("M", "N")))
    inner = rng.choice([f[-1:], f[-2:]]) if len(f) > 3 else f[-1:]
    outer, size = f[:len(f) - len(inner)], product(inner)
    first, x, y = rng.choice((("", "X[blockIdx.x * G + i]", "Y[blockIdx.x * G + i]"), ("const float* x = X + blockIdx.x * G; float* y = Y + blockIdx.x * G;",
                                                                                      "x[i]", "y[i]"),
                              ("const INT base = blockIdx.x * G;", "X[base + i]", "Y[base + i]")))
    turned = rng.choice(("i", "G - 1 - i"))
    body = f"""
        __shared__ float sums[32];
        {first}
        float s = 0.f;
        for (INT i = threadIdx.x; i < G; i += blockDim.x) s += {x.replace("+ i]", f"+ {turned}]").replace("[i]", f"[{turned}]")};
        sums[threadIdx.x] = s;
        __syncthreads();
        float total = 0.f;
        for (int k = 0; k < 32; ++k) total += sums[k];
        for (INT i = threadIdx.x; i < G; i += blockDim.x) {y} = {x} - total;
        """
    return kernel(rng, "groups", ["G"], body, {"X": Memory(f), "Y": Memory(f, written=True)}, [str(product(outer))], None, {"G": str(size)})


def tiles(rng: Random) -> Kernel:
    """Elements of two axes, turned or not, a neighbor in the row beside them, and a row of biases."""
    m, n = rng.choice(((("M",), ("N",)), (("M",), ("PG", "HW")), (("GR", "PG"), ("HW",)), (("M",), (8,))))
    turned = rng.random() < 0.5
    beside, extra = rng.choice((("", ""), (" + 1", "c + 1 < N"), (" - 1", "c > 0"), (" + N", "r + 1 < M")))
    read = f"X[r * N + c{beside}]" if not extra else f"({extra} ? X[r * N + c{beside}] : 0.f)"
    body = f"""
        const int r = blockIdx.y * 4 + threadIdx.x / 8, c = blockIdx.x * 8 + threadIdx.x % 8;
        {rng.choice(("if (r >= M || c >= N) return;", "if (r >= M) return; if (c >= N) return;"))}
        Y[{"c * M + r" if turned else "r * N + c"}] = {read} + C[c];
        """
    whole: Factors = (*m, *n)
    return kernel(rng, "tiles", ["M", "N"], body, {"X": Memory(whole), "C": Memory(n), "Y": Memory((*n, *m) if turned else whole, written=True)},
                  [f"ceildiv({product(n)}, 8)", f"ceildiv({product(m)}, 4)"], None, {"M": str(product(m)), "N": str(product(n))})


def vectors(rng: Random) -> Kernel:
    """Four numbers at once, over the whole memory or over each row."""
    f: Factors = rng.choice((("B", "GR", 8), ("B", "GR", "HW"), ("M", "PG", 4), ("B", "K", 16)))
    steps = {"HW": 4} if "HW" in f else {}
    if rng.random() < 0.5:
        body = """
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i * 4 < total) {
              float4 v = *reinterpret_cast<const float4*>(X + i * 4);
              v.x += v.w;
              *reinterpret_cast<float4*>(Y + i * 4) = v;
            }
            """
        return kernel(rng, "vectors", ["total"], body, {"X": Memory(f), "Y": Memory(f, written=True)}, [f"ceildiv({product(f)}, 128)"], steps,
                      {"total": str(product(f))})
    body = """
        for (int i = threadIdx.x; i < G / 4; i += blockDim.x) {
          float4 v = reinterpret_cast<const float4*>(X + blockIdx.x * G)[i];
          v.x += v.w;
          reinterpret_cast<float4*>(Y + blockIdx.x * G)[i] = v;
        }
        """
    return kernel(rng, "vectors", ["G"], body, {"X": Memory(f), "Y": Memory(f, written=True)}, [str(product(f[:-1]))], steps, {"G": str(f[-1])})


def gathers(rng: Random) -> Kernel:
    """Elements that another tensor names, and rows."""
    whole = some(rng, "B", "GR", "PG", "HW")
    if rng.random() < 0.5:
        body = """
            const int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i >= n) return;
            const int at = I[i];
            Y[i] = X[at];
            atomicAdd(&Z[at], X[at]);
            """
        return kernel(rng, "gathers", ["n"], body, {"X": Memory(whole), "I": Memory(("K", "M"), "i32", below=whole), "Y": Memory(("K", "M"), written=True),
                                                    "Z": Memory(whole, written=True)}, ["ceildiv(K * M, 32)"], None, {"n": "K * M"})
    body = """
        const int at = I[blockIdx.x];
        for (int c = threadIdx.x; c < N; c += blockDim.x) Y[blockIdx.x * N + c] = X[at * N + c];
        """
    return kernel(rng, "gathers", ["N"], body, {"X": Memory(whole), "I": Memory(("K", "M"), "i32", below=whole[:-1]),
                                                "Y": Memory(("K", "M", whole[-1]), written=True)}, ["K * M"], None, {"N": str(whole[-1])})


def channels(rng: Random) -> Kernel:
    """An element's channel from its place, and what lies there in every batch added up."""
    f: Factors = rng.choice((("B", "K", "HW"), ("B", "GR", "PG", "HW"), ("B", 4, "HW"), ("B", "K", 8)))
    channel, last = f[1:-1], f[-1]
    body = """
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= total) return;
        const int c = i / HW % C, b = i / (C * HW), at = i % HW;
        float x = X[(b * C + c) * HW + at] + V[c];
        for (int other = 0; other < total / (C * HW); ++other) x += X[other * C * HW + c * HW + at];
        Y[i] = x;
        """
    return kernel(rng, "channels", ["total", "C", "HW"], body, {"X": Memory(f), "V": Memory(channel), "Y": Memory(f, written=True)},
                  [f"ceildiv({product(f)}, 32)"], None, {"total": str(product(f)), "C": str(product(channel)), "HW": str(last)})


def shared(rng: Random) -> Kernel:
    """A flat array of shared memory, to which the binding gives a shape: filled in one order, read in another."""
    count, f = rng.choice((128, 256)), rng.choice((("B", "M"), ("M",)))
    rounds = count // 32
    first, second = (rng.choice(("i * 32 + t", f"t * {rounds} + i", f"{count - 1} - (i * 32 + t)", f"(i * 32 + t * 5) % {count}")) for _ in range(2))
    body = f"""
        __shared__ float s[{count}];
        const int t = threadIdx.x;
        for (int i = 0; i < {rounds}; ++i) s[{first if first[0] != "(" else "i * 32 + t"}] = X[blockIdx.x * {count} + i * 32 + t];
        __syncthreads();
        for (int i = 0; i < {rounds}; ++i) Y[blockIdx.x * {count} + i * 32 + t] = s[{second}] * 2.f;
        """
    whole: Factors = (*f, count)
    made = kernel(rng, "shared", [], body, {"X": Memory(whole), "Y": Memory(whole, written=True)}, [str(product(f))])
    return replace(made, arrays={"s": count})


FAMILIES = {f"cuda {each.__name__}": each for each in (elementwise, groups, tiles, vectors, gathers, channels, shared)}
