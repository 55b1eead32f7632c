"""What a study comes to, shown: tables, figures, the page, TensorBoard's HPARAMS."""
