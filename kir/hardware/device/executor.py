"""What a child does: confine itself, load cubins, and answer calls. The only code in this process besides ours is on the device.

A call fills buffers (drawn on the device from a seed, or given), clears L2, runs the launches between two events, and says what it saw:
seconds, which inputs changed, which guard zones around buffers were written, and the buffers that were asked for. Every call is made
and timed alike; whether it is checked afterwards is not known here.
"""
from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from kir.base.dataclass import dataclass
from kir.hardware.confine import Limits, confine
from kir.hardware.device import wire
from kir.hardware.device.driver import CudaError, Driver, Kernel, Map

GUARD = 1 << 16
"""Bytes before and after each buffer that nothing may write."""
MOST_SHIFT = 256
"""Data begin at a multiple of so many bytes, or, in calls that ask for it, behind one by less."""
CLEAR_FACTOR = 3
"""How many times L2 the buffer is that clears it."""
THREADS = 256
CROWD = 16
"""CTAs of `THREADS` threads for each SM: twice as many as it holds."""
CODES = {"f16": 0, "bf16": 1, "f32": 2, "f64": 3, "f8e4m3": 4, "f8e5m2": 5, "i8": 6, "u8": 7, "i16": 8, "u16": 9, "i32": 10, "u32": 11,
         "i64": 12, "u64": 13, "bool": 14, "e8m0": 7}
KINDS = {"normal": 0, "uniform": 1, "log_uniform": 2, "alternating": 3, "sparse": 4, "integers": 5, "constant": 6}
SCALARS: Mapping[str, Any] = {
    "bool": ctypes.c_bool, "i8": ctypes.c_int8, "u8": ctypes.c_uint8, "i16": ctypes.c_int16, "u16": ctypes.c_uint16, "i32": ctypes.c_int32,
    "u32": ctypes.c_uint32, "i64": ctypes.c_int64, "u64": ctypes.c_uint64, "f32": ctypes.c_float, "f64": ctypes.c_double}
HEAP_BYTES, PRINT_BYTES = 1 << 20, 1 << 16
"""What device code may allocate and print."""
DELAY_BASE, DELAY_LAUNCH = 40_000, 25_000
"""Nanoseconds that the stream is kept busy while the host enqueues a call: at least, and for each launch."""
MOST_SUMS = 256
"""Places that are summed at once."""
HARNESS = ("draw", "unit_rows", "sum", "clear", "spoil", "leave_512", "leave_4096", "leave_32768", "delay", "nothing")
"""Kernels of `harness.cu`, without their prefix."""
LOCAL_SHARE, RESIDENT = 4, 2048
"""The part of the free memory that filling local memory may take, and the threads that an SM holds."""
LOCALS = (512, 4096, 32768)
"""Bytes of local memory a thread that kernels of ours fill: as many as a candidate has, or most of them."""
GRAPH_FROM = 8
"""Calls of this many launches are captured as a graph."""


@dataclass
class _Image:
    kernel: Kernel
    hidden: tuple[int, ...]
    cooperative: bool


@dataclass
class _Buffer:
    base: int
    size: int
    guard: int = 0
    shift: int = 0

    @property
    def data(self) -> int:
        return self.base + self.guard + self.shift

    @property
    def guards(self) -> tuple[tuple[int, int], ...]:
        """Pointers and sizes of what lies around the data."""
        end = self.data + self.size
        return ((self.base, self.guard + self.shift), (end, self.base + guarded(self.size, self.guard) - end)) if self.guard else ()


def guarded(size: int, guard: int) -> int:
    """The bytes that data take with what lies around them, wherever they begin within `MOST_SHIFT`."""
    return -(-size // MOST_SHIFT) * MOST_SHIFT + MOST_SHIFT + 2 * guard if guard else size


@dataclass
class State:
    """What lives as long as the child.

    `watched` are variables of modules: pointer and size; `spoiled` is how many CTAs of how many bytes fill all shared memory, `local` the most
    bytes of local memory that a thread of the candidate's has, `room` how many each thread of the device may have of ours. `plain`: L2 is not
    cleared and no time is bought for the host: nothing is measured.
    """

    driver: Driver
    harness: dict[str, Kernel]
    images: list[_Image]
    buffers: dict[str, _Buffer] = field(default_factory=dict)
    scratch: list[_Buffer] = field(default_factory=list)
    cleared: tuple[int, int] = (0, 0)
    sums: int = 0
    watched: dict[str, tuple[int, int]] = field(default_factory=dict)
    spoiled: tuple[int, int] = (0, 0)
    local: int = 0
    room: int = 0
    guard: int = GUARD
    plain: bool = False


def serve(channel: socket.socket) -> None:
    """Answer until the channel closes. A refusal of the driver is an answer with `error`; then the process ends, as its context is lost."""
    state: State | None = None
    while True:
        message, blobs = wire.receive(channel)
        try:
            match message.get("op"):
                case "open":
                    state, answer = opened(message, blobs)
                    wire.send(channel, answer)
                case "load" if state is not None:
                    wire.send(channel, {"functions": loaded(state, message["images"], blobs)})
                case "call" if state is not None:
                    answer, back = called(state, message, blobs)
                    wire.send(channel, answer, back)
                case "clear" if state is not None:
                    emptied(state, int(message["lead"]))
                    wire.send(channel, {})
                case "peaks" if state is not None:
                    wire.send(channel, _peaks(state))
                case other:
                    wire.send(channel, {"error": f"no such request: {other}"})
        except (CudaError, OSError, MemoryError, ValueError, KeyError) as fault:
            name = fault.name if isinstance(fault, CudaError) else type(fault).__name__
            wire.send(channel, {"error": str(fault) or name, "name": name})
            return


# -------------------------------------------------------------------------------------------------------------------------- open

def opened(message: dict[str, Any], blobs: list[bytearray]) -> tuple[State, dict[str, Any]]:
    """The state after `open`, and the answer. Raises CudaError."""
    row = dict(message["limits"])
    row["writable"] = tuple(row["writable"])
    level = confine(Limits(**row)) if message.get("confine", True) else None
    driver = Driver(int(message.get("device", 0)))
    driver.limit(PRINT_BYTES, HEAP_BYTES)
    own = driver.kernels(bytes(blobs[0]), [f"kir_{name}" for name in HARNESS])
    state = State(driver, {name: own[f"kir_{name}"] for name in HARNESS}, [], guard=int(message.get("guard", GUARD)), plain=bool(message.get("plain")))
    about = loaded(state, message["images"], blobs[1:])
    if not state.plain:
        size = CLEAR_FACTOR * max(driver.attribute("l2_bytes"), 1 << 22)
        state.cleared = (driver.allocate(size), size)
        driver.fill(state.cleared[0], b"\1", size)
    driver.allocate(int(message.get("lead", 0)) + (0 if state.guard else GUARD))  # where buffers lie says nothing of why a kernel is called
    state.sums = driver.allocate(8 * MOST_SUMS)
    state.spoiled = (driver.attribute("sms"), driver.attribute("shared_per_cta"))
    state.room = driver.free_bytes() // LOCAL_SHARE // (RESIDENT * state.spoiled[0])
    own["kir_spoil"].allow(state.spoiled[1])
    driver.synchronize()
    return state, {"level": level.to_json() if level else None, "device": driver.about(), "functions": about, "free": driver.free_bytes()}


def loaded(s: State, images: Sequence[Mapping[str, Any]], cubins: Sequence[bytes | bytearray]) -> list[dict[str, int]]:
    """Load cubins, and what the driver says of each function. Each image has a cubin of its own, in order, or says by `cubin` which one it shares with
    others, as one module. Raises CudaError."""
    about, codes, modules = [], [bytes(code) for code in cubins], dict[int, Any]()
    for number, image in enumerate(images):
        kernel = s.driver.kernel(codes[image.get("cubin", number)], image["function"], image["dynamic_shared"], tuple(image.get("cluster", ())),
                                 modules.get(image.get("cubin", -1)))
        if "cubin" in image:
            modules[image["cubin"]] = kernel.plain[0]
        for name, size in image.get("watched", ()):
            for number, pointer in enumerate(kernel.variables(name)):
                s.watched[f"{name} of {image['function']}#{number}"] = (pointer, int(size))
        s.images.append(_Image(kernel, tuple(image.get("hidden", ())), bool(image.get("cooperative"))))
        about.append(kernel.about())
        s.local = max(s.local, about[-1]["local_bytes"])
    return about


def emptied(s: State, lead: int) -> None:
    """Forget the candidate: its kernels and all memory that it was given; the next one's memory begins `lead` bytes further. Raises CudaError where its work
    has left an error behind."""
    s.driver.synchronize()
    for each in (*s.buffers.values(), *s.scratch):
        s.driver.free(each.base)
    s.buffers.clear()
    s.scratch.clear()
    s.watched.clear()
    s.images.clear()
    s.local = 0
    s.driver.more.unload()
    s.driver.allocate(lead)
    s.driver.synchronize()


# -------------------------------------------------------------------------------------------------------------------------- call

def called(s: State, message: dict[str, Any], blobs: list[bytearray]) -> tuple[dict[str, Any], list[bytearray]]:
    """One call: the answer, and the buffers asked for. Raises CudaError."""
    d, rows, salt = s.driver, message["buffers"], int(message["salt"])
    _fit(s, rows)
    first, last = d.event(), d.event()
    d.record(first)
    for row in rows:
        _fill(s, row, blobs)
    for name, b in s.buffers.items():
        key = (salt ^ hash_of(name)) & (2**64 - 1)
        for side, (pointer, size) in enumerate(b.guards):
            draw(s, pointer, size, "u8", {"kind": "integers", "low": 0, "high": 256}, key ^ side)
    _scratch(s, message["launches"], salt & 0xFF)
    before = _sums(s, rows, salt)
    launches = [(s.images[x["image"]], x, _values(s, x)) for x in message["launches"]]
    for image, x, values in launches:
        if image.kernel.needs_more(values, bool(x.get("dependent")), image.cooperative):
            image.kernel.more  # noqa: B018  # loaded now, not between the events
    start, stop = d.event(), d.event()
    graph = None
    d.synchronize()
    if len(launches) + len(message.get("memsets", ())) >= GRAPH_FROM:
        d.more.begin_graph()
        _run(s, message, launches)
        graph = d.more.end_graph()
    if not s.plain:
        d.more.forget_persisting()
        pointer, size = s.cleared
        d.launch(s.harness["spoil"], (4 * s.spoiled[0],), 1024, (ctypes.c_uint32(s.spoiled[1] // 4), ctypes.c_uint32(salt & 0xFFFFFFFF)))
        if s.local and (fitting := [x for x in LOCALS if x <= s.room]):
            least = next((x for x in fitting if x >= s.local), fitting[-1])
            d.launch(s.harness[f"leave_{least}"], (CROWD * s.spoiled[0],), THREADS, (ctypes.c_uint32(salt & 0xFFFFFFFF),))
        own(s, "clear", size // 16, ctypes.c_uint64(pointer), ctypes.c_uint64(size // 16), ctypes.c_uint32(salt & 0xFFFF))
        d.launch(s.harness["delay"], (1,), 1, (ctypes.c_uint64(DELAY_BASE + DELAY_LAUNCH * (1 if graph else len(launches))),))
    begun = time.perf_counter()
    d.record(start)
    if graph is not None:
        d.more.launch_graph(graph)
    else:
        _run(s, message, launches)
    d.record(stop)
    seconds = d.elapsed(start, stop)
    ended = time.perf_counter()
    d.synchronize()
    late = time.perf_counter() - ended
    wall = time.perf_counter() - begun
    after = _sums(s, rows, salt)
    digests = _summed(s, {name: (s.buffers[name].data, s.buffers[name].size) for name in message.get("digest", ())}, int(message.get("key", 0)))
    back = [d.download(s.buffers[name].data, s.buffers[name].size) for name in message["return"]]
    d.record(last)
    beyond = d.elapsed(first, last) - seconds
    if graph is not None:
        d.more.drop_graph(graph)
    changed = sorted({name for name in before if "@" not in name and name[0] != "=" and before[name] != after[name]})
    broken = sorted({name.partition("@")[0] for name in before if "@" in name and before[name] != after[name]})
    altered = sorted({name[1:].partition("#")[0] for name in before if name[0] == "=" and before[name] != after[name]})
    return {"seconds": seconds, "beyond": beyond, "altered": altered, "digests": digests, "wall": wall, "late": late, "changed": changed, "broken": broken,
            "threads": len(os.listdir("/proc/self/task"))}, back


def _run(s: State, message: dict[str, Any], launches: list[tuple[_Image, dict[str, Any], list[Any]]]) -> None:
    """What is timed: initial values of workspaces, then the launches."""
    for m in message.get("memsets", ()):
        s.driver.fill(s.buffers[m["name"]].data, bytes.fromhex(m["pattern"]), m["count"])
    for image, x, values in launches:
        s.driver.launch(image.kernel, x["grid"], x["threads"], values, dependent=bool(x.get("dependent")), cooperative=image.cooperative)


@dataclass(frozen=True)
class Sampled:
    """A call made ready to be timed again and again: what `_run` takes, and its launches as a graph where there are many."""

    message: dict[str, Any]
    launches: list[tuple[_Image, dict[str, Any], list[Any]]]
    graph: Any = None


def placed(s: State, rows: list[dict[str, Any]], blobs: list[bytearray]) -> None:
    """Buffers of the wanted sizes and no others, filled. Raises CudaError."""
    _fit(s, rows)
    filled(s, rows, blobs)


def filled(s: State, rows: list[dict[str, Any]], blobs: list[bytearray]) -> None:
    """Some of the buffers that are there, filled again. Raises CudaError."""
    for row in rows:
        _fill(s, row, blobs)


def reserved(s: State, launches: list[dict[str, Any]]) -> None:
    """Scratch memory enough for each of the launches, so that none that is made `ready` later moves it. Raises CudaError."""
    _scratch(s, launches, 0)


def ready(s: State, message: dict[str, Any]) -> Sampled:
    """A call over buffers that are `placed`, made ready for `sample`. Raises CudaError."""
    d = s.driver
    _scratch(s, message["launches"], 0)
    launches = [(s.images[x["image"]], x, _values(s, x)) for x in message["launches"]]
    for image, x, values in launches:
        if image.kernel.needs_more(values, bool(x.get("dependent")), image.cooperative):
            image.kernel.more  # noqa: B018  # loaded now, not between the events
    if len(launches) + len(message.get("memsets", ())) < GRAPH_FROM:
        return Sampled(message, launches)
    d.synchronize()
    d.more.begin_graph()
    _run(s, message, launches)
    return Sampled(message, launches, d.more.end_graph())


def sample(s: State, call: Sampled, cold: bool) -> float:
    """Seconds between events around one call, with L2 cleared before it or as the call before left it. Raises CudaError."""
    d = s.driver
    start, stop = d.event(), d.event()
    if cold:
        d.more.forget_persisting()
        pointer, size = s.cleared
        own(s, "clear", size // 16, ctypes.c_uint64(pointer), ctypes.c_uint64(size // 16), ctypes.c_uint32(1))
    d.launch(s.harness["delay"], (1,), 1, (ctypes.c_uint64(DELAY_BASE + DELAY_LAUNCH * (1 if call.graph is not None else len(call.launches))),))
    d.record(start)
    if call.graph is not None:
        d.more.launch_graph(call.graph)
    else:
        _run(s, call.message, call.launches)
    d.record(stop)
    seconds = d.elapsed(start, stop)
    d.synchronize()
    return seconds


def forgotten(s: State, call: Sampled) -> None:
    """Give back what `ready` made."""
    if call.graph is not None:
        s.driver.more.drop_graph(call.graph)


def hash_of(name: str) -> int:
    """64 bits of a name, the same in every process."""
    out = 0xCBF29CE484222325
    for byte in name.encode():
        out = (out ^ byte) * 0x100000001B3 & (2**64 - 1)
    return out


def _fit(s: State, rows: list[dict[str, Any]]) -> None:
    """Buffers of the wanted sizes, each as far behind a multiple of `MOST_SHIFT` as is asked; one that already fits stays where it is."""
    wanted = {row["name"]: int(row["bytes"]) for row in rows}
    for name in [x for x, b in s.buffers.items() if wanted.get(x) != b.size]:
        s.driver.free(s.buffers.pop(name).base)
    for name, size in wanted.items():
        if name not in s.buffers:
            if not s.guard:
                s.driver.allocate(2 * GUARD + MOST_SHIFT)  # so that they lie as far apart as with guards
            s.buffers[name] = _Buffer(s.driver.allocate(guarded(size, s.guard)), size, s.guard)
    for row in rows:
        s.buffers[row["name"]].shift = int(row.get("shift", 0)) if s.guard else 0


def _fill(s: State, row: dict[str, Any], blobs: list[bytearray]) -> None:
    b, how = s.buffers[row["name"]], row["fill"]
    if "blob" in how:
        s.driver.upload(b.data, blobs[how["blob"]])
    elif "byte" in how:
        s.driver.fill(b.data, bytes([int(how["byte"])]), b.size)
    else:
        draw(s, b.data, int(row["elements"]), row["dtype"], how["draw"], int(how["seed"]))


def draw(s: State, pointer: int, elements: int, dtype: str, how: dict[str, Any], key: int) -> None:
    """Fill `elements` of a dtype from a distribution (`kir.problem.schema.Draw`, with `inner`, the extent of the last axis)."""
    kind, inner = how["kind"], max(int(how.get("inner", 1)), 1)
    a, b = {"normal": (how.get("mean", 0.0), how.get("scale", 1.0)), "unit": (0.0, 1.0), "alternating": (0.0, how.get("scale", 1.0)),
            "sparse": (how.get("every", 8), how.get("scale", 1.0)), "constant": (how.get("low", 0.0), 0.0)}.get(
                kind, (how.get("low", 0.0), how.get("high", 1.0)))
    own(s, "draw", elements, ctypes.c_uint64(pointer), ctypes.c_uint64(elements), ctypes.c_int(CODES[dtype]),
         ctypes.c_int(KINDS["normal" if kind == "unit" else kind]), ctypes.c_float(a), ctypes.c_float(b), ctypes.c_uint64(inner),
         ctypes.c_uint64(key & (2**64 - 1)))
    if kind == "unit":
        own(s, "unit_rows", elements // inner * 32, ctypes.c_uint64(pointer), ctypes.c_uint64(elements // inner), ctypes.c_int(CODES[dtype]),
             ctypes.c_uint64(inner))


def own(s: State, name: str, items: int, *values: Any) -> None:
    """Launch one of our kernels over so many items."""
    s.driver.launch(s.harness[name], (max(1, min(-(-items // THREADS), 4096)),), THREADS, values)


def _sums(s: State, rows: list[dict[str, Any]], salt: int) -> dict[str, int]:
    """Sums over the inputs that must stay as they are, over all guards (`name@0`, `name@1`), and over variables of modules (`=name`)."""
    places: dict[str, tuple[int, int]] = {}
    for row in rows:
        b = s.buffers[row["name"]]
        if row.get("intact"):
            places[row["name"]] = (b.data, b.size)
        places |= {f"{row['name']}@{side}": place for side, place in enumerate(b.guards)}
    return _summed(s, places | {f"={name}": place for name, place in s.watched.items()}, salt)


def _summed(s: State, places: dict[str, tuple[int, int]], salt: int) -> dict[str, int]:
    """Sums over pointers and sizes that depend on every byte, its place and the salt."""
    names, out = list(places), dict[str, int]()
    for first in range(0, len(names), MOST_SUMS):
        some = names[first: first + MOST_SUMS]
        s.driver.fill(s.sums, b"\0", 8 * len(some))
        for i, name in enumerate(some):
            pointer, size = places[name]
            own(s, "sum", -(-size // 8), ctypes.c_uint64(pointer), ctypes.c_uint64(size), ctypes.c_uint64(salt), ctypes.c_uint64(s.sums + 8 * i))
        raw = s.driver.download(s.sums, 8 * len(some))
        out |= {name: int.from_bytes(raw[8 * i: 8 * i + 8], "little") for i, name in enumerate(some)}
    return out


def _scratch(s: State, launches: list[dict[str, Any]], poison: int) -> None:
    """Memory that a surface's own calling convention appends to the arguments, enough for every launch of the call; nothing of an earlier call
    is left in it."""
    wanted: list[int] = []
    for x in launches:
        ctas = x["grid"][0] * (x["grid"][1] if len(x["grid"]) > 1 else 1) * (x["grid"][2] if len(x["grid"]) > 2 else 1)
        for i, each in enumerate(s.images[x["image"]].hidden):
            wanted += [0] * (i + 1 - len(wanted))
            wanted[i] = max(wanted[i], each * ctas)
    for i, size in enumerate(wanted):
        if i < len(s.scratch) and s.scratch[i].size >= size:
            continue
        made = _Buffer(s.driver.allocate(size), size)
        if i < len(s.scratch):
            s.driver.free(s.scratch[i].base)
            s.scratch[i] = made
        else:
            s.scratch.append(made)
    for each in s.scratch:
        s.driver.fill(each.base, bytes([poison]), each.size)


def _values(s: State, launch: dict[str, Any]) -> list[Any]:
    out: list[Any] = []
    for kind, *rest in launch["arguments"]:
        if kind == "buffer":
            out.append(ctypes.c_uint64(_aligned(s, rest[0], rest[1] if len(rest) > 1 else 1)))
        elif kind == "map":
            out.append(_map(s, rest[0]))
        else:
            out.append(_scalar(*rest))
    hidden = s.images[launch["image"]].hidden
    return [*out, *(ctypes.c_uint64(s.scratch[i].base if size else 0) for i, size in enumerate(hidden))]


def _scalar(dtype: str, value: float) -> Any:
    if dtype in ("f16", "bf16"):
        bits = struct.unpack("<H", struct.pack("<e", value))[0] if dtype == "f16" else struct.unpack("<I", struct.pack("<f", value))[0] >> 16
        return ctypes.c_uint16(bits)
    return SCALARS[dtype](value if dtype in ("f32", "f64") else int(value))


def _aligned(s: State, name: str, divisor: int) -> int:
    """The address of a buffer. Raises ValueError where the kernel relies on more than it is aligned to: a fault on the device would say less."""
    address = s.buffers[name].data
    if address % divisor:
        raise ValueError(f"'{name}' begins at byte {address % divisor} past a multiple of {divisor}, and the kernel takes it {divisor} bytes at a time")
    return address


def _map(s: State, row: dict[str, Any]) -> Map:
    address = _aligned(s, row["of"], 16)
    if row.get("mode") == "im2col":
        raw = s.driver.more.tensor_map_im2col(row["dtype"], address, row["extents"], row["strides"], row["lower"], row["upper"],
                                              row["channels"], row["pixels"], swizzle=row["swizzle"], steps=row.get("steps", ()))
    else:
        raw = s.driver.more.tensor_map(row["dtype"], address, row["extents"], row["strides"], row["box"], swizzle=row["swizzle"],
                                       steps=row.get("steps", ()), interleave=row.get("interleave", 0), promotion=row.get("promotion", 2),
                                       nan_fill=row.get("nan_fill", False))
    return Map.from_buffer_copy(raw)


# ------------------------------------------------------------------------------------------------------------------------- peaks

def _peaks(s: State) -> dict[str, Any]:
    """What this device reaches: bytes a second of a large copy (read plus written), seconds of an empty launch."""
    d, size = s.driver, 1 << 30
    a, b = d.allocate(size), d.allocate(size)
    start, stop = d.event(), d.event()
    best, empty = 0.0, 1.0
    for _ in range(6):
        d.record(start)
        for _ in range(4):
            d.copy(b, a, size)
        d.record(stop)
        best = max(best, 8 * size / d.elapsed(start, stop))
    for _ in range(50):
        d.launch(s.harness["delay"], (1,), 1, (ctypes.c_uint64(DELAY_BASE),))
        d.record(start)
        d.launch(s.harness["nothing"], (1,), 32, ())
        d.record(stop)
        empty = min(empty, d.elapsed(start, stop))
    d.free(a)
    d.free(b)
    return {"bandwidth": best, "launch": empty}
