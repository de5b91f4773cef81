"""memops looks after the memory of AI agents on a Linux server."""

__version__ = "0.1.0"
