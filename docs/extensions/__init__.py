"""The page docs/protocol-bytes.md: the layouts of the messages that kstore extends, and examples in
hexadecimal, both made from the classes in kstore.protocol. tests/documents/test_extension_pages.py
reads the page with a codec of its own.
"""
