"""The programs of the pages in docs/documents. Each shows what goes wrong without a document, and
what happens with it.

``python -m docs.programs`` runs them and writes each, and what it printed, into its page.
"""
