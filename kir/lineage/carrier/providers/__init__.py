"""Who fills a hole: people, recordings, models; what it costs."""
