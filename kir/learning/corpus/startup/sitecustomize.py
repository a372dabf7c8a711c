"""Run by Python itself at the start of a process of `kir capture` or `kir corpus --swap`: installs the hook, then the next one of its name."""
import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_next = importlib.machinery.PathFinder.find_spec("sitecustomize", [p for p in sys.path if os.path.abspath(p or ".") != _here])
if _next is not None and _next.loader is not None:
    _module = importlib.util.module_from_spec(_next)
    _next.loader.exec_module(_module)
if os.environ.get("KIR_LAUNCHES"):
    try:
        from kir.learning.corpus.hook import install

        install(os.environ["KIR_LAUNCHES"])
    except ImportError as _missing:  # another Python than KIR's: it runs as it would without
        print(f"note: {sys.executable} cannot import KIR ({_missing}), so that no launch of it is recorded; KIR is installed for the Python that runs `kir`",
              file=sys.stderr)
