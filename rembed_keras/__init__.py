"""Pre-train multilingual encoders, and know what every part of them costs."""

__version__ = "0.1.0"
