"""What a model costs: the ledger, its entries, and the solver that spends a budget."""
