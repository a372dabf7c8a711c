"""Commands that change programs: opt, sites, passes, tune, skills."""
