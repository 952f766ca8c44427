"""Random pairs of images with actions, for tests of models of transitions."""

from intervae.testing import random_pairs as random_pairs
