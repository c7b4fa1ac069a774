"""Pictures of the documents' pages: a few shapes (drawing), and what each picture shows (stories).

``python -m docs.pictures`` writes the SVG files in docs/documents.
"""
