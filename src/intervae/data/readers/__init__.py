"""Readers of published data sets, one file each, from the folder that the environment variable INTERVAE_DATA names."""
