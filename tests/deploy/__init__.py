"""Rules, board and manifests of deploy/, as far as they can be judged without a cluster."""
