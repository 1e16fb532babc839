"""Two brokers on one PostgreSQL, killed, stopped and cut off under load. Is anything lost? Is one alone the owner?"""
