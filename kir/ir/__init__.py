"""The language: nodes, text, rules, names, layouts.

Order: base, grammar, names, types, dtype_terms, signatures, nodes, layouts, paths, printer, build, terms, parser, visit, anchors, binding,
canonical, changes, rebuild, rules, bindings, measures.
"""
