"""What any run needs: folder, lock, ranks, signals, checkpoints, one step, optimizers, log."""
