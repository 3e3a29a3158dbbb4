"""What serving engines do with a checkpoint: skip-list readings, kernel limits, shard degrees, known issues."""
