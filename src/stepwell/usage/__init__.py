"""Token usage: exact reports, exact totals."""
