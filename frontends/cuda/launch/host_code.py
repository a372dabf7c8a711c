"""The launches of a CUDA kernel in the C++ around it, followed without running it: `kernel<<<grid, block, bytes>>>(..)`, `cudaLaunchKernel`, `cuLaunchKernel`.

Assignments, allocations, functions of the same folder and torch's C++ are followed; of a loop one turn, of a branch that nothing decides the part that
launches.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kir.ir import build
from kir.ir import nodes as n
from kir.surface.launches.record import HostLaunch
from kir.surface.launches.values import Array, Dtype, Known, Quotient, Unknown, Value, decided, floored, is_condition, is_number, number_chosen, opposite

from ..source.source import Node, Unit, fragment
from ..source.syntax import declared_name, text
from ..symbols.template_candidates import likely
from ..types.errors import NotUnderstood
from .containers import Container, declared
from .dispatch import CPP_TYPES, KERNEL, OPEN, Closure, Config, GuessedType, KernelOf, Written, kernel_of, offered
from .host_parts import (
    DEVICE_NUMBERS,
    Around,
    Headers,
    arithmetic,
    class_constant,
    combined,
    function_name,
    is_integer,
    is_of_the_device,
    last_name,
    literal,
    parameters,
    template_names,
    template_of,
    worked_out,
)
from .host_values import SCALARS, TYPES, Extents, Memory, Pointed, Sizes, allocated, asked_for, bytes_of, method, named_types, torch_made, width_of
from .records import Record, begun, passed

DEEPEST, MOST_STATEMENTS = 8, 20_000
_CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast", "std::move", "std::forward", "thrust::raw_pointer_cast", "raw_pointer_cast"})


class _Return(Exception):
    def __init__(self, value: Value) -> None:
        self.value = value


class Follower:
    """Host code followed from its entries: what is known of its numbers, and the launches that it makes."""

    def __init__(self, functions: Mapping[str, tuple[Unit, Node]], units: Sequence[Unit], concrete: bool = False, every: bool = False,
                 around: Around | None = None) -> None:
        around = around or Around(units)
        self.functions, self.units, self.headers = functions, units, Headers(units)
        self.known = Known()
        self.launches: list[HostLaunch] = []
        self.depth = self.followed = 0
        self.every = every
        """Whether both parts of a branch that nothing decides are followed, and each dtype that a dispatch macro offers."""
        self.concrete = concrete
        """Whether numbers are those of one call: none is a size then."""
        self.globals: dict[str, Value] = {}
        self.given = False
        """Whether callers say how large things are: a constant in such a function is none of their choices."""
        self.compiled = around.words
        """What kernels mention: constants of theirs are no sizes, whoever else uses them."""
        self.unit = units[0]
        for unit, s in around.declared:
            self.unit = unit
            self.declaration(s, self.globals)
        self.unit = units[-1]

    # ------------------------------------------------------------------------------------------------------------------ entries
    def entry(self, unit: Unit, node: Node, given: Sequence[Value] = (), templates: Node | None = None) -> None:
        """A function with what it is given; of one that is called by whom nobody sees the arguments are of the types that it states, and those of its
        template open but for the `templates` of an explicit instantiation."""
        scope: dict[str, Value] = {}
        self.given = function_name(node) != "main" and bool(parameters(node))
        if self.every:
            names = template_names(node)
            scope = dict.fromkeys(names, OPEN)
            scope.update({p.name: GuessedType("i32" if likely(p) == "int32_t" else "f16") for p in template_of(node) if p.kind == "type" and not p.pack})
            scope.update(zip(names, self._arguments(templates, {}) if templates is not None else []))
        for k, p in enumerate(parameters(node)):
            name = declared_name(p.child_by_field_name("declarator") or p)
            if name is not None:
                scope[text(name)] = given[k] if k < len(given) else self._argument(p, text(name))
        self.body(unit, node, scope)

    def _argument(self, p: Node, name: str) -> Value:
        words = text(p)
        kind = text(t) if (t := p.child_by_field_name("type")) is not None else ""
        if "ensor" in kind:
            return Array(self.known, name)
        if "*" in words:
            return Memory(self.known, name, None, TYPES.get(kind, ""))
        if kind in TYPES and is_integer(kind):
            return self._named(name, None)
        return passed(self.units, kind, name, self._argument)

    def _named(self, name: str, example: int | None) -> n.Var:
        made = self.known.fresh("", example)
        self.known.called(made, name)
        return made

    def body(self, unit: Unit, node: Node, scope: dict[str, Value]) -> Value:
        """A function's statements; what it returns."""
        before, self.unit = self.unit, unit
        self.depth += 1
        try:
            inner = node.child_by_field_name("body")
            if inner is not None and self.depth <= DEEPEST:
                self.run(inner, scope)
            return None
        except _Return as back:
            return back.value
        finally:
            self.depth -= 1
            self.unit = before

    # --------------------------------------------------------------------------------------------------------------- statements
    def run(self, s: Node, scope: dict[str, Value]) -> None:
        """A statement."""
        self.followed += 1
        if self.followed > MOST_STATEMENTS:
            raise _Return(Unknown("more statements than are followed"))
        match s.type:
            case "switch_statement" if not self.every and self._one_case(s, scope):
                pass
            case "compound_statement" | "ERROR" | "do_statement" | "try_statement" | "for_statement" | "while_statement" | "for_range_loop" | "case_statement" \
                    | "switch_statement" | "else_clause" | "labeled_statement":
                for each in s.named_children:
                    if each.type in ("declaration", "alias_declaration", "type_definition") or each.type.endswith(("_statement", "clause", "_loop")):
                        self.run(each, scope)
            case "declaration":
                self.declaration(s, scope)
            case "alias_declaration" | "type_definition":
                name, kind = s.child_by_field_name("name") or s.child_by_field_name("declarator"), s.child_by_field_name("type")
                if name is not None and kind is not None:
                    scope[text(name)] = self._type(text(kind), scope)
            case "expression_statement":
                for each in s.named_children:
                    self.value(each, scope)
            case "return_statement":
                raise _Return(self.value(s.named_children[0], scope) if s.named_children else None)
            case "if_statement":
                self._branch(s, scope)
            case _:
                pass

    def _one_case(self, s: Node, scope: dict[str, Value]) -> bool:
        """A switch over a number that nothing decides: the first case that names a number is taken, and the number is that one. False for
        other switches."""
        condition, body = s.child_by_field_name("condition"), s.child_by_field_name("body")
        of = self.value(condition.named_children[-1], scope) if condition is not None and condition.named_children else Unknown()
        of = self.known.resolved(of) if isinstance(of, n.Expr) else of
        within = body.named_children if body is not None else []
        cases = [(c, v) for c in within if c.type == "case_statement" and (v := c.child_by_field_name("value")) is not None]
        if not isinstance(of, n.Var) or not cases:
            return False
        case, told = cases[0]
        value = self.value(told, scope)
        if not isinstance(value, n.Const):
            return False
        self.known.same(of, value)
        self.run(case, scope)
        return True

    def _branch(self, s: Node, scope: dict[str, Value]) -> None:
        condition, then, other = (s.child_by_field_name(x) for x in ("condition", "consequence", "alternative"))
        test = self.value(condition.named_children[-1], scope) if condition is not None and condition.named_children else Unknown()
        answer = test if isinstance(test, bool) else None
        if isinstance(test, n.Expr) and is_condition(test):
            answer = decided(self.known.resolved(test), self.known.examples)
            if answer is not None:
                self._holds(test if answer else opposite(test))
        if answer is None and self.every:
            for part in (then, other):
                if part is not None:
                    inner = dict(scope)
                    try:
                        self.run(part, inner)
                    except _Return:
                        continue
                    scope.update({k: v for k, v in inner.items() if k in scope})
            return
        if answer is None:
            leaves = then is not None and not self._launching(then) and any(word in text(then) for word in ("return", "throw", "abort", "exit"))
            if leaves and other is None:
                self._holds(opposite(test))
                return
            answer = not leaves and (self._launching(then) or other is None or not self._launching(other))
        chosen = then if answer else other
        if chosen is not None:
            self.run(chosen, scope)

    def _launching(self, s: Node | None) -> bool:
        if s is None:
            return False
        return "LaunchKernel" in text(s) or any(s.start_byte <= self._byte(at) < s.end_byte for at, _ in self.unit.launches)

    def _byte(self, at: int) -> int:
        return at if self.unit.ascii else len(self.unit.text.decode(errors="replace")[:at].encode())

    def _holds(self, test: Value) -> None:
        if isinstance(test, list):
            for each in test:
                self._holds(each)
        elif isinstance(test, n.Binary) and is_condition(test):
            if test.op == "eq" and any(isinstance(x, n.Var) for x in (test.a, test.b)):
                self.known.same(test.a, test.b)
            else:
                self.known.fact(test)

    def declaration(self, s: Node, scope: dict[str, Value]) -> None:
        """Variables with their first values."""
        kind = text(t) if (t := s.child_by_field_name("type")) is not None else ""
        for d in s.children_by_field_name("declarator"):
            name = declared_name(d)
            if name is None:
                continue
            pointer = "pointer_declarator" in (d.type, (i.type if (i := d.child_by_field_name("declarator")) is not None else ""))
            init = d.child_by_field_name("value")
            if d.type == "function_declarator" and kind == "void":  # a function that is only declared is no variable
                continue
            if d.type == "function_declarator":  # `dim3 grid(m, n)` looks like one
                listed = d.child_by_field_name("parameters")
                items = [self._name(text(x), scope) for x in (listed.named_children if listed is not None else [])]
                v: Value = Extents(tuple(items)) if kind == "dim3" else declared(self.known, kind, text(name), items if "<" in kind else ())
            elif kind.rpartition("::")[2] == "cudaLaunchConfig_t":
                members = self._listed(self.value(init, scope)) if init is not None else []
                v = Config(dict(zip(("gridDim", "blockDim", "dynamicSmemBytes"), members)))
            elif not pointer and d.type != "array_declarator" and (init is None or init.type == "initializer_list") and (
                    held := begun(self.units, kind, init, lambda x: self.value(x, scope))) is not None:
                v = held
            elif init is None:
                v = Memory(self.known, text(name), None, TYPES.get(kind, "")) if pointer or d.type == "array_declarator" else declared(
                    self.known, kind, text(name), ())
            elif init.type in ("argument_list", "initializer_list"):
                items = [self.value(x, scope) for x in init.named_children]
                many = d.type == "array_declarator" or "[" in text(d)
                v = Extents(tuple(items)) if kind == "dim3" else items if many else declared(
                    self.known, kind, text(name), items if init.type == "argument_list" or "<" not in kind else ())
            else:
                v = declared(self.known, kind, text(name), [self.value(init, scope)])
            fixed = self.concrete or self.headers.enumerates(init) or (scope is self.globals and text(name) in self.compiled) or (
                "const" in text(s).split("=")[0] and (self.every or (self.given and scope is not self.globals)))
            if not fixed and isinstance(v, n.Const) and kind not in ("dim3", "bool") and type(v.value) is int and v.value > 1 and not (
                    scope is not self.globals and init is not None and worked_out(init, scope)):
                v = self._named(text(name), int(v.value))
            v = self._number(kind, v)
            if isinstance(v, Array) and pointer and not v.dtype:
                v.dtype = TYPES.get(kind, "")
            if pointer and not isinstance(v, (Array, list, KernelOf)):
                v = Memory(self.known, text(name), None, TYPES.get(kind, ""))
            if kind == "dim3" and (is_number(v) or isinstance(v, list)):
                v = Extents(tuple(v) if isinstance(v, list) else (v,))
            self._assign(text(name), v, scope)

    def _assign(self, name: str, v: Value, scope: dict[str, Value]) -> None:
        self.known.called(v, name)
        if isinstance(v, Array) and not v.hint:
            v.hint = name
        scope[name] = v

    def _name(self, name: str, scope: Mapping[str, Value]) -> Value:
        if name in scope:
            return scope[name]
        if name in self.globals:
            return self.globals[name]
        number = self.headers.enumerator(name)
        return build.const(number) if number is not None else Dtype(SCALARS[last]) if (last := name.rpartition("::")[2]) in SCALARS else (
            class_constant(self.units, name, self.value, scope) if "::" in name else Unknown(name))

    # -------------------------------------------------------------------------------------------------------------- expressions
    def value(self, e: Node, scope: dict[str, Value]) -> Value:
        """What an expression is, as far as it can be told."""
        match e.type:
            case "number_literal":
                return literal(text(e))
            case "true" | "false":
                return e.type == "true"
            case "nullptr" | "null":
                return None
            case "parenthesized_expression" | "condition_clause" | "init_statement":
                return self.value(e.named_children[-1], scope) if e.named_children else Unknown()
            case "identifier" | "qualified_identifier" | "type_identifier":
                return self._name(text(e), scope)
            case "binary_expression":
                return combined(self.known, text(op) if (op := e.child_by_field_name("operator")) is not None else "", *self._sides(e, scope))
            case "assignment_expression":
                left, right = e.child_by_field_name("left"), e.child_by_field_name("right")
                v = self.value(right, scope) if right is not None else Unknown()
                if left is not None and left.type == "identifier":
                    self._assign(text(left), v, scope)
                elif left is not None and left.type == "field_expression" and isinstance(v, (n.Expr, Extents, Array)):
                    self._member(left, v, scope)
                return v
            case "unary_expression":
                inner = self.value(e.named_children[-1], scope)
                if text(e).startswith("-") and isinstance(inner, n.Expr) and is_number(inner):
                    return build.negate(inner)
                return (not inner) if text(e).startswith("!") and isinstance(inner, bool) else opposite(inner) if text(e).startswith("!") else Unknown()
            case "pointer_expression":
                inner_node = e.named_children[-1]
                return Pointed(text(inner_node)) if text(e).startswith("&") and inner_node.type == "identifier" else self.value(inner_node, scope)
            case "cast_expression":
                kind = text(t) if (t := e.child_by_field_name("type")) is not None else ""
                return self._cast(kind, self.value(e.named_children[-1], scope))
            case "conditional_expression":
                return self._chosen(e, scope)
            case "sizeof_expression":
                inside = " ".join(text(c) for c in e.named_children).strip("()")
                found = self._name(inside, scope)
                width = bytes_of(found.name) if isinstance(found, Dtype) else width_of(inside.replace("const", "").strip())
                return build.const(width) if width else Unknown("sizeof")
            case "initializer_list":
                return [self.value(x, scope) for x in e.named_children]
            case "compound_literal_expression" if text(e).startswith("dim3"):
                return Extents(tuple(self.value(x, scope) for x in e.named_children[-1].named_children))
            case "subscript_expression":
                return self._subscript(e, scope)
            case "field_expression":
                return self._field(e, scope)
            case "call_expression":
                return self._call(e, scope)
            case "lambda_expression":
                return Closure(e, scope)
            case "template_function" if (name := e.child_by_field_name("name")) is not None:
                return KernelOf(text(name).rpartition("::")[2], tuple(self._templates(e, scope)))
            case "compound_literal_expression" if (made := e.child_by_field_name("type")) is not None:
                held = begun(self.units, text(made), e.child_by_field_name("value"), lambda x: self.value(x, scope))
                return held if held is not None and held.members else Unknown(f"{text(made)}(..)")
            case _:
                return Unknown(e.type)

    def _sides(self, e: Node, scope: dict[str, Value]) -> tuple[Value, Value]:
        left, right = e.child_by_field_name("left"), e.child_by_field_name("right")
        return (self.value(left, scope) if left is not None else Unknown(), self.value(right, scope) if right is not None else Unknown())

    def _cast(self, kind: str, v: Value) -> Value:
        dtype = TYPES.get(kind.replace("const", " ").strip().rstrip("* ").strip())
        if isinstance(v, Unknown) and (found := KERNEL.fullmatch(v.reason.strip())) and "*" in kind:
            return KernelOf(found[1], ())
        if isinstance(v, Array) and "*" in kind and dtype and not v.dtype:
            v.dtype = dtype
        return self._number(kind.strip(), v)

    def _number(self, kind: str, v: Value) -> Value:
        """A number as of another type: a whole one as a floating-point one is what may be divided without rounding, and back it is rounded down."""
        if kind in ("float", "double") and is_number(v) and isinstance(v, n.Expr):
            return Quotient(v, build.const(1))
        return floored(v.over, v.under) if isinstance(v, Quotient) and kind in TYPES and is_integer(kind) else v

    def _chosen(self, e: Node, scope: dict[str, Value]) -> Value:
        test = self.value(e.named_children[0], scope)
        answer = test if isinstance(test, bool) else decided(self.known.resolved(test), self.known.examples) if isinstance(test, n.Expr) else None
        if not isinstance(test, bool) and re.search(r"\bargc\b", text(e.named_children[0])):  # what a command line gives, or the usual
            given = [v for x in e.named_children[1:3] if isinstance(v := self.value(x, scope), (n.Var, Unknown))]
            if given:
                return given[0]
        if not isinstance(test, bool) and (both := number_chosen(test, *(self.value(x, scope) for x in e.named_children[1:3]))) is not None:
            return both
        return self.value(e.named_children[1 if answer is not False else 2], scope)

    def _subscript(self, e: Node, scope: dict[str, Value]) -> Value:
        owner = self.value(e.named_children[0], scope)
        at = self.value(e.named_children[-1].named_children[0], scope) if e.named_children[-1].named_children else Unknown()
        if isinstance(at, n.Const) and isinstance(owner, Sizes):
            return owner.of.extent(int(at.value)) or Unknown()
        return owner[int(at.value)] if isinstance(owner, list) and isinstance(at, n.Const) and 0 <= int(at.value) < len(owner) else Unknown("an element")

    def _field(self, e: Node, scope: dict[str, Value]) -> Value:
        owner = self.value(e.named_children[0], scope)
        word = text(e.named_children[-1])
        if isinstance(owner, Config | Record):
            return owner.members.get(word, Unknown(word))
        if isinstance(owner, Extents) and word in "xyz":
            return owner.of["xyz".index(word)] if "xyz".index(word) < len(owner.of) else build.const(1)
        return scope.setdefault(text(e), self._named(word, None)) if word in DEVICE_NUMBERS else Unknown(f".{word}")

    def _member(self, e: Node, v: Value, scope: dict[str, Value]) -> None:
        """`grid.x = ..`"""
        name, word = text(e.named_children[0]), text(e.named_children[-1])
        if isinstance(of := scope.get(name), Config | Record):
            of.members[word] = v
        elif not isinstance(v, Array) and word in ("x", "y", "z"):
            held = scope.get(name)
            items = [*(held.of if isinstance(held, Extents) else ()), *([build.const(1)] * 3)][:3]
            items["xyz".index(word)] = v
            scope[name] = Extents(tuple(items))

    # ------------------------------------------------------------------------------------------------------------------- calls
    def _call(self, e: Node, scope: dict[str, Value]) -> Value:
        f, listed = e.child_by_field_name("function"), e.child_by_field_name("arguments")
        if f is None or listed is None:
            return Unknown("a call")
        held = self._name(text(f), scope) if f.type == "identifier" else self.value(f, scope) if f.type == "lambda_expression" else None
        if isinstance(held, Closure):
            return self._closure(held, [self.value(x, scope) for x in listed.named_children])
        launched = next((words for at, words in self.unit.launches if f.end_byte <= self._byte(at) <= listed.start_byte), None)
        last = f
        while last.type == "qualified_identifier" and (below := last.child_by_field_name("name")) is not None:
            last = below
        name_node = last.child_by_field_name("name") if last.type == "template_function" else last
        before = text(f)[:last.start_byte - f.start_byte]
        name = f"{before}{text(name_node if name_node is not None else last)}"
        templates = self._templates(last, scope)
        if launched is not None:
            self._launched(name, e, launched, templates, [self.value(x, scope) for x in listed.named_children], scope)
            return None
        if f.type == "field_expression":
            owner = self.value(f.named_children[0], scope)
            field = f.named_children[-1]
            inner = field.child_by_field_name("name") if field.type == "template_method" else field
            args = [self.value(x, scope) for x in listed.named_children]
            if isinstance(owner, Array):
                return method(owner, text(inner if inner is not None else field), args, self._templates(field, scope))
            if isinstance(owner, Dtype):
                return next((x for x in args if isinstance(x, Dtype)), owner)
            if text(field) in ("size", "length") and not args and not isinstance(owner, Container):  # of a container: a number of its own, the same each time
                return scope.setdefault(f"{text(f.named_children[0])}.size()", self.known.fresh())
            return owner.method(text(field), args) if isinstance(owner, Container) else Unknown("a method")
        if name in _CASTS or (f.type == "template_function" and name.endswith("_cast")):
            kind = text(t) if (t := f.child_by_field_name("arguments")) is not None else ""
            return self._cast(kind.strip("<>"), self.value(listed.named_children[-1], scope)) if listed.named_children else Unknown()
        return self._function(name, e, listed, scope, templates)

    def _templates(self, f: Node, scope: dict[str, Value]) -> list[Value]:
        return self._arguments(f.child_by_field_name("arguments") if f.type in ("template_function", "template_method") else None, scope)

    def _arguments(self, listed: Node | None, scope: dict[str, Value]) -> list[Value]:
        out: list[Value] = []
        for each in listed.named_children if listed is not None else ():
            if each.type == "type_descriptor":
                words = text(each)
                held = self._name(words, scope)
                if self.every or isinstance(held, Written):
                    out.append(held if isinstance(held, Written) else self._type(words, scope))
                    continue
                made = held if not isinstance(held, Unknown) else Dtype("") if words in ("scalar_t", "T") and words not in scope else named_types(words)
                spelled = isinstance(made, Unknown) and ("::" in words or is_of_the_device(words, self.units)) and self._is_spelled(words, scope)
                out.append(Written(words) if spelled else made)
            else:
                v = self.value(each, scope)
                out.append(self._type(text(each), scope) if self.every and isinstance(v, Unknown)
                           else Written(text(each)) if isinstance(v, Unknown) and self._is_spelled(text(each), scope) else v)
        return out

    def _is_spelled(self, words: str, scope: Mapping[str, Value]) -> bool:
        """Whether the text of a template argument means the same at the kernel: it has no name of the function at hand."""
        return not any(x in scope for x in re.findall(r"(?<![\w:.])[A-Za-z_]\w*", words))

    def _type(self, words: str, scope: Mapping[str, Value]) -> Value:
        """A type that host code names: a dtype, or its text with what the code calls otherwise put in."""
        held = self._name(words, scope)
        if isinstance(held, (Dtype, Written)) or is_number(held):
            return held
        if any(scope.get(x) is OPEN for x in re.findall(r"(?<![\w:.])[A-Za-z_]\w*", words)):
            return OPEN
        made = self._spelled(words, scope)
        found = named_types(made)
        return found if isinstance(found, Dtype) and "*" not in made else Written(made)

    def _spelled(self, words: str, scope: Mapping[str, Value]) -> str:
        """C++ text with the names of types and constants that stand in this scope alone put in."""
        def put(m: re.Match[str]) -> str:
            v = scope.get(m[0])
            if isinstance(v, Dtype) and v.name:
                return CPP_TYPES.get(v.name, m[0])
            if isinstance(v, Written):
                return v.reason
            if isinstance(v, bool):
                return "true" if v else "false"
            number = self.known.resolved(v) if isinstance(v, n.Expr) and is_number(v) else None
            return str(number.value) if isinstance(number, n.Const) else m[0]
        return re.sub(r"(?<![\w:.])[A-Za-z_]\w*", put, words) if scope else words

    def _closure(self, c: Closure, args: list[Value]) -> Value:
        if self.depth > DEEPEST:
            return Unknown("calls that nest too deeply")
        scope = dict(c.scope)
        listed = d.child_by_field_name("parameters") if (d := c.node.child_by_field_name("declarator")) is not None else None
        for p, v in zip((p for p in (listed.named_children if listed is not None else ()) if p.type.endswith("parameter_declaration")), args):
            name = declared_name(p.child_by_field_name("declarator") or p)
            if name is not None:
                scope[text(name)] = v
        body = c.node.child_by_field_name("body")
        self.depth += 1
        try:
            if body is not None:
                self.run(body, scope)
        except _Return as back:
            return back.value
        finally:
            self.depth -= 1
        return None

    def _function(self, name: str, e: Node, listed: Node, scope: dict[str, Value], templates: list[Value]) -> Value:
        last = name.partition("<")[0].rpartition("::")[2]
        for each in listed.named_children:
            inner = each
            while inner.type == "parenthesized_expression" and inner.named_children:
                inner = inner.named_children[0]
            if inner.type == "lambda_expression" and (body := inner.child_by_field_name("body")) is not None:
                for dtype in offered(name, listed) if self.every else ("",):  # AT_DISPATCH_..: of the dtypes that it offers, one or each
                    try:
                        self.run(body, {**scope, "scalar_t": Dtype(dtype)})
                    except _Return:
                        continue
                return None
        args = [self.value(x, scope) for x in listed.named_children]
        if last in ("TORCH_CHECK", "assert", "AT_ASSERT", "CHECK", "TORCH_CHECK_EQ"):
            self._holds(args[0] if last != "TORCH_CHECK_EQ" or len(args) < 2 else combined(self.known, "==", args[0], args[1]))
            return None
        if last in ("cudaMalloc", "cudaMallocManaged", "cudaMallocAsync", "cudaMallocHost", "cuMemAlloc") and len(args) >= 2:
            held = scope.get(args[0].name) if isinstance(args[0], Pointed) else None
            if isinstance(held, Array):
                allocated(held, args[1])
            return build.const(0)
        if last.startswith("cuda") and (asked := asked_for(args, scope)):
            return scope.update({x: self._named(x, None) for x in asked})
        if last in ("cudaLaunchKernelEx", "cudaLaunchKernelExC") and len(args) >= 2:
            config = scope.get(args[0].name) if isinstance(args[0], Pointed) else args[0]
            of = kernel_of(args[1], text(listed.named_children[1]))
            if isinstance(config, Config) and of is not None:
                self._record(of.name, e, args[2:], *config.launch(), of.templates)
            return build.const(0)
        if last in ("cudaLaunchKernel", "cudaLaunchCooperativeKernel") and len(args) >= 5:
            named = args[0] if isinstance(args[0], KernelOf) else KernelOf(last_name(text(listed.named_children[0])))
            self._record(named.name, e, self._pointed(args[3], scope), args[1], args[2], args[4], named.templates)
            return build.const(0)
        if last == "cuLaunchKernel" and len(args) >= 10:
            held, given = scope.get(text(listed.named_children[0])), self._pointed(args[9], scope)
            self._record(held if isinstance(held, str) else "", e, given, Extents(tuple(args[1:4])), Extents(tuple(args[4:7])), args[7], [])
            return build.const(0)
        if last == "cuModuleGetFunction" and len(args) >= 3 and isinstance(args[0], Pointed):
            scope[args[0].name] = text(listed.named_children[2]).strip('"')
            return build.const(0)
        if last == "dim3" or (last == "dtype" and args):
            return Extents(tuple(args)) if last == "dim3" else args[0]
        if (made := arithmetic(self.known, last, args)) is not None:
            return made
        if name.startswith(("torch::", "at::")) and args:
            return torch_made(self.known, last, args)
        if last in self.functions:
            return self._followed(*self.functions[last], args, templates)
        if args and all(map(is_number, args)) and (helper := self.headers.function(last)) is not None:
            return self._followed(*helper, args, templates)
        if len(args) == 1 and last in TYPES:
            return self._number(last, args[0])
        return Unknown(f"{name}(..)")

    def _listed(self, v: Value) -> list[Value]:
        return v if isinstance(v, list) else []

    def _pointed(self, v: Value, scope: dict[str, Value]) -> list[Value]:
        return [scope.get(x.name, Unknown(x.name)) if isinstance(x, Pointed) else x for x in self._listed(v)]

    def _followed(self, unit: Unit, node: Node, args: list[Value], templates: list[Value]) -> Value:
        scope: dict[str, Value] = {}
        names = template_names(node)
        if self.every:
            scope.update(dict.fromkeys(names, OPEN))
        scope.update(dict(zip(names, templates)))
        for k, p in enumerate(parameters(node)):
            d, usual = declared_name(p.child_by_field_name("declarator") or p), p.child_by_field_name("default_value")
            if d is not None and k < len(args):
                self.known.called(args[k], text(d), 1)
                scope[text(d)] = args[k]
            elif d is not None and usual is not None:
                fixed = self.headers.constant(unit, text(usual)) if usual.type == "identifier" else None
                scope[text(d)] = self.value(fixed or usual, scope)
        outer, self.given = self.given, self.given or bool(parameters(node))
        made, self.given = self.body(unit, node, scope), outer
        return made

    def _launched(self, name: str, e: Node, words: str, templates: list[Value], args: list[Value], scope: dict[str, Value]) -> None:
        try:
            listed = fragment(f"f({words})")
        except NotUnderstood:
            return  # its arguments are no expressions: nothing is launched so
        call = next((c for c in listed.named_children if c.type == "call_expression"), None)
        given = call.child_by_field_name("arguments") if call is not None else None
        parts = [self.value(x, scope) for x in given.named_children] if given is not None else []
        grid, block = (parts[k] if k < len(parts) else build.const(1) for k in (0, 1))
        of = self._name(name, scope)
        if isinstance(of, KernelOf):
            name, templates = of.name, list(of.templates)
        self._record(name.rpartition("::")[2], e, args, grid, block, parts[2] if len(parts) > 2 else build.const(0), templates)

    def _record(self, name: str, e: Node, args: Sequence[Value], grid: Value, block: Value, shared: Value, templates: Sequence[Value]) -> None:
        def extents(v: Value) -> tuple[Value, ...]:
            return v.of if isinstance(v, Extents) else (v,)
        origin = self.unit.origin(e)
        self.launches.append(HostLaunch(name, origin.file, origin.line, self.known, tuple(args), {}, extents(grid), extents(block), shared, tuple(templates)))
