"""`kstore cluster`: starts, watches and stops the broker processes of one folder. It connects to
brokers as any client does.

May import: kstore.cli, kstore.clients, kstore.errors, kstore.net.
"""
