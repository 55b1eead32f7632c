"""Formats that labelled text comes in."""
