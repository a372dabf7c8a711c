"""A kernel in the browser: source, IR, emitted code and SASS side by side, passes applied and undone by clicks, lineages as slides.

Order: settings, sides, ranking, layouts, timeline, pictures, session, server.
"""
