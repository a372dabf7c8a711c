"""Commands that change programs: opt, optimize, sites, passes, tune, skills."""
