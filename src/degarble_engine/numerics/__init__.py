"""Running a checkpoint one decoder layer at a time, and judging what comes out."""
