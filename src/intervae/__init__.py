"""intervae: learn causal variables from images and video, and ask what if."""
