"""Labelled and parallel text: how it is read, encoded, scored, and compared with what needs no encoder."""
