"""The texts of `monstrous`: for each reader what no person writes, each made when it is asked for, as some are megabytes."""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from kir.base.dataclass import dataclass

ROOT = Path(__file__).parents[2]
DEEP, MANY, LONG = (300, 3_000, 30_000), 5_000, 1_000_000
"""Levels of nesting; how many of a thing there are; characters of a long name or line."""
PAIRS = ("()", "[]", "{}")

CUDA = """HEAD
__global__ void k(const float* X, float* Y, int N) {
  int t = threadIdx.x;
  float v = X[t];
  BODY
  Y[t] = v;
}
"""
TRITON = """import triton
import triton.language as tl
HEAD
@triton.jit
def k(X, Y, N, S: tl.constexpr):
    o = tl.arange(0, 32)
    v = tl.load(X + o)
    BODY
    tl.store(Y + o, v)
"""
TILELANG = """import tilelang
import tilelang.language as T
HEAD
@tilelang.jit
def f(N, S: int = 0, dtype="float32"):
    @T.prim_func
    def k(X: T.Tensor((N, 64), dtype), Y: T.Tensor((N, 64), dtype)):
        with T.Kernel(N, threads=64) as i:
            v = T.alloc_fragment((64,), dtype)
            T.clear(v)
            BODY
            T.copy(v, Y[i, 0])
    return k
"""
PTX = """.version 8.0
.target sm_80
.address_size 64
HEAD
.visible .entry k(.param .u64 X, .param .u64 Y) {
  .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<4>; .reg .f32 %f<4>;
  ld.param.u64 %rd1, [X];
  mov.u32 %r1, %tid.x;
  BODY
  st.global.u32 [%rd1], %r1;
  ret;
}
"""
KIR = """kir 1
HEAD
program p
  size N: i32
  in X: f32[N]
  out Y: f32[N]
kernel main grid (b: ceildiv(N, 64)) threads 64
  for t in 0..64 parallel thread
    BODY
    Y[b * 64 + t] = load(X[b * 64 + t] else 0.0 clip) clip
"""
BINDING = """kernel = "k"
sizes = ["N"]
facts = ["N >= 1"]
grid = ["1"]
HEAD
[metas]
threads_x = 32
BODY
[tensors.X]
shape = ["64"]
dtype = "f32"
[tensors.Y]
shape = ["64"]
dtype = "f32"
[scalars]
N = "N"
"""


@dataclass(frozen=True)
class Monster:
    """A text for a reader, by what is monstrous about it."""

    reader: str
    name: str
    made: Callable[[], bytes]


def put(frame: str, head: str = "", body: str = "") -> str:
    """A frame with what stands before its body, and in it."""
    return frame.replace("HEAD", head).replace("BODY", body)


def encodings(frame: str, comment: str) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """A right text as no editor should have saved it, and what is no text."""
    right = put(frame)
    yield "empty", lambda: b""
    yield "byte order mark", lambda: b"\xef\xbb\xbf" + right.encode()
    yield "two byte order marks", lambda: b"\xef\xbb\xbf\xef\xbb\xbf" + right.encode()
    yield "CRLF", lambda: right.replace("\n", "\r\n").encode()
    yield "CR alone", lambda: right.replace("\n", "\r").encode()
    yield "mixed ends", lambda: right.replace("\n", "\r\n", 3).replace("\n", "\r", 2).encode()
    for name in ("utf-16", "utf-32", "utf-7", "cp037"):
        yield name, partial(lambda name: right.encode(name), name)
    yield "latin-1 comment", lambda: f"{comment} \xe4\xf6\xfc\n{right}".encode("latin-1")
    yield "lone surrogate", lambda: f"{comment} ".encode() + b"\xed\xa0\x80\n" + right.encode()
    yield "overlong byte", lambda: f"{comment} ".encode() + b"\xc0\xaf\n" + right.encode()
    yield "NUL in front", lambda: b"\0" + right.encode()
    yield "NUL within", lambda: right[:len(right) // 2].encode() + b"\0" + right[len(right) // 2:].encode()
    yield "NUL at the end", lambda: right.encode() + b"\0"
    yield "a megabyte of NUL", lambda: b"\0" * LONG
    yield "every byte", lambda: bytes(range(256)) * 40
    yield "form feeds and U+2028", lambda: right.replace("\n", "\f\u2028\n").encode()
    yield "right to left", lambda: right.replace(" ", " \u202e", 3).encode()
    yield "zero width", lambda: right.replace(" ", "\u200b ", 5).encode()
    yield "combining marks", lambda: (f"{comment} a" + "\u0301" * 100_000 + "\n" + right).encode()
    yield "300,000 lines", lambda: b"\n" * 300_000 + right.encode()
    yield "a line of ten megabytes", lambda: f"{comment} {'x' * 10 * LONG}\n{right}".encode()
    yield "cut in the middle", lambda: right[:len(right) * 2 // 3].encode()
    for k in range(1, 8):
        yield f"cut at {k} of 8", partial(lambda k: right[:len(right) * k // 8].encode(), k)
    yield "twice", lambda: (right * 2).encode()
    yield "300 times", lambda: (right * 300).encode()
    yield "spaces at the ends of lines", lambda: right.replace("\n", " " * 10_000 + "\n").encode()


def _nested(before: str, after: str, inner: str = "1") -> Iterator[tuple[str, Callable[[], str]]]:
    for deep in DEEP:
        yield f"{before.strip()[:24]}..{after.strip()[:8]} {deep} deep", partial(lambda deep: before * deep + inner + after * deep, deep)


def expressions(python: bool) -> Iterator[tuple[str, Callable[[], str]]]:
    """What may stand on the right of an assignment."""
    for before, after in (("(", ")"), ("-", ""), ("- ", ""), ("~", ""), ("(1 + ", ")"), ("1 + ", ""), ("1 * ", ""), ("X[", "]")):
        yield from _nested(before, after)
    if python:
        for before, after in (("[", "]"), ("{", "}"), ("{1: ", "}"), ("not ", ""), ("lambda: ", ""), ("1 if 1 else ", ""), ("f(", ")"), ("tl.abs(", ")"),
                              ("1 < ", ""), ("1 and ", ""), ("2 ** ", ""), ("(1,", ")"), ("[x for x in ", "]"), ("(yield ", ")"), ("(x := ", ")"),
                              ("T.ceildiv(1, ", ")")):
            yield from _nested(before, after)
        yield "f-strings within one another", lambda: _fstring(60)
        yield "an f-string of formats", lambda: 'f"' + "{1:" * 50 + "}" * 50 + '"'
        yield "an f-string of braces", lambda: 'f"' + "{" * MANY + '"'
        yield "unicode escapes", lambda: '"' + "\\N{BULLET}\\u0041\\U0001F600\\ud800" * 5_000 + '"'
        yield "a bad escape", lambda: r'"\N{NO SUCH NAME} \U99999999 \xZZ"'
        yield "a string of a megabyte", lambda: '"' + "x" * LONG + '"'
        yield "strings in a row", lambda: "'a' " * 30_000
        yield "strings and f-strings in a row", lambda: "'a' f'{1}' " * MANY
        yield "attributes", lambda: "x" + ".a" * MANY
        yield "calls in a row", lambda: "f" + "()" * MANY
        yield "subscripts in a row", lambda: "X" + "[0]" * MANY
        yield "a tuple of 30,000", lambda: "(" + "1, " * 30_000 + ")"
        yield "5,000 arguments", lambda: "tl.cat(" + "1, " * MANY + ")"
        yield "a power tower", lambda: "9 ** 9 ** 9 ** 9"
        yield "a long shift", lambda: "1 << (1 << 62)"
        yield "a repeated list", lambda: "[0] * 10 ** 12"
        yield "a repeated string", lambda: '"a" * 10 ** 12'
        yield "a range", lambda: "[0 for _ in range(10 ** 12)]"
        yield "a sum of ranges", lambda: "sum(range(10 ** 12))"
        yield "a format of a width", lambda: 'f"{1:{10 ** 11}}"'
        yield "a percent of a width", lambda: '"%999999999999d" % 1'
        yield "a join", lambda: '"a".ljust(10 ** 12)'
        yield "a product of numbers", lambda: " * ".join(["99999999999999999999999999"] * 3_000)
    else:
        for before, after in (("(float)", ""), ("1 ? 1 : ", ""), ("1 ? ", " : 1"), ("f(", ")"), ("fmaxf(1.0f, ", ")"), ("!", ""), ("*", ""), ("&", ""),
            ("++", ""),
                              ("[]{ return ", "; }()"), ("{", "}"), ("static_cast<int>(", ")"), ("sizeof ", ""), ("A<", ">::x"), ("v = ", ""), ("1, ", "")):
            yield from _nested(before, after)
        yield "members", lambda: "x" + ".a" * MANY
        yield "calls in a row", lambda: "f" + "()" * MANY
        yield "5,000 arguments", lambda: "f(" + "1, " * MANY + "1)"
        yield "a string of a megabyte", lambda: '"' + "x" * LONG + '"'
        yield "an open string", lambda: '"abc'
        yield "an open raw string", lambda: 'R"abc(' + "x" * 1000
        yield "unicode escapes", lambda: '"' + "\\u0041\\U0001F600\\777\\xfffff" * 5_000 + '"'
        yield "a long shift", lambda: "1 << 4000000000"
        yield "a number of 100,000 digits with marks", lambda: "1'" * 50_000 + "1"
    yield "a name of a megabyte", lambda: "a" * LONG
    yield "a name that is no letter", lambda: "\u212a\u017f\u00aa + \U0001d4d0"
    yield "100,000 digits", lambda: "9" * 100_000
    yield "100,000 hexadecimal digits", lambda: "0x" + "f" * 100_000
    yield "a float of 100,000 digits", lambda: "0." + "3" * 100_000
    yield "a large exponent", lambda: "1e999999999"
    yield "a small exponent", lambda: "1e-999999999"
    yield "beyond 64 bits", lambda: "18446744073709551616"
    yield "operators alone", lambda: "+-*/%&|^<>=!~?:,." * 1_000
    yield "division by 0", lambda: "1 / 0 + 1 % 0 + 1 // 0"


def _fstring(deep: int) -> str:
    text = "1"
    for k in range(deep):
        quote = ('"', "'", '"""', "'''")[k % 4]
        text = f"f{quote}{{{text}}}{quote}"
    return text


def python_statements() -> Iterator[tuple[str, str, Callable[[], str]]]:
    """What may stand in a function (`body`) or before it (`head`)."""
    yield "body", "5,000 assignments", lambda: "\n    ".join(f"a{k} = a{k - 1} + 1" for k in range(MANY))
    yield "body", "doubling", lambda: "a = v\n    " + "\n    ".join(["a = a + a"] * 200)
    yield "body", "doubling of numbers", lambda: "a = 3\n    " + "\n    ".join(["a = a * a"] * 200)
    yield "body", "a doubled tuple", lambda: "a = (1,)\n    " + "\n    ".join(["a = a + a"] * 60)
    yield "body", "a doubled string", lambda: 'a = "x"\n    ' + "\n    ".join(["a = a + a"] * 60)
    yield "body", "static loops within one another", lambda: _loops("for i{} in tl.static_range(0, 64):", 8)
    yield "body", "a static loop without end", lambda: "for i in tl.static_range(0, 1 << 60):\n        v += i"
    yield "body", "an unrolled loop without end", lambda: "for i in T.unroll(1 << 60):\n                v[0] += i"
    yield "body", "a loop of Python without end", lambda: "while True:\n        v += 1"
    yield "body", "2**62 steps", lambda: "for i in range(1 << 62):\n        v += 1"
    for deep in (50, 99, 200):
        yield "body", f"if, {deep} deep", partial(lambda deep: _loops("if N:", deep), deep)
        yield "body", f"for, {deep} deep", partial(lambda deep: _loops("for i{} in range(N):", deep), deep)
        yield "body", f"while, {deep} deep", partial(lambda deep: _loops("while N:", deep), deep)
        yield "body", f"with, {deep} deep", partial(lambda deep: _loops("with N:", deep), deep)
        yield "body", f"try, {deep} deep", partial(lambda deep: _loops("try:", deep), deep)
        yield "body", f"def, {deep} deep", partial(lambda deep: _loops("def f{}():", deep), deep)
    yield "body", "elif, 5,000", lambda: "if N == 0:\n        v += 1\n    " + "\n    ".join(f"elif N == {k}:\n        v += {k}" for k in range(5_000))
    yield "body", "a match of 5,000 cases", lambda: "match N:\n" + "\n".join(f"        case {k}:\n            v += {k}" for k in range(5_000))
    yield "body", "del, global, nonlocal", lambda: "del v\n    global X\n    nonlocal Y"
    yield "body", "stars", lambda: "*a, b = v\n    a, *b = f(*v, **v)"
    yield "body", "an assert of nothing", lambda: "assert False, 1 / 0"
    yield "head", "decorators by thousands", lambda: "@d\n" * 3_000 + "def g(): pass"
    yield "head", "5,000 imports", lambda: "\n".join(f"import m{k}" for k in range(MANY))
    yield "head", "5,000 functions", lambda: "\n".join(f"def f{k}(x): return x" for k in range(MANY))
    yield "head", "functions that call one another", lambda: "@triton.jit\ndef f(x): return g(x)\n@triton.jit\ndef g(x): return f(x)"
    yield "head", "a chain of 2,000 calls", lambda: "\n".join(f"@triton.jit\ndef f{k}(x): return f{k + 1}(x)" for k in range(2_000))
    yield "head", "constants in a circle", lambda: "A = B\nB = A"
    yield "head", "a tower of constants", lambda: "C0 = 9\n" + "\n".join(f"C{k + 1} = C{k} ** C{k}" for k in range(20))
    yield "head", "a doubled constant", lambda: 'C0 = "x" * 9\n' + "\n".join(f"C{k + 1} = C{k} + C{k}" for k in range(60))
    yield "head", "a coding line", lambda: "# -*- coding: rot13 -*-"
    yield "head", "a future that is none", lambda: "from __future__ import nothing"
    yield "head", "classes, 90 deep", lambda: "\n".join(" " * k + f"class C{k}:" for k in range(90)) + "\n" + " " * 90 + "pass"
    yield "head", "tabs and spaces", lambda: "def g():\n\tx = 1\n        y = 2\n"
    yield "head", "a backslash at the end", lambda: "x = 1 \\"
    yield "head", "continued lines", lambda: "x = 1 " + "\\\n + 1 " * 5_000
    yield "head", "a dictionary of 30,000", lambda: "D = {" + ", ".join(f"{k}: {k}" for k in range(30_000)) + "}"
    yield "head", "type parameters", lambda: "def g[T: (int, str), *Ts, **P](x: T) -> T: ...\ntype A[T] = A[T]"


def _loops(line: str, deep: int) -> str:
    return "\n".join(("    " + " " * k if k else "") + line.format(k) for k in range(deep)) + "\n    " + " " * deep + "v += 1"


def cuda_statements() -> Iterator[tuple[str, str, Callable[[], str]]]:
    """What may stand in a kernel (`body`) or before it (`head`)."""
    for line, end in (("{", "}"), ("if (N) {", "}"), ("for (int i = 0; i < N; ++i) {", "}"), ("while (N) {", "}"), ("do {", "} while (N);"), ("if (N) ", ""),
                      ("switch (N) { case 1: ", "}"), ("if (N) v += 1; else ", ""), ("for (;;) ", ""), ("[&] { ", " }();"), ("L: ", ""), ("struct S { ", "};"),
                      ("__pragma(x) ", "")):
        for deep in DEEP:
            yield "body", f"{line[:24]} {deep} deep", partial(lambda line, end, deep: line * deep + "v += 1;" + end * deep, line, end, deep)
    for mark in ("*", "&", "&&", "[1]", "()", "const ", "volatile "):
        yield "body", f"a type with 5,000 {mark}", partial(lambda mark: f"int {mark * MANY} q;" if mark[0] in "*&cv" else f"int q{mark * MANY};", mark)
    yield "body", "5,000 assignments", lambda: "".join(f"float a{k} = a{max(k - 1, 0)} + 1;\n" for k in range(MANY))
    yield "body", "doubling", lambda: "float a = v;" + "a = a + a;" * 300 + "v = a;"
    yield "body", "squares of numbers", lambda: "constexpr long a0 = 3;" + "".join(f"constexpr long a{k + 1} = a{k} * a{k};" for k in range(80))
    yield "body", "an unrolled loop without end", lambda: "#pragma unroll\n  for (int i = 0; i < 2000000000; ++i) v += i;"
    yield "body", "unrolled loops within one another", lambda: (
        "".join(f"#pragma unroll\n for (int i{k} = 0; i{k} < 64; ++i{k})\n" for k in range(8)) + "v += 1;")
    yield "body", "an array of 2**40", lambda: "__shared__ float s[1ll << 40]; s[t] = v;"
    yield "body", "an array of -1", lambda: "float s[-1]; s[t] = v;"
    yield "body", "an array of 40 axes", lambda: "float s" + "[2]" * 40 + "; v = s" + "[0]" * 40 + ";"
    yield "body", "assembly of 5,000 instructions", lambda: 'asm volatile("' + "mov.u32 %0, %1; " * MANY + '" : "=r"(t) : "r"(t));'
    yield "body", "assembly of braces", lambda: 'asm volatile("' + "{" * MANY + '");'
    yield "body", "a goto", lambda: "a: goto b; b: goto a;"
    yield "body", "a switch of 5,000 cases", lambda: "switch (N) {" + "".join(f"case {k}: v += {k}; break;" for k in range(MANY)) + "}"
    for deep in (20, 40, 200):
        yield "head", f"macros that double, {deep}", partial(lambda deep: "#define A0 x x\n" + "".join(f"#define A{k + 1} A{k} A{k}\n" for k in range(deep)) + \
            f"int q = A{deep};", deep)
        yield "body", f"macros of arguments that double, {deep}", partial(lambda deep: "\n#define B0(x) (x + x)\n" + \
            "".join(f"#define B{k + 1}(x) B{k}(B{k}(x))\n" for k in range(deep)) + f"v = B{deep}(v);", deep)
        yield "body", f"sums that double, {deep}", partial(lambda deep: (
            "\n#define D0 (v + v)\n" + "".join(f"#define D{k + 1} (D{k} * D{k})\n" for k in range(deep)) + f"v = D{deep};"), deep)
    yield "head", "a macro of itself", lambda: "#define A A A\n#define B(x) B(B(x))\nint q = A; int r = B(B(1));"
    yield "head", "macros in a circle", lambda: "#define A B\n#define B A\nint q = A;\n#if A\n#endif"
    yield "head", "5,000 macros", lambda: "".join(f"#define M{k} M{k + 1}\n" for k in range(MANY)) + "int q = M0;"
    yield "head", "a macro with 5,000 arguments", lambda: "#define F(" + ", ".join(f"a{k}" for k in range(MANY)) + ") a0\nint q = F(1);"
    yield "head", "thousands of includes", lambda: "".join(f'#include "no{k}.h"\n' for k in range(5_000))
    yield "head", "itself included", lambda: '#include "k.cu"\n#include "./k.cu"\n#include "../m/k.cu"'
    yield "head", "a device included", lambda: '#include "/dev/zero"\n#include "/dev/stdin"\n#include "/proc/self/mem"\n#include "."'
    yield "head", "an include of a name of a megabyte", lambda: f'#include "{"x" * LONG}"'
    yield "head", "#if, 5,000 deep", lambda: "#if 1\n" * MANY + "int q;\n" + "#endif\n" * MANY
    yield "head", "#if without end", lambda: "#if 1\n" * MANY
    yield "head", "#endif, 5,000", lambda: "#endif\n#else\n#elif 1\n" * MANY
    yield "head", "a condition of 5,000 terms", lambda: "#if " + "1 + " * MANY + "1\n#endif"
    yield "head", "a condition of brackets", lambda: "#if " + "(" * MANY + "1" + ")" * MANY + "\n#endif"
    yield "head", "a condition of not", lambda: "#if " + "!" * MANY + "1\n#endif"
    yield "head", "a condition by 0", lambda: "#if 1 / 0 || 1 % 0 || 1 << 999999999999\n#endif"
    yield "head", "pasting", lambda: "#define P(a, b) a ## b ## a\n#define Q(a) #a #a\nint P(x, P(y, z)); const char* q = Q(Q(Q(1)));"
    yield "head", "an open comment", lambda: "/* " + "x " * 1000
    yield "head", "comments within comments", lambda: "/*" * MANY + "*/"
    yield "head", "trigraphs and digraphs", lambda: "%:define A ??( ??)\nint q<:3:>;"
    yield "head", "templates without end", lambda: "template <int K> struct R { static constexpr int v = R<K + 1>::v + 1; };\nconstexpr int q = R<0>::v;"
    yield "head", "a function of itself", lambda: (
        "__device__ float f(float x) { return f(x) + f(x); }\n__device__ constexpr int g(int n) { return g(n - 1) + g(n - 2); }\n")
    yield "body", "a call of itself", lambda: "auto h = [&](auto&& self, float x) -> float { return self(self, x) + self(self, x); }; v = h(h, v);"
    yield "head", "templates that double", lambda: (
        "template <int K> __device__ float d(float x) { if constexpr (K == 0) return x; else return d<K - 1>(x) + d<K - 1>(x); }")
    yield "body", "a call of templates that double", lambda: "v = d<40>(v);"
    yield "head", "5,000 functions", lambda: "".join(f"__device__ int f{k}(int x) {{ return x + {k}; }}\n" for k in range(MANY))
    yield "head", "namespaces, 5,000 deep", lambda: "namespace a { " * 5_000 + "}" * 5_000
    yield "head", "names, 5,000 deep", lambda: "int q = a" + "::a" * MANY + ";"
    yield "head", "template arguments, 3,000 deep", lambda: "A<" * 3_000 + "int" + ">" * 3_000 + " q;"
    yield "head", "aliases in a circle", lambda: "using A = B; using B = A; typedef C D; typedef D C; A q; C r;"
    yield "head", "a structure of itself", lambda: "struct S { S s; int x; }; struct T : T { T t[3]; }; __device__ S q; __device__ T r;"
    yield "head", "an enumeration of 100,000", lambda: "enum E {" + ", ".join(f"e{k}" for k in range(100_000)) + "};"
    yield "head", "attributes", lambda: "[[a]] " * MANY + "int q;"
    yield "head", "a splice in each word", lambda: "in\\\nt q\\\n = 1\\\n;" + "\\\n" * MANY


def ptx_statements() -> Iterator[tuple[str, str, Callable[[], str]]]:
    """What may stand in a kernel (`body`) or before it (`head`)."""
    for deep in DEEP:
        yield "body", f"blocks, {deep} deep", partial(lambda deep: "{ " * deep + "}" * deep, deep)
        yield "body", f"vector, {deep} deep", partial(lambda deep: "mov.b32 %r2, " + "{" * deep + "%r1" + "}" * deep + ";", deep)
        yield "body", f"brackets, {deep} deep", partial(lambda deep: "ld.global.u32 %r2, " + "[" * deep + "%rd1" + "]" * deep + ";", deep)
        yield "body", f"sum of an address, {deep}", partial(lambda deep: "ld.global.u32 %r2, [%rd1" + "+4" * deep + "];", deep)
        yield "body", f"expression, {deep} deep", partial(lambda deep: "mov.u32 %r2, " + "(" * deep + "1" + ")" * deep + ";", deep)
        yield "body", f"minus, {deep}", partial(lambda deep: "mov.u32 %r2, " + "-" * deep + "1;", deep)
    yield "body", "5,000 statements", lambda: "add.s32 %r1, %r1, 1;\n" * MANY
    yield "body", "doubling", lambda: "add.s32 %r1, %r1, %r1;\n" * 3_000
    yield "body", "5,000 labels", lambda: "".join(f"L{k}: bra L{k + 1};\n" for k in range(MANY)) + f"L{MANY}:"
    yield "body", "2,000 branches that join", lambda: "".join(f"@%p1 bra L{k}; add.s32 %r1, %r1, {k}; L{k}:\n" for k in range(2_000))
    yield "body", "branches back, 300", lambda: "".join(f"L{k}: add.s32 %r1, %r1, 1;\n" for k in range(300)) + "".join(f"@%p1 bra L{k};\n" for k in range(300))
    yield "body", "branches forth, 300", lambda: "".join(f"@%p1 bra L{k};\n" for k in range(300)) + "".join(f"L{k}: add.s32 %r1, %r1, 1;\n" for k in range(300))
    yield "body", "branches everywhere", lambda: "".join(f"L{k}: @%p{k % 4} bra L{k * 7919 % 200}; add.s32 %r1, %r1, {k};\n" for k in range(200))
    yield "body", "a branch to itself", lambda: "L: bra L;"
    yield "body", "a branch to nowhere", lambda: "bra NOWHERE;"
    yield "body", "a label twice", lambda: "L: L: bra L;"
    yield "body", "a table of branches", lambda: "ts: .branchtargets " + ", ".join(f"L{k}" for k in range(2_000)) + ";\nbrx.idx %r1, ts;\n" + \
        "".join(f"L{k}: add.s32 %r1, %r1, 1;\n" for k in range(2_000))
    yield "body", "2**31 registers", lambda: ".reg .b32 %q<2147483648>; mov.u32 %r1, %q2147483647;"
    yield "body", "shared memory of 2**60", lambda: ".shared .align 8 .b8 s[1152921504606846976]; st.shared.u32 [s], %r1;"
    yield "body", "an alignment of 3", lambda: ".shared .align 3 .b8 s[-1];"
    yield "body", "an opcode of 2,000 dots", lambda: "add" + ".s32" * 2_000 + " %r1, %r1, %r1;"
    yield "body", "5,000 operands", lambda: "add.s32 " + ", ".join(["%r1"] * MANY) + ";"
    yield "body", "predicates in a row", lambda: "@%p1 " * MANY + "add.s32 %r1, %r1, 1;"
    yield "body", "a call of nothing", lambda: "call (%r1), nothing, (%r1);"
    yield "body", "a call of itself", lambda: "call.uni k, (%rd1, %rd1);"
    yield "body", "no semicolon", lambda: "add.s32 %r1, %r1, 1" * 300
    for number in ("9" * 100_000, "0x" + "f" * 100_000, "0f" + "f" * 100_000, "0dZZ", "0b" + "1" * 100_000, "1e999999999", "0777777777777777777777777",
        "0f123", "08"):
        yield "body", f"the number {number[:12]}", partial(lambda number: f"mov.u32 %r2, {number};", number)
    yield "body", "a name of a megabyte", lambda: "mov.u32 %" + "a" * LONG + ", 1;"
    yield "body", "names of signs", lambda: "mov.u32 %$_$, %%; mov.u32 $, _;"
    yield "body", "an open comment", lambda: "/* " * MANY
    yield "body", "an open string", lambda: '.loc 1 "'
    yield "head", "a global of 100,000 numbers", lambda: ".global .u32 g[100000] = {" + ", ".join(["1"] * 100_000) + "};"
    yield "head", "a global of braces", lambda: ".global .u32 g = " + "{" * 3_000 + "1" + "}" * 3_000 + ";"
    yield "head", "5,000 globals", lambda: "".join(f".global .u32 g{k};\n" for k in range(MANY))
    yield "head", "a function of itself", lambda: ".func f() { call f; ret; }"
    yield "head", "another version", lambda: ".version 99.9\n.target sm_999x\n.address_size 7"
    yield "head", "5,000 pragmas", lambda: '.pragma "nounroll";\n' * MANY
    yield "head", "a section without end", lambda: ".section .debug_str {\n" + ".b8 1\n" * MANY
    yield "head", "5,000 files", lambda: "".join(f'.file {k} "a"\n' for k in range(MANY))


def kir_statements() -> Iterator[tuple[str, str, Callable[[], str]]]:
    """What may stand in a kernel (`body`) or before the program (`head`)."""
    for before, after in (("(", ")"), ("-", ""), ("not ", ""), ("1 + ", ""), ("1 * ", ""), ("min(1, ", ")"), ("cast(", ", f32)"), ("select(true, 1, ", ")"),
                          ("X[", "]"), ("load(X[", "])"), ("[", "]"), ("{", "}"), ("(1, ", ")")):
        for deep in DEEP:
            yield "body", f"{before} {deep} deep", partial(lambda before, after, deep: f"let a = {before * deep}1{after * deep}", before, after, deep)
    for line in ("if N > 1", "for i{} in 0..N", "while N > 1"):
        for deep in (100, 1_000):
            yield "body", f"{line}, {deep} deep", partial(lambda line, deep: (
                "\n".join((" " * (2 * k + 4) if k else "") + line.format(k) for k in range(deep)) + "\n" + " " * (2 * deep + 4) + "pass"), line, deep)
    yield "body", "5,000 statements", lambda: "\n    ".join(f"let a{k} = {k}" for k in range(MANY))
    yield "body", "doubling", lambda: "let a0 = b\n    " + "\n    ".join(f"let a{k + 1} = a{k} + a{k}" for k in range(100))
    for number in ("9" * 100_000, "0x" + "f" * 100_000, "1e999999999", "0." + "3" * 100_000, "1e-99999", "-0", "nan", "inf", "08"):
        yield "body", f"the number {number[:12]}", partial(lambda number: f"let a = {number}", number)
    yield "body", "a name of a megabyte", lambda: f"let {'a' * LONG} = 1"
    yield "body", "a name that is no letter", lambda: "let \u212a = 1"
    yield "body", "shared memory of 2**60", lambda: "shared S: f32[1152921504606846976]"
    yield "body", "an array of 3,000 axes", lambda: f"shared S: f32[{', '.join(['1'] * 3_000)}]"
    yield "body", "an array of products", lambda: f"shared S: f32[{' * '.join(['99999'] * 3_000)}]"
    yield "body", "a layout without end", lambda: "shared S: f32[8] layout (" + "(2, " * 3_000 + "1" + ")" * 3_000 + ")"
    yield "body", "a loop of 2**62", lambda: "for i in 0..4611686018427387904\n      pass"
    yield "body", "a loop by 0", lambda: "for i in 0..8 step 0\n      pass"
    yield "body", "an open string", lambda: 'opaque "'
    yield "body", "tabs", lambda: "\tlet a = 1"
    yield "head", "another version", lambda: "kir 99"
    yield "head", "5,000 empty programs", lambda: "program q\n" * MANY
    yield "head", "comments", lambda: "# x\n" * 100_000


def toml_statements() -> Iterator[tuple[str, str, Callable[[], str]]]:
    """What may stand at the top (`head`) or in a table (`body`)."""
    for deep in DEEP:
        yield "head", f"lists, {deep} deep", partial(lambda deep: f"x = {'[' * deep}{']' * deep}", deep)
        yield "head", f"tables, {deep} deep", partial(lambda deep: f"x = {'{a = ' * deep}1{'}' * deep}", deep)
        yield "head", f"dots, {deep}", partial(lambda deep: f"x{'.a' * deep} = 1", deep)
        yield "head", f"a table of dots, {deep}", partial(lambda deep: f"[x{'.a' * deep}]\nb = 1", deep)
    yield "head", "a tuple of 300,000", lambda: f"x = [{'1, ' * 300_000}]"
    yield "head", "grid of 300,000", lambda: f"facts = [{'1, ' * 300_000}]"
    yield "head", "5,000 tables", lambda: "\n".join(f"[[x]]\na = {k}" for k in range(MANY))
    yield "body", "100,000 keys", lambda: "\n".join(f"a{k} = {k}" for k in range(100_000))
    for number in ("9" * 100_000, "0x" + "f" * 100_000, "1e999999999", "0." + "3" * 100_000, "nan", "-inf", "1979-05-27T07:32:00Z", "99999999999999999999",
        "true", '"x"',
                   "[1]", "{a = 1}", '"\\ud800"', '"' + "(" * 3_000 + '"', '"' + "1+" * 3_000 + '1"', '"9**9**9**9"', '"1 << 99999999999"',
                       '"' + "9" * 100_000 + '"'):
        yield "body", f"a meta of {number[:14]}", partial(lambda number: f"BM = {number}", number)
        yield "head", f"a fact of {number[:14]}", partial(lambda number: f'more = {number}', number)
    yield "body", "a name of a megabyte", lambda: f"{'a' * LONG} = 1"
    yield "body", "an empty name", lambda: '"" = 1'
    yield "body", "a key twice", lambda: "threads_x = 64"
    yield "head", "an open string", lambda: 'x = """'
    yield "head", "a bad escape", lambda: 'x = "\\q \\U99999999"'


def expression_texts() -> tuple[tuple[str, str], ...]:
    """Expressions over sizes that are given as text in a file of TOML."""
    return (("brackets", "(" * 3_000 + "N" + ")" * 3_000), ("brackets, 100,000", "(" * 100_000), ("a sum", "N + " * 20_000 + "N"), ("a tower",
        "9 ** 9 ** 9 ** 9"),
            ("powers", "N ** N ** N"), ("a shift", "1 << 99999999999"), ("digits", "9" * 100_000), ("a name", "a" * LONG), ("NUL", "N\\u0000 + 1"), ("empty",
                ""),
            ("a call", "__import__('os').system('true')"), ("an attribute", "N.__class__"), ("minus", "-" * 20_000 + "N"), ("not", "not " * 20_000 + "N"),
            ("a product", " * ".join(["99999"] * 3_000)), ("by 0", "N // 0"), ("by 0 %", "N % 0"), ("lambda", "(lambda: N)()"), ("a list", "[N for N in N]"),
            ("two lines", "N\\n+ 1"), ("a float", "1e400"), ("true", "True"), ("min", "min(" * 300 + "N, 1" + ", 1)" * 300), ("no letter", "\u212a"))


PROBLEM = (ROOT / "skills" / "problems" / "softmax" / "problem.toml").read_text()
CARD = (ROOT / "skills" / "cards" / "fold-scale.store.md").read_text()
FRAMES = {"cuda": CUDA, "triton": TRITON, "tilelang": TILELANG, "ptx": PTX, "kir": KIR, "binding": BINDING, "problem": PROBLEM, "card": CARD}
"""A right text for each reader; a body is put into all but the last two."""


def monsters() -> Iterator[Monster]:
    """All of them."""
    def of(reader: str, name: str, text: Callable[[], str]) -> Monster:
        return Monster(reader, name, lambda: text().encode("utf-8", errors="surrogatepass"))
    frames = {"cuda": CUDA, "triton": TRITON, "tilelang": TILELANG, "ptx": PTX, "kir": KIR, "binding": BINDING, "problem": PROBLEM, "card": CARD}
    for reader, frame in frames.items():
        for name, made in encodings(frame, "//" if reader in ("cuda", "ptx") else "#"):
            yield Monster(reader, name, made)
    for reader in ("cuda", "triton", "tilelang"):
        frame = frames[reader]
        for name, value in expressions(reader != "cuda"):
            yield of(reader, name, partial(
                lambda value, frame, reader: put(frame, body=f"v = {value()}{';' if reader == 'cuda' else ''}"), value, frame, reader))
            yield of(reader, f"{name}, before it", partial(lambda value, frame, reader: put(
                frame, head=f"{'const int ' if reader == 'cuda' else ''}C = {value()}{';' if reader == 'cuda' else ''}"), value, frame, reader))
    statements = (("cuda", cuda_statements), ("triton", python_statements), ("tilelang", python_statements), ("ptx", ptx_statements), ("kir", kir_statements),
                  ("binding", toml_statements))
    for reader, each in statements:
        indent = " " * 8 if reader == "tilelang" else ""
        for where, name, text in each():
            yield of(reader, name, partial(lambda where, text, frame, indent: put(
                frame, **{where: text().replace("\n", "\n" + indent) if where == "body" else text()}), where, text, frames[reader], indent))
    for where, name, text in toml_statements():
        yield of("problem", name,
               partial(lambda text, where: (text() + "\n" if where == "head" else "") + PROBLEM + ("\n" + text() if where == "body" else ""), text, where))
    for name, e in expression_texts():
        yield of("binding", f"a fact: {name}", partial(lambda e: put(BINDING).replace("N >= 1", e), e))
        yield of("binding", f"a shape: {name}", partial(lambda e: put(BINDING).replace('["64"]', f'["{e}"]'), e))
        yield of("binding", f"a grid: {name}", partial(lambda e: put(BINDING).replace('grid = ["1"]', f'grid = ["{e}"]'), e))
        yield of("binding", f"a scalar: {name}", partial(lambda e: put(BINDING).replace('N = "N"', f'N = "{e}"'), e))
        yield of("problem", f"a fact: {name}", partial(lambda e: f'facts = ["{e}"]\n' + re.sub(r"(?m)^facts = .*$", "", PROBLEM), e))
        yield of("problem", f"a shape: {name}", partial(lambda e: re.sub(r"shape = \[[^\]]*\]", lambda _: f'shape = ["{e}"]', PROBLEM), e))
    record = CARD.rindex("```json") + 8 if "```json" in CARD else CARD.rindex("{")
    for deep in DEEP:
        yield of("card", f"lists, {deep} deep", partial(lambda deep: CARD[:record] + "[" * deep + "]" * deep + "\n```\n", deep))
        yield of("card", f"a field of lists, {deep} deep", partial(lambda deep: CARD.replace('"name"', f'"more": {"[" * deep}{"]" * deep}, "name"', 1), deep))
        yield of("card", f"objects, {deep} deep",
               partial(
                   lambda deep: CARD.replace('"name"', f'"more": {"{" * 1}{chr(34)}a{chr(34)}: ' + '{"a": ' * deep + "1" + "}" * deep + '}, "name"', 1), deep))
    for name, e in (("digits", "9" * 100_000), ("exponent", "1e999999999"), ("NaN", "NaN"), ("Infinity", "-Infinity"), ("surrogate", '"\\ud800"'),
        ("a megabyte", f'"{"x" * LONG}"'),
                    ("null", "null"), ("a path", '"../../etc/passwd"'), ("NUL", '"\\u0000"'), ("a list", "[1]")):
        yield of("card", f"a name of {name}", partial(lambda e: re.sub(r'"name": "[^"]*"', lambda _: f'"name": {e}', CARD, count=1), e))
        yield of("card", f"all numbers of {name}", partial(lambda e: CARD[:record] + re.sub(r'(": )-?\d[\d.e-]*', lambda m: m[1] + e, CARD[record:]), e))
    yield of("card", "headings", lambda: "## Record\n```json\n" * MANY + CARD)
