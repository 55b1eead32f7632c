"""Task heads: classification, regression, tagging and span extraction on one encoder."""
