"""The ledger of a broker, and what audits say of it, beside what clients have seen for themselves."""
