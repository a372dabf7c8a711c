"""A kernel in the browser: source, IR and emitted code side by side, passes applied and undone by clicks.

Order: session, server.
"""
