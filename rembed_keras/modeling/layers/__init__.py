"""Layers that encoders and heads are made of: tables, embeddings, couplings, adapters."""
