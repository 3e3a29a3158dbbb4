"""Files of the page at `/`: nothing is loaded from anywhere else."""
