"""Three brokers on one PostgreSQL: do they keep the promises of one, and what does it cost?"""
