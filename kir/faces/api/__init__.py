"""What KIR does, as functions: what `import kir` offers, what the command line and the server for agents call.

Order: pages, pipelines, places, inputs, kernels.
"""
