"""Running compiled kernels on a CUDA device, in processes that hold no other code and are confined.

    with Server() as server, server.child(Limits(gpu=True)) as child:
        child.ask({"op": "open", ...})

`driver` is a device by pycuda, `libcuda` what pycuda lacks; `executor` what a child does; `server` forks children from a process that has not
touched CUDA; `client` is the asking side. Nothing here knows of programs, problems or verdicts.
"""
