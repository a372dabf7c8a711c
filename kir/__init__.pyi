from kir.faces.api.kernels import Difference as Difference
from kir.faces.api.kernels import Kernel as Kernel
from kir.faces.api.kernels import KirError as KirError
from kir.faces.api.kernels import Ran as Ran
from kir.faces.api.kernels import Site as Site
from kir.faces.api.kernels import Walked as Walked
from kir.faces.api.kernels import apply as apply
from kir.faces.api.kernels import check as check
from kir.faces.api.kernels import diff as diff
from kir.faces.api.kernels import emit as emit
from kir.faces.api.kernels import explain as explain
from kir.faces.api.kernels import forecast as forecast
from kir.faces.api.kernels import judge as judge
from kir.faces.api.kernels import prove as prove
from kir.faces.api.kernels import read as read
from kir.faces.api.kernels import run as run
from kir.faces.api.kernels import save as save
from kir.faces.api.kernels import sites as sites
from kir.faces.api.kernels import undo as undo
from kir.faces.api.kernels import walk as walk
from kir.faces.api.optimizing import Faster as Faster
from kir.faces.api.optimizing import optimize as optimize

__version__: str
