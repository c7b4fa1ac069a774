"""Typed columns for record values: schemas of Avro, JSON Schema and Protobuf as Arrow types, values
as Arrow arrays, and how a column follows a changing schema. It needs no Spark.

May import: nothing of kstore.
"""
