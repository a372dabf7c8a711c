"""Random kernels in CUDA C++'s own text: what one thread does, in the words and the control flow of the language.

No undefined behavior: divisors are constants, shifts are small, indices are masked, loops end, and what changes a name is a statement or stands behind a short
circuit, so that no order is left open. Signed numbers wrap (`-fwrapv`), as in the IR."""
from __future__ import annotations

import random

INTEGERS = ("int", "unsigned", "short", "unsigned char", "signed char", "long long", "unsigned short", "unsigned long long", "bool")
LENGTH, MOST = 8, 40
"""Elements of an array; statements of a kernel at most."""


class Text:
    """A kernel over `x` and `y` of `n` int elements, all from a seed, in `text`."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.names: list[tuple[str, str]] = []
        self.arrays: list[str] = []
        self.fixed: set[str] = set()
        self.helpers: list[str] = []
        self.made = 0
        self.left = self.r.choice([8, 16, MOST])
        self.depth = 0
        self.words: dict[str, int] = {}
        body = self.block(self.r.randint(3, 7))
        end = " ".join(f"h = h * 31 + (int){name};" for name, _ in self.names)
        arrays = " ".join(f"for (int q = 0; q < {LENGTH}; ++q) h = h * 7 + {a}[q];" for a in self.arrays)
        self.text = ("".join(self.helpers) + "__global__ void k(const int* x, int* y, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                     f"  if (i >= n) return;\n  int v = x[i];\n{body}  unsigned h = v;\n  {end}\n  {arrays}\n  y[i] = (int)(h % 1000003u);\n}}\n")

    # ------------------------------------------------------------------------------------------------------------ expressions
    def fresh(self, stem: str = "a") -> str:
        self.made += 1
        return f"{stem}{self.made}"

    def atom(self) -> str:
        """A name, an element, a literal."""
        pick = self.r.random()
        if pick < 0.55 and self.names:
            return self.r.choice(self.names)[0]
        if pick < 0.65 and self.arrays:
            return f"{self.r.choice(self.arrays)}[{self.index()}]"
        if pick < 0.8:
            return self.r.choice(["v", "i", "x[i]", "n", "(int)threadIdx.x"])
        return self.r.choice(["0", "1", "2", "3", "5", "7u", "0x1f", "-4", "100", "'a'", "-1", "12ll", "(short)300", "true", "sizeof(int)"])

    def index(self) -> str:
        return f"({self.atom()}) & {LENGTH - 1}"

    def value(self, depth: int = 2) -> str:
        """An integer expression."""
        if depth == 0:
            return self.atom()
        a, b = (self.value(depth - 1) for _ in range(2))
        kind = self.r.randrange(12)
        match kind:
            case 0 | 1 | 2:
                return f"({a} {self.r.choice('+-*')} {b})"
            case 3:
                return f"({a} {self.r.choice('/%')} {self.r.choice(['3', '5', '7u', '-2', '4', '8'])})"
            case 4:
                return f"({a} {self.r.choice('&|^')} {b})"
            case 5:
                return f"({a} {self.r.choice(['<<', '>>'])} {self.r.choice(['1', '2', f'({b} & 3)'])})"
            case 6:
                return f"({self.condition()} ? {a} : {b})"
            case 7:
                return f"(({self.r.choice(INTEGERS)})({a}))"
            case 8:
                return f"({self.r.choice(['-', '~', '!', '+'])}({a}))"
            case 9:
                return self.r.choice([f"min((int)({a}), (int)({b}))", f"max((int)({a}), (int)({b}))", f"(({a}) < ({b}))", f"(({a}) == ({b})) * 5",
                                      f"abs((int)({a}) % 999)"])
            case 10 if self.depth < 2:
                return self.called(a, b)
            case _:
                return a

    def changing(self) -> list[str]:
        return [name for name, kind in self.names if name not in self.fixed and kind != "bool"]

    def condition(self, effect: bool = False) -> str:
        """Something that is true or false, perhaps with an effect that a short circuit leaves out."""
        a, b = self.value(1), self.value(1)
        one = f"{a} {self.r.choice(['<', '<=', '>', '>=', '==', '!='])} {b}"
        if self.r.random() < 0.4:
            two = f"{self.value(1)} {self.r.choice(['<', '!=', '>='])} {self.atom()}"
            if effect and self.changing():
                two = f"{self.r.choice(['++', '--'])}{self.r.choice(self.changing())} > {self.r.randint(-3, 9)}"
            one = f"({one}) {self.r.choice(['&&', '||'])} ({two})"
        return f"!({one})" if self.r.random() < 0.1 else one

    def called(self, a: str, b: str) -> str:
        """A call of a function of its own that changes nothing."""
        name = self.fresh("f")
        match self.r.randrange(4):
            case 0:
                self.helpers.append(f"__device__ int {name}(int a, int b) {{ if (a > b) return a - b; return a + 2 * b; }}\n")
            case 1:
                self.helpers.append(f"__device__ int {name}(int a, int b) {{ int s = 0; for (int k = 0; k < 6; ++k) {{ if (k == (b & 7)) return s; "
                                    "s += a ^ k; } return s - 1; }\n")
            case 2:
                self.helpers.append(f"template <int K> __device__ int {name}(int a, int b) {{ return K % 2 ? a * K : b - K; }}\n")
                name = f"{name}<{self.r.randint(1, 6)}>"
            case _:
                self.helpers.append(f"__device__ unsigned char {name}(unsigned char a, short b) {{ while (b > 3) {{ b /= 2; a += b; }} return a; }}\n")
        return f"{name}({a}, {b})"

    def effect(self) -> str:
        """A statement that changes several things at once: by a call, or as a part of it."""
        name, out = self.fresh("f"), self.changing()
        if out and self.r.random() < 0.5:
            one = self.r.choice(out)
            return self.r.choice([f"v = {one}++;\n", f"v += --{one};\n", f"v = {one} = {self.value(1)};\n", f"v = {one}-- * 2;\n",
                                  f"if ({one}++ > 2 && --{one} < 9) v ^= 3;\n"])
        if out and self.r.random() < 0.5:
            self.helpers.append(f"template <typename T> __device__ int {name}(T& a, int b) {{ a += b; return a * 2; }}\n")
            return f"v = {name}({self.r.choice(out)}, {self.r.randint(-9, 9)});\n"
        if self.arrays:
            self.helpers.append(f"__device__ int {name}(int* p, int b) {{ p[b & {LENGTH - 1}] += 3; return *(p + 2) + p[{LENGTH - 1}]; }}\n")
            return f"v = {name}({self.r.choice(self.arrays)}, {self.r.choice(['v', 'i', '5'])});\n"
        return self.assigned()

    # ------------------------------------------------------------------------------------------------------------- statements
    def block(self, count: int) -> str:
        return "".join(self.statement() for _ in range(count))

    def inner(self, count: int, loop: bool = False) -> str:
        """The statements of a block with a scope of its own."""
        held, arrays = list(self.names), list(self.arrays)
        self.depth += 1
        out = self.block(count)
        if loop and self.r.random() < 0.4:
            out += f"if ({self.condition()}) {self.r.choice(['break', 'continue'])};\n" + self.block(1)
        self.depth -= 1
        self.names, self.arrays = held, arrays
        return out

    def statement(self) -> str:
        self.left -= 1
        if self.left < 0 or self.depth > 3:
            return self.assigned()
        kinds = [self.declared, self.declared, self.assigned, self.assigned, self.assigned, self.branch, self.branch, self.loop, self.loop, self.array,
                 self.switch, self.lambda_, self.struct, self.shadowed, self.returned, self.effect, self.effect, self.alias, self.pointer, self.table,
                 self.real]
        return self.r.choice(kinds)()

    def declared(self) -> str:
        kind, name = self.r.choice(INTEGERS), self.fresh()
        out = f"{kind} {name} = {self.value()};\n"
        self.names.append((name, kind))
        return out

    def assigned(self) -> str:
        if not self.changing():
            return f"v = {self.value()};\n"
        name = self.r.choice([*self.changing(), "v"])
        if self.arrays and self.r.random() < 0.3:
            name = f"{self.r.choice(self.arrays)}[{self.index()}]"
        return self.r.choice([f"{name} = {self.value()};\n", f"{name} {self.r.choice('+-*^|&')}= {self.value()};\n", f"{name}++;\n", f"--{name};\n",
                              f"{name} {self.r.choice('/%')}= {self.r.choice('357')};\n", f"{name} {self.r.choice(['<<', '>>'])}= 1;\n"])

    def branch(self) -> str:
        out = f"if ({self.condition(True)}) {{\n{self.inner(self.r.randint(1, 2))}}}"
        if self.r.random() < 0.3:
            out += f" else if ({self.condition(True)}) {{\n{self.inner(1)}}}"
        return out + (f" else {{\n{self.inner(self.r.randint(1, 2))}}}\n" if self.r.random() < 0.5 else "\n")

    def loop(self) -> str:
        """A loop that ends, in one of the forms that the language has for it."""
        k, m = self.fresh("k"), self.fresh("k")
        few, kind = self.r.randint(1, 6), self.r.choice(["int", "unsigned", "short", "long long"])
        heads = [
            f"for ({kind} {k} = 0; {k} < {few}; ++{k})", f"for (int {k} = {few}; {k} >= 0; {k} -= 2)", f"for (int {k} = {few}; {k}--; )",
            f"for (int {k} = 0, {m} = {few}; {k} < {m}; {k}++, --{m})", f"for (int {k} = 32; {k} > 0; {k} >>= 1)",
            f"for (unsigned {k} = 1; {k} < 40; {k} *= 3)", f"for (int {k} = v & 3; {k} <= {few}; {k} += 1 + (i & 1))",
            f"for (int {k} = {few}; {k} != 0; --{k})", f"for (int {k} = -{few}; {k} < (v & 3); {k}++)", f"for (int {k} = i; {k} < i + {few}; {k} = {k} + 2)",
            f"for ({kind} {k} = {few}; {k} > 0; --{k})", f"#pragma unroll\nfor (int {k} = 0; {k} < 4; ++{k})",
            f"for (int {k} = 0; {k} * {k} < {few * 5}; ++{k})",
            f"for (unsigned char {k} = 250; {k} != {few}; ++{k})", f"for (int {k} = {few}; {k} > -9; {k} -= 3)"]
        pick = self.r.randrange(len(heads) + 3)
        self.fixed |= {k, m}
        self.names += [(k, kind)]
        if pick < len(heads):
            out = f"{heads[pick]} {{\n{self.inner(self.r.randint(1, 2), loop=True)}}}\n"
        elif pick == len(heads):
            out = f"{{ int {k} = {few}; while ({k}-- > 0) {{\n{self.inner(1, loop=True)}}} }}\n"
        elif pick == len(heads) + 1:
            out = f"{{ int {k} = 0; do {{\n{self.inner(1)}}} while (++{k} < {few}); }}\n"
        else:
            out = f"{{ int {k} = 0; while (true) {{\n{self.inner(1)}if ({k}++ >= {few}) break;\n{self.inner(1)}}} }}\n"
        self.names = [each for each in self.names if each[0] != k]
        return out

    def array(self) -> str:
        name = self.fresh("t")
        out = self.r.choice([f"int {name}[{LENGTH}] = {{{self.value(1)}, 2, {self.atom()}}};\n",
                             f"int {name}[{LENGTH}];\nfor (int q = 0; q < {LENGTH}; ++q) {name}[q] = q * {self.atom()};\n"])
        self.arrays.append(name)
        return out

    def switch(self) -> str:
        cases = [f"case {c}: {{\n{self.inner(1)}}}\n{self.r.choice(['break;', 'break;', ''])}\n" for c in self.r.sample(range(5), 3)]
        return f"switch (({self.value(1)}) & 7) {{\n{''.join(cases)}default: {{\n{self.inner(1)}}}\n}}\n"

    def lambda_(self) -> str:
        name, by = self.fresh("g"), self.r.choice("=&")
        change = f"{self.r.choice(self.changing())} += w; " if by == "&" and self.changing() else ""
        return f"auto {name} = [{by}](int w) {{ {change}return w * 2 + v; }};\nv ^= {name}({self.atom()}) - {name}(3);\n{self.assigned()}v += {name}(1);\n"

    def struct(self) -> str:
        name, kind = self.fresh("s"), self.fresh("P")
        self.helpers.append(f"struct {kind} {{ int a; short b; __device__ int sum() const {{ return a + b; }}\n"
                            "__device__ void add(int c) { a += c; b ^= c; } };\n")
        return f"{kind} {name}{{(int)({self.atom()}), (short)({self.atom()})}};\n{name}.add({self.value(1)});\n{kind} {name}b = {name};\n{name}b.a += 1;\n" \
               f"v += {name}.sum() * 2 - {name}b.sum();\n"

    def shadowed(self) -> str:
        held = self.fresh("w")
        kept = f"{self.r.choice(self.changing())} += v;" if self.changing() else ""
        return f"{{ int {held} = {self.value(1)};\n{{ int v = {held} + 1;\n{self.inner(1)}{kept}\n}} }}\n"

    def alias(self) -> str:
        """Another name of a variable, or of an element."""
        name = self.fresh("r")
        of = [name for name, kind in self.names if kind == "int" and name not in self.fixed]
        if not of and not self.arrays:
            return self.assigned()
        to = self.r.choice([*of, *(f"{a}[{self.index()}]" for a in self.arrays)])
        return f"{{ int& {name} = {to};\n{name} += {self.value(1)};\n{self.assigned()}v ^= {name}; }}\n"

    def pointer(self) -> str:
        """A pointer that walks over an array."""
        if not self.arrays:
            return self.array()
        name, of = self.fresh("p"), self.r.choice(self.arrays)
        return self.r.choice([f"{{ int* {name} = {of} + 2;\n*{name}++ = {self.value(1)};\nv += *{name} + {name}[-1]; }}\n",
                              f"for (int* {name} = {of}; {name} != {of} + {LENGTH}; {name} += 2) v = v * 3 + *{name};\n",
                              f"{{ const int* {name} = &{of}[1]; v -= {name}[v & 3] * (int)(({name} + 3) - {of}); }}\n"])

    def table(self) -> str:
        """Numbers in two dimensions, and constants."""
        name, k = self.fresh("m"), self.fresh("q")
        return (f"{{ int {name}[2][4] = {{{{1, {self.atom()}, 3, 4}}, {{5, 6, {self.atom()}, 8}}}};\nconstexpr int {k}[4] = {{4, 3, 2, 1}};\n"
                f"for (int {k}i = 0; {k}i < 2; ++{k}i) for (int {k}j = 0; {k}j < 4; ++{k}j) {{\n"
                f"{name}[{k}i][{k}[{k}j] & 3] += {self.value(1)};\nif ({self.condition()}) {self.r.choice(['continue', 'break'])};\n"
                f"v += {name}[1 - {k}i][{k}j] * {k}[{k}i]; }} }}\n")

    def real(self) -> str:
        """Single-precision numbers, cut off again."""
        name = self.fresh("e")
        return (f"{{ float {name} = (float)(({self.value(1)}) % 500) / {self.r.choice(['4.f', '8.0f', '3.f'])};\n{name} = {name} * {name} - 1.5f;\n"
                f"if ({name} {self.r.choice('<>')} {self.r.choice(['2.f', '0.5f', '-1'])}) {name} += 2;\nv += (int){name} + ({name} >= 3.0f); }}\n")

    def returned(self) -> str:
        return f"if ({self.condition()}) {{ y[i] = (int)({self.value(1)}) & 0xffff; return; }}\n"


__all__ = ["Text"]
