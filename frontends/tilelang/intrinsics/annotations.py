"""Words that say something about memory or the launch and compute nothing: hints, values outside of tensors, what is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kir.ir import build
from kir.ir import nodes as n

from ..sources.texts import put_in_front
from ..state.reader import Reader
from ..values import arithmetic
from ..values.arithmetic import convert
from ..values.values import Builtin, Items, Memory, NotUnderstood, Place, Signature, Table, Value, describe, is_known, is_number

Word = Callable[[Reader, Signature], Value]


def configured(r: Reader, table: Value) -> None:
    """`pass_configs` as attributes of the kernel, lower case."""
    for key, value in table.items if isinstance(table, Table) else ():
        word = key.name.rsplit(".", 1)[-1] if isinstance(key, Builtin) else str(key).replace(".", "_")
        if is_known(value) and value is not None:
            r.attrs[word.lower()] = value


def _configs(r: Reader, given: Signature) -> Value:
    configured(r, r.decided(given.args[0]))
    return None


def _pairs(r: Reader, v: Value, what: str) -> list[tuple[n.Buffer, Value]]:
    v = r.decided(v)
    if not isinstance(v, Table):
        raise NotUnderstood(f"{what} given by {describe(v)}")
    out = []
    for key, value in v.items:
        key = r.decided(key)
        if not isinstance(key, (Memory, Place)):
            raise NotUnderstood(f"{what} of {describe(key)}")
        out.append((key.buffer, r.settled(value)))
    return out


def _safe_values(r: Reader, given: Signature) -> Value:
    """`T.annotate_safe_value({A: v})`: what an access outside of a tensor reads, in place of 0."""
    for buffer, value in _pairs(r, given.args[0], "values outside"):
        if value is None:
            continue
        if buffer.space != "global":
            raise NotUnderstood(f"a value outside of '{buffer.name}', which is no tensor")
        e = arithmetic.valued(value, buffer.dtype) if is_number(value) else convert(r.run(value), buffer.dtype)
        assert e is not None
        r.outside[buffer.name] = e
    return None


def _hit_ratios(r: Reader, given: Signature) -> Value:
    """`T.annotate_l2_hit_ratio({A: x})`: the part of a tensor's accesses that shall stay in the L2 cache."""
    said = []
    for buffer, ratio in _pairs(r, given.args[0], "ratios"):
        if not is_number(ratio):
            raise NotUnderstood("a ratio that the binding decides")
        if buffer.space != "global":
            raise NotUnderstood(f"a ratio of '{buffer.name}', which is no tensor")
        said.append(f"{buffer.name}={ratio}")
    r.attrs["l2_hit_ratio"] = ",".join(said)
    return None


def _print(r: Reader, given: Signature) -> Value:
    """`T.print(x, msg)`: an effect, with the numbers that are shown."""
    v = r.settled(given.args[0]) if given.args else None
    text = r.settled(given.args[1] if len(given.args) > 1 else given.named.get("msg", ""))
    operands: list[n.Expr] = []
    if isinstance(v, str):
        text = v
    elif isinstance(v, Items):
        operands = [r.run(x) for x in v.items]
    elif isinstance(v, Memory) and not v.var:
        operands = [build.load(n.Region(v.buffer))]
    elif v is not None:
        operands = [r.run(v)]
    if not isinstance(text, str):
        raise NotUnderstood("a text that the binding decides")
    r.out.emit(n.Eval(build.call_with("print", tuple(operands), n.attrs(format=text))))
    return None


def _source(r: Reader, given: Signature) -> Value:
    """`T.import_source(text)`: CUDA source in front of the kernel; None is none."""
    text = r.settled(given.args[0]) if given.args else given.named.get("source")
    if text is None:
        return None
    if not isinstance(text, str):
        raise NotUnderstood("CUDA source that is put in front of the kernel")
    put_in_front(r, text)
    return None


WORDS: Mapping[str, Word] = {
    "annotate_pass_configs": _configs, "annotate_safe_value": _safe_values, "annotate_l2_hit_ratio": _hit_ratios, "print": _print, "import_source": _source,
}  # fmt: skip
