"""kstore's clients under other libraries' names: programs that were written for those libraries run
with one changed import.

May import: nothing of kstore.
"""
