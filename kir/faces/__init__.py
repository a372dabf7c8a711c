"""Where people and agents come in: the command line, and reports.

Order: report, api, agents, explore, hub, cli.
"""
