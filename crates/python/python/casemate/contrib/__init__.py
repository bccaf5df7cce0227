"""Adapters for other packages, which each of them needs."""
