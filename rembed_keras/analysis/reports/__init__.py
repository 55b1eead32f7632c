"""Reports on finished runs: scores, averages, significance, tables and figures."""
