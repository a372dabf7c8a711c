"""Loads and stores of places, a cluster's memory, products of tiles."""
