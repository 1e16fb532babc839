"""The command line: talks to a running broker over its HTTP API; opens a store itself only while none runs."""
