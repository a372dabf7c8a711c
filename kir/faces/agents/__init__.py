"""KIR for agents: its commands as tools of the Model Context Protocol.

Order: calling, tools, server.
"""
