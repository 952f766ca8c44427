"""Readers of published data sets, one file each, from the folder INTERVAE_DATA."""
