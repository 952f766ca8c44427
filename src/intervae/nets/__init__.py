"""Neural networks for images, latents and graphs, without any model's loss."""
