"""intervae: learn causal variables from images and video, and ask what if."""

__version__ = "0.1.0"
