"""The naive program of a torch model: its operators as they are called (`recording`, where torch is), as one graph over the sizes (`graph`), what each
computes of an element (`operators`), and kernels of one thread a work item, which write a computation where it is read (`kernels`, `program`).
"""
