"""Text becomes token shards: sources, cleaning, surveys, jobs."""
