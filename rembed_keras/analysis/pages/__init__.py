"""Pages and tables of runs and studies: what a run keeps about itself, drawn without a script or another file."""
