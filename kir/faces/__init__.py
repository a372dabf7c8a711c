"""Where people and agents come in: the command line, and reports.

Order: plain, report, api, agents, explore, hub, cli.
"""
