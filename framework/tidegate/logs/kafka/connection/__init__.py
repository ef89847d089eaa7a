"""Connections to the brokers: addresses, TLS and login, cluster metadata, error codes and retries."""
