"""The workloads of the library on a GPU, each beside the fastest references of the same run: ``python -m benchmarks.gpu_workloads WORKLOAD ..``.

Order: asking, measuring, launching, replaying, cublaslt, conv2d, fmha, gdn, gemm, topk, table, watched.

One module a workload holds ``cases()``. To add one: a module with such a function, and its line in ``table.WORKLOADS``.
"""
