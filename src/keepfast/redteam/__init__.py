"""The judge, tried: cheats that it must catch and honest kernels that look like cheats, run against it on this machine.

Owns the corpora as data (`entries`), how an entry of each kind is put to the part of the product that must answer it, and the table.
Must not know runs or the ledger of a user. Nobody but `cli` imports it.
"""
