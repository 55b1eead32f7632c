"""GLUE, SuperGLUE and XTREME: readers and submissions."""
