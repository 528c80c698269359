"""What a recipe needs of GPUs, found out without one."""
