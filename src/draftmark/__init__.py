"""Which speculative-decoding configuration to deploy, measured so that the answer can be trusted."""

__version__ = "0.1.0"
