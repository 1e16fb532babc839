"""Two brokers on one PostgreSQL, killed, stopped and cut off in turn under load: is anything lost, is one alone the owner?"""
