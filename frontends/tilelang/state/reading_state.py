"""What is known while one function is read: names, metas, what is emitted. Data alone; `reader` says what its values stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kir.base.dataclass import dataclass
from kir.ir import build
from kir.ir import nodes as n
from kir.ir.rebuild.blocks import Blocks

from ..._python.project import Module, Project
from ..values.values import Changing, LayoutOf, State, Value


class Given(dict[str, Value]):
    """Known values of metas, which notes those that are asked for."""

    def __init__(self, values: Mapping[str, Value], asked: dict[str, None]) -> None:
        super().__init__(values)
        self.asked = asked

    def __contains__(self, key: object) -> bool:
        found = super().__contains__(key)
        if found:
            self.asked[str(key)] = None
        return found

    def get(self, key: str, default: Value = None) -> Value:  # type: ignore[override]  # one form
        """The value of a name, noted."""
        if key not in self:
            return default
        return self[key]


@dataclass(frozen=True)
class Part:
    """One kernel of a function: its launch, its attributes and its statements."""

    grid: tuple[n.Axis, ...]
    threads: n.Expr
    cluster: tuple[int, ...]
    attrs: Mapping[str, n.Attr]
    block: n.Block


class ReadingState:
    """The state of reading one kernel. `given` are values of metas that are known already."""

    def __init__(self, project: Project, module: Module, given: Mapping[str, Value], bound: bool = False, sizes: Iterable[str] = ()) -> None:
        self.project, self.module = project, module
        self.bound, self.bound_sizes = bound, frozenset(sizes)
        """Whether a binding gives all values, so that what it leaves out has its default; but for what it counts among the sizes."""
        self.asked: dict[str, None] = {}
        """Names of given values that were looked at, in the order in which they were first."""
        self.given = Given(given, self.asked)
        self.out = Blocks()
        self.metas: dict[str, n.Meta] = {}
        self.kinds: dict[str, str] = {}
        self.optional: set[str] = set()
        """Names that the source asks whether they are None."""
        self.defaults: dict[str, Value] = {}
        self.sizes: dict[str, n.Param] = {}
        self.params: list[n.Param] = []
        self.assumed: list[n.Expr] = []
        self.doubtful = 0
        """Branches around the statement at hand of which the host may know that they are not taken, by conditions within theirs."""
        self.branches: list[n.Expr] = []
        """Conditions of the binding whose branch is being read, one way and then the other, from the outermost."""
        self.grid: tuple[n.Axis, ...] = ()
        self.threads: n.Expr = build.const(128)
        self.thread_shape: tuple[n.Expr, ...] = ()
        """Threads of a CTA along x, y and z, where the launch says so; they are numbered with x fastest."""
        self.cluster: tuple[int, ...] = ()
        self.attrs: dict[str, n.Attr] = {}
        self.workspaces: list[n.Workspace] = []
        self.outside: dict[str, n.Expr] = {}
        """What an access outside of a tensor reads, where that is not 0."""
        self.layouts: dict[str, LayoutOf] = {}
        self.distributed: dict[str, n.Layout] = {}
        """Layouts of fragments that functions of the source give."""
        self.device = False
        self.thread = "%tid"
        """What stands for the thread's number in its CTA until the loops over threads are made."""
        self.thread_name = "tid"
        self.launched = False
        self.begun_in: list[n.Expr] = []
        """The branches that the kernel at hand began in."""
        self.in_launch = False
        """Whether the body of a kernel that began in a branch is being read."""
        self.parts: list[Part] = []
        """Kernels that have been read to their end."""
        self.unread = ""
        """Why a launch could not be read."""
        self.combiner: Value = None
        """What the all-reduce at hand puts two numbers together with."""
        self.depth = 0
        self.steps = 0
        """Statements of the source that were followed."""
        self.wanted = ""
        """The name that the statement at hand gives to what it declares."""
        self.born: set[str] = set()
        """Buffers that the statement at hand has declared."""
        self.inside: dict[str, n.Expr] = {}
        """Loop variables that run from 0, with the end of their range."""
        self.begins: dict[str, tuple[n.Expr, n.Expr]] = {}
        """Those that run from another literal, with where they begin and end."""
        self.objects: set[str] = set()
        """Parameters that are objects: their fields are metas, they are none."""
        self.lists: dict[str, int] = {}
        """Lists that the binding gives, with how many of their elements are looked at; 0 for all, however many there are."""
        self.choices: dict[str, list[Value]] = {}
        """What the source compares a text or a dtype with, or has in a table for it."""
        self.questions: dict[str, str] = {}
        self.meanings: dict[str, n.Expr] = {}
        """What names of integer arithmetic stand for."""
        self.combines: dict[str, str] = {}
        """What each reducer does with two numbers."""
        self.reducers: set[str] = set()
        """Fragments of `T.alloc_reducer`: what `T.Parallel` adds to them is summed over the axes that they do not have."""
        self.joined: set[str] = set()
        """Registers that hold what a name stands for after a branch."""
        self.hoisted: set[str] = set()
        """Buffers of a branch that are declared before it, since what comes after might name them."""
        self.aliases: dict[str, str] = {}
        """For each view the buffer whose memory it names."""
        self.sources: list[str] = []
        """CUDA source in front of the kernel."""
        self.globals: dict[tuple[str, str], Value] = {}
        self.asking: set[tuple[str, str]] = set()
        self.calling: list[str] = []
        """Names of the functions that are being read, from the outermost."""
        self.changes: list[tuple[Changing, State]] = []
        """What lists, dicts and objects of the host held before each change."""
