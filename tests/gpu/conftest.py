"""Every process that may test GPU code learns of fake CUDA before its first backward pass, whatever it runs first."""

from bertkit.plan import fake_cuda

if fake_cuda.why_not() is None:
    fake_cuda.start_engine()
